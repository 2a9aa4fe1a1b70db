package main

import (
	"time"

	"github.com/penstock-mq/penstock/queue/job"
)

// jobAnswer is a [manage.Job] or a [manage.EndedJob].
type jobAnswer struct {
	Job       string `json:"job"`
	Key       string `json:"key"`
	State     string `json:"state"`
	Position  *int   `json:"position"`
	Calls     int    `json:"calls"`
	ETAMS     *int64 `json:"eta_ms"`
	Attempts  *int   `json:"attempts"`
	LastError string `json:"last_error"`
	job.Hold
	AcceptedAt time.Time  `json:"accepted_at"`
	Deadline   *time.Time `json:"deadline"`
	NotBefore  *time.Time `json:"not_before"`
	Cost       int64      `json:"cost"`
	Priority   int        `json:"priority"`
	Tags       []string   `json:"tags"`
	Size       *int       `json:"size"`
	Changed    bool       `json:"changed"`

	// of an ended job

	Letter     uint64     `json:"letter"`
	Reason     string     `json:"reason"`
	DeadAt     *time.Time `json:"dead_at"`
	ReplayedAs string     `json:"replayed_as"`
	EndedAt    *time.Time `json:"ended_at"`
	DurationMS *int64     `json:"duration_ms"`
	Status     int        `json:"status"`
	Answer     string     `json:"answer"`
}

type verdictAnswer struct {
	Status       int    `json:"status"`
	Verdict      string `json:"verdict"`
	Job          string `json:"job"`
	DelayMS      *int64 `json:"delay_ms"`
	Position     *int   `json:"position"`
	Duplicate    bool   `json:"duplicate"`
	Detail       string `json:"detail"`
	RetryAfterMS int64  `json:"retry_after_ms"`

	// of a job whose end was waited for

	End   string `json:"end"`
	Error string `json:"error"`
	Reply *struct {
		Status int    `json:"status"`
		Body   string `json:"body"`
	} `json:"reply"`
}
