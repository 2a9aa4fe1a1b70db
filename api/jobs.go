package api

import (
	"encoding/json"
	"time"
)

// Accepted is the answer to a submitted job.
type Accepted struct {
	Verdict  string `json:"verdict"`            // allowed: started or due; queued: starts later
	Job      string `json:"job"`                // its id
	DelayMS  *int64 `json:"delay_ms,omitempty"` // time until it starts; missing if unknown
	Position *int   `json:"position,omitempty"` // number of jobs ahead of it in its bucket
	Depth    int    `json:"depth,omitempty"`    // number of jobs in its bucket
	// it was accepted before
	Duplicate bool `json:"duplicate,omitempty"`
	// why there is no outcome: the job has not ended yet (`time`); it was submitted before
	// (`repeat`); too many requests are waiting (`busy`); the process is stopping (`stopping`)
	NoResult string `json:"no_result,omitempty"`
	// with `no_result`: its worker's latest report
	Progress string `json:"progress,omitempty"`
}

// Outcome is how a job ended, for its waiting submitter; it is not stored.
type Outcome struct {
	Job      string `json:"job"`
	End      string `json:"end"`
	Reason   string `json:"reason,omitempty"` // why it is dead
	Error    string `json:"error,omitempty"`
	Attempts int    `json:"attempts"` // failed attempts
	// the reply of the HTTP target or handler, if it arrived whole
	Reply *Reply `json:"reply,omitempty"`
}

// Reply is the reply of an HTTP target or handler.
type Reply struct {
	Status int                 `json:"status,omitempty"` // of an HTTP target
	Header map[string][]string `json:"header,omitempty"`
	// the body exceeds 1 MiB and is omitted
	BodyTooLarge bool    `json:"body_too_large,omitempty"`
	Body         *string `json:"body,omitempty"` // if it is UTF-8
	Bytes        []byte  `json:"body_base64,omitempty"`
}

// BatchJob is a job of a batch, with at most one of `body`, `text` and `base64`.
type BatchJob struct {
	Policy  string            `json:"policy"`
	Key     *string           `json:"key"`               // unescaped
	Headers map[string]string `json:"headers,omitempty"` // headers of a single job
	Body    json.RawMessage   `json:"body,omitempty"`    // any JSON, stored verbatim
	Text    *string           `json:"text,omitempty"`
	Base64  []byte            `json:"base64,omitempty"`
}

// BatchLine is the answer to a job of a batch: its number, its status, and the fields of an
// Accepted, a Rejected or a Problem.
type BatchLine struct {
	N             int            `json:"n"` // the job's number, from 1
	Status        int            `json:"status"`
	Verdict       string         `json:"verdict,omitempty"`
	Job           string         `json:"job,omitempty"`
	DelayMS       *int64         `json:"delay_ms,omitempty"`
	Position      *int           `json:"position,omitempty"`
	Depth         int            `json:"depth,omitempty"`
	Duplicate     bool           `json:"duplicate,omitempty"`
	RetryAfterMS  int64          `json:"retry_after_ms,omitempty"`
	ExpectedStart *time.Time     `json:"expected_start,omitempty"`
	Type          string         `json:"type,omitempty"`
	Title         string         `json:"title,omitempty"`
	Detail        string         `json:"detail,omitempty"`
	Field         string         `json:"field,omitempty"`
	Reason        string         `json:"reason,omitempty"`
	Problems      []FieldProblem `json:"problems,omitempty"`
	Ended         string         `json:"ended,omitempty"`
	Letter        uint64         `json:"letter,omitempty"`
	Violated      []string       `json:"violated-policies,omitempty"`
}

// Hold is what keeps a job, or the next job of a bucket, from starting.
type Hold struct {
	// why the next job does not start:
	//
	//   - `rate`, `total_rate`: the bucket's outflow, or `outflow_total`
	//   - `limit:NAME`: that limit on starts; without `until`, another drainer keeps its state
	//   - `concurrency`: its maximum number of jobs is running
	//   - `paused`, `policy_paused`: an operator paused the bucket, or the policy
	//   - `quiet`: the policy is in its quiet time
	//   - `throttled_by_target`: the target asked for a pause
	//   - `breaker`: the target is down: one job at a time probes it, the next at `until`, without
	//     counting attempts
	//   - `backoff`, `not_before`: all its jobs are waiting for a retry, or are not due yet
	//   - `no_worker`, `workers_busy`: the policy has no workers, or all of them are busy
	//   - `no_drainer`: no drainer answers for its partition
	//   - `storage`: its drainer cannot write to JetStream, as on a full disk, is still reading the
	//     queue, or is waiting for a checkpoint
	By    string     `json:"blocked_by,omitempty"`
	Until *time.Time `json:"until,omitempty"` // when it may start, by the drainer's clock, if known
}

