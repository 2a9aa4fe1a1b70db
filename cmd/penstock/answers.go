package main

import (
	"time"

	"github.com/penstock-mq/penstock/admission/manage"
)

// jobAnswer is a [manage.Job], or a [manage.EndedJob] with the fields below.
type jobAnswer struct {
	pending
	Size       *int       `json:"size"`
	Letter     uint64     `json:"letter"`
	Reason     string     `json:"reason"`
	DeadAt     *time.Time `json:"dead_at"`
	ReplayedAs string     `json:"replayed_as"`
	EndedAt    *time.Time `json:"ended_at"`
	DurationMS *int64     `json:"duration_ms"`
	Status     int        `json:"status"`
	Answer     string     `json:"answer"`
}

type pending = manage.Job

type verdictAnswer struct {
	Status       int    `json:"status"`
	Verdict      string `json:"verdict"`
	Job          string `json:"job"`
	DelayMS      *int64 `json:"delay_ms"`
	Position     *int   `json:"position"`
	Duplicate    bool   `json:"duplicate"`
	Progress     string `json:"progress"`
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
