package api

import "time"

// Event is mostly a step of a job. Events of one process have consecutive ids, except for filtered
// ones.
type Event struct {
	ID         string    `json:"-"`
	At         time.Time `json:"at"`
	Type       string    `json:"type"`
	Policy     string    `json:"policy"`
	Key        string    `json:"key"`
	Job        string    `json:"job,omitempty"`
	Tags       []string  `json:"tags,omitempty"`
	Attempt    int       `json:"attempt,omitempty"` // 1 is the first
	WaitMS     int64     `json:"wait_ms,omitempty"` // started: since the job was accepted
	DurationMS int64     `json:"duration_ms,omitempty"`
	// dead: the dead letter's reason; limit_broken: the limit
	Reason   string  `json:"reason,omitempty"`
	Error    string  `json:"error,omitempty"`
	Progress string  `json:"progress,omitempty"` // the worker's report
	PauseMS  int64   `json:"pause_ms,omitempty"` // length of the pause
	Outflow  float64 `json:"outflow,omitempty"`  // adapted: the new rate in starts per second
	All      bool    `json:"all,omitempty"`      // the breaker covers all buckets
}

// Stats is the last minute of the policies with activity.
type Stats struct {
	// how far back the counts of all processes go; at most a minute
	WindowMS int64 `json:"window_ms"`
	// how far back quantiles, keys and shadow limits go
	WatchedMS int64  `json:"watched_ms"`
	Policies  []Stat `json:"policies"`
}

// Stat is the last minute of a policy.
type Stat struct {
	Policy    string `json:"policy"`
	Accepted  int64  `json:"accepted"`
	Started   int64  `json:"started"`
	Done      int64  `json:"done"`
	Failed    int64  `json:"failed"` // failed attempts
	Throttled int64  `json:"throttled"`
	Dead      int64  `json:"dead"`
	Cancelled int64  `json:"cancelled"`

	Refused       int64 `json:"refused"` // jobs and calls, by admitters, not by JetStream
	ChecksAllowed int64 `json:"checks_allowed"`
	ChecksRefused int64 `json:"checks_refused"`

	// the keys this admitter checks most often; only with the query parameter `keys`
	Keys []KeyStat `json:"keys,omitempty"`
	// effect of shadow limits, by name
	Shadow map[string]Shadow `json:"shadow,omitempty"`

	Rate     float64    `json:"rate"` // starts per second
	Wait     *Quantiles `json:"wait_ms,omitempty"`
	Duration *Quantiles `json:"duration_ms,omitempty"`
	// starts in each second, oldest first; every two of them are a measured sum
	Starts []int64 `json:"starts"`
}

// KeyStat counts the checks of a key.
type KeyStat struct {
	Key     string `json:"key"`
	Allowed int64  `json:"allowed"`
	Refused int64  `json:"refused"`
	More    int64  `json:"more,omitempty"` // maximum number of further checks of this key
}

// Shadow is the effect that a shadow limit would have had.
type Shadow struct {
	Over int64 `json:"over"`  // requests or starts it would have refused or delayed
	ByMS int64 `json:"by_ms"` // total delay
}

// Quantiles are in milliseconds, at most an eighth too large.
type Quantiles struct {
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
}

// Day has a policy's job counts per minute over the last day.
type Day struct {
	From time.Time `json:"from"` // start of the first minute with counts
	// one number per complete minute since `from`
	Counts map[string][]int64 `json:"counts"`
}

// Drainer is a drainer as of its lease's last renewal.
type Drainer struct {
	ID        string    `json:"id"`
	Host      string    `json:"host,omitempty"`
	PID       int       `json:"pid,omitempty"`
	Version   string    `json:"version,omitempty"`
	StartedAt time.Time `json:"started_at,omitzero"`
	Alive     bool      `json:"alive"` // its lease is valid
	LeaseMS   int64     `json:"lease_ms"`
	AgeMS     int64     `json:"lease_age_ms"` // since renewal, by JetStream's clock
	Draining  bool      `json:"draining"`     // it is handing over its partitions
	// the policies that it may own or has workers for
	Policies map[string]DrainerPolicy `json:"policies"`
	// shared limits whose state it keeps
	SharedLimits []string `json:"shared_limits,omitempty"`
	Unreadable   bool     `json:"unreadable,omitempty"` // the lease has another format version
}

// DrainerPolicy is a drainer's part in a policy.
type DrainerPolicy struct {
	Owned   []int `json:"owned"`   // partitions, ascending
	Workers int   `json:"workers"` // its own; 0: only remote ones
	Busy    int   `json:"busy"`    // also with jobs of other drainers' valves
	Free    int   `json:"free"`
}

// Drainers is the drainers with a lease.
type Drainers struct {
	Drainers []Drainer `json:"drainers"`
}