// Job is a job that has not ended.
type Job struct {
	Job       string `json:"job"` // its id
	Key       string `json:"key"`
	Partition int    `json:"partition"`
	// `delayed`: waiting for a retry, or not due yet; `finishing`: ended, with the outcome being
	// written; `stored`: not loaded by any drainer; `cancelled`: only in the answer to its
	// cancellation
	State string `json:"state"`
	// number of jobs ahead of it in its bucket; ignores costs if more than 4,096 wait
	Position *int `json:"position"`
	// calls waiting in its bucket, which get nine of ten starts
	Calls     int    `json:"calls,omitempty"`
	ETAMS     *int64 `json:"eta_ms"`             // time until it starts
	Attempts  *int   `json:"attempts,omitempty"` // failed attempts
	LastError string `json:"last_error,omitempty"`
	Progress  string `json:"progress,omitempty"` // its worker's latest report
	Hold
	// why it waits, or what it does: a sentence whose subject is the job; only of a single job
	Why        string     `json:"why,omitempty"`
	AcceptedAt time.Time  `json:"accepted_at"`
	Deadline   *time.Time `json:"deadline,omitempty"`
	NotBefore  *time.Time `json:"not_before,omitempty"`
	Cost       int64      `json:"cost"`
	Priority   int        `json:"priority"`
	Tags       []string   `json:"tags,omitempty"`
	Size       int        `json:"size"`              // of the body, in bytes
	Changed    bool       `json:"changed,omitempty"` // an operator changed it

	// of a single job, on request
	Header map[string][]string `json:"header,omitempty"`
	Body   *string             `json:"body,omitempty"` // on request, if it is UTF-8
	Bytes  []byte              `json:"body_base64,omitempty"`
}

// Jobs is a page of a bucket's jobs.
type Jobs struct {
	Jobs []Job   `json:"jobs"`
	Next *uint64 `json:"next,omitempty"` // the next page's `after`; missing on the last page
}

// EndedJob is a job that has ended.
type EndedJob struct {
	Job        string    `json:"job"`
	Key        *string   `json:"key,omitempty"`
	State      string    `json:"state"`
	AcceptedAt time.Time `json:"accepted_at"`
	// how it ended: a sentence whose subject is the job; only of a single job
	Why string `json:"why,omitempty"`

	Letter    uint64     `json:"letter,omitempty"` // its dead letter
	Reason    string     `json:"reason,omitempty"` // why it is dead
	LastError string     `json:"last_error,omitempty"`
	Attempts  *int       `json:"attempts,omitempty"`
	Tags      []string   `json:"tags,omitempty"`
	DeadAt    *time.Time `json:"dead_at,omitempty"`
	Size      *int       `json:"size,omitempty"`

	ReplayedAs string `json:"replayed_as,omitempty"` // the job created by replaying its letter

	// only in the history, like the fields after it
	ID         uint64     `json:"id,omitempty"`
	EndedAt    *time.Time `json:"ended_at,omitempty"`
	DurationMS *int64     `json:"duration_ms,omitempty"` // duration of the last attempt
	Status     int        `json:"status,omitempty"`      // status its target returned
	// the first KiB of the target's reply, if it is UTF-8
	Answer *string `json:"answer,omitempty"`
	Bytes  []byte  `json:"answer_base64,omitempty"`
}

// EndedJobs is a page of the history.
type EndedJobs struct {
	Jobs []EndedJob `json:"jobs"`
	Next *uint64    `json:"next,omitempty"` // the next page's `before`; missing on the last page
}

// Cancelled is the result of cancelling jobs by tag.
type Cancelled struct {
	Cancelled int     `json:"cancelled"`
	Left      int     `json:"left"`           // were running, or had just ended
	Next      *uint64 `json:"next,omitempty"` // time ran out: pass as `after` to continue
}

// PermitRequest is what a call costs. Its fields are another spelling of headers.
type PermitRequest struct {
	Cost json.Number `json:"cost,omitempty"`
	// by the name of a limit with its own cost
	Costs    map[string]json.Number `json:"costs,omitempty"`
	Priority json.Number            `json:"priority,omitempty"`
}

// Permit permits one call.
type Permit struct {
	Permit string `json:"permit"`
	// the permit expires this long after its last `PUT`, which frees its place but not its cost; 0:
	// report the end only if it pauses the bucket
	LeaseMS int64 `json:"lease_ms"`
	// begin the call within this time of the answer
	StartWithinMS int64 `json:"start_within_ms"`
	// a limit has `count_from: answer`, so report `answered`; without an answer the call counts for
	// so long after its end
	MaxDelayMS int64 `json:"max_delay_ms,omitempty"`
}

// Settlement says how a call goes, or how it ended.
type Settlement struct {
	// a claimant's status: `progress` renews the lease, and with `retry_after_ms` pauses the bucket
	// during the call; `answered` renews it when the answer's header has come; `unreached` is
	// `unavailable` for a call that never reached the target. Or the HTTP status of the target's
	// answer
	Status any    `json:"status"`
	Error  string `json:"error,omitempty"`
	// for limits with `count_from: answer`: whether the target has answered, or got no request. By
	// default an HTTP status is an answer, except 408, 499, 502, 503, 504 and 520 to 529, and
	// `fail` and `unavailable` have none unless `answered` came before
	Answer string `json:"answer,omitempty"`
	// how long the target wants no further requests
	RetryAfterMS int64            `json:"retry_after_ms,omitempty"`
	Used         map[string]int64 `json:"used,omitempty"` // actual costs, by name
	// the answer's rate-limit headers, such as `X-RateLimit-Remaining`; an exhausted limit pauses
	// the bucket
	Headers map[string]string `json:"headers,omitempty"`
}
