package main

import (
	"encoding/json"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
)

// What is read of the API's answers; docs/reference/api.md describes them.

type policyAnswer struct {
	Policy struct {
		Name         string `json:"name"`
		Algorithm    string `json:"algorithm"`
		Outflow      string `json:"outflow"`
		OutflowTotal string `json:"outflow_total"`
		Refill       string `json:"refill"`
		Limit        int64  `json:"limit"`
		Window       string `json:"window"`
		Capacity     int64  `json:"capacity"`
		Concurrency  int    `json:"concurrency"`

		Limits []json.RawMessage `json:"limits"`
	} `json:"policy"`
	Revision uint64   `json:"revision"`
	Source   string   `json:"source"`
	Set      string   `json:"set"`
	Paused   bool     `json:"paused"`
	Retired  bool     `json:"retired"`
	Deleting bool     `json:"deleting"`
	Changed  []string `json:"changed"`
	DryRun   bool     `json:"dry_run"`

	Last *lastChange `json:"last_change"`
}

type lastChange struct {
	At      time.Time `json:"at"`
	Changed []string  `json:"changed"`
}

type overrideAnswer struct {
	Key      string `json:"key"`
	Override struct {
		Outflow     string `json:"outflow"`
		Concurrency *int   `json:"concurrency"`
		Paused      bool   `json:"paused"`
	} `json:"override"`
	Changed []string `json:"changed"`
	DryRun  bool     `json:"dry_run"`
}

type scheduleAnswer struct {
	Policy string              `json:"policy"`
	Key    string              `json:"key"`
	Name   string              `json:"name"`
	When   string              `json:"when"`
	Zone   string              `json:"zone,omitempty"`
	Paused bool                `json:"paused"`
	Bytes  int                 `json:"bytes"`
	Set    string              `json:"set,omitempty"`
	Header map[string][]string `json:"header,omitempty"`
	Body   *string             `json:"body,omitempty"`
}

type schedulesAnswer struct {
	Schedules []scheduleAnswer `json:"schedules"`
}

type bucketAnswer struct {
	Key   string `json:"key"`
	Depth int    `json:"depth"`
	job.BucketState
	Unanswered []int `json:"unanswered"`
}

type bucketsAnswer struct {
	Buckets    []bucketAnswer `json:"buckets"`
	Total      int            `json:"total"`
	Next       *int           `json:"next_offset"`
	Unanswered []int          `json:"unanswered"`
}

type placedAnswer struct {
	Policy string `json:"policy"`
	bucketAnswer
	Refused int64 `json:"refused"`
}

type allBucketsAnswer struct {
	Buckets    []placedAnswer   `json:"buckets"`
	Total      int              `json:"total"`
	WindowMS   int64            `json:"window_ms"`
	Unanswered map[string][]int `json:"unanswered"`
}

// jobAnswer is a job, or what became of it.
type jobAnswer struct {
	Job       string `json:"job"`
	Key       string `json:"key"`
	Partition int    `json:"partition"`
	State     string `json:"state"`
	Position  *int   `json:"position"`
	ExpectMS  *int64 `json:"expect_ms"`
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

	Letter     uint64     `json:"letter"`
	Reason     string     `json:"reason"`
	BuriedAt   *time.Time `json:"buried_at"`
	ReplayedAs string     `json:"replayed_as"`

	EndedAt    *time.Time `json:"ended_at"`
	DurationMS *int64     `json:"duration_ms"`
	Status     int        `json:"status"`
	Answer     string     `json:"answer"`
}

type historyAnswer struct {
	Jobs []jobAnswer `json:"jobs"`
	Next *uint64     `json:"next"`
}

// verdictAnswer is what became of a job that was submitted, alone or in a batch.
type verdictAnswer struct {
	N            int    `json:"n"` // in the batch
	Status       int    `json:"status"`
	Verdict      string `json:"verdict"`
	Job          string `json:"job"`
	DelayMS      *int64 `json:"delay_ms"`
	Position     *int   `json:"position"`
	Depth        int    `json:"depth"`
	Duplicate    bool   `json:"duplicate"`
	Detail       string `json:"detail"`
	RetryAfterMS int64  `json:"retry_after_ms"`

	// of one that was waited for
	End   string `json:"end"`
	Error string `json:"error"`
	Reply *struct {
		Status int    `json:"status"`
		Body   string `json:"body"`
	} `json:"reply"`
}

type checkAnswer struct {
	Allowed      bool  `json:"allowed"`
	Limit        int64 `json:"limit"`
	Remaining    int64 `json:"remaining"`
	DelayMS      int64 `json:"delay_ms"`
	RetryAfterMS int64 `json:"retry_after_ms"`
	ResetAfterMS int64 `json:"reset_after_ms"`
}

type letterAnswer struct {
	ID         uint64              `json:"id"`
	Key        string              `json:"key"`
	Job        string              `json:"job"`
	Reason     string              `json:"reason"`
	Error      string              `json:"error"`
	Attempts   int                 `json:"attempts"`
	AcceptedAt time.Time           `json:"accepted_at"`
	BuriedAt   time.Time           `json:"buried_at"`
	Size       int                 `json:"size"`
	Header     map[string][]string `json:"header"`
	Body       *string             `json:"body"`
	Bytes      []byte              `json:"body_base64"`
}

type deadPoliciesAnswer struct {
	Policies []struct {
		Policy   string    `json:"policy"`
		Letters  uint64    `json:"letters"`
		OldestAt time.Time `json:"oldest_at"`
		NewestAt time.Time `json:"newest_at"`
	} `json:"policies"`
}

type lettersAnswer struct {
	Letters   []letterAnswer `json:"letters"`
	Next      *uint64        `json:"next"`
	Discarded uint64         `json:"discarded"`
}

type drainerAnswer struct {
	ID        string    `json:"id"`
	Host      string    `json:"host"`
	PID       int       `json:"pid"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"started_at"`
	Alive     bool      `json:"alive"`
	Leaving   bool      `json:"leaving"`
	Policies  map[string]struct {
		Owned   []int `json:"owned"`
		Workers int   `json:"workers"`
		Busy    int   `json:"busy"`
	} `json:"policies"`
	SharedLimits []string `json:"shared_limits"`
}
