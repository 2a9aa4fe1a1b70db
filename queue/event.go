// Package queue has what programs see of queued jobs: their keys, results and events. The queues
// themselves are streams of NATS JetStream; package embedded has a server in the process.
package queue

import "time"

// The published types of an [Event].
const (
	EventAccepted  = "accepted" // stored, and seen by its valve
	EventStarted   = "started"  // an attempt began
	EventProgress  = "progress" // of a running attempt
	EventDone      = "done"
	EventFailed    = "failed"    // an attempt failed; there may be more
	EventThrottled = "throttled" // the target asked for a pause; not an attempt
	EventDead      = "dead"
	EventCancelled = "cancelled" // by an operator

	// The bucket's target is down, so only probes start and no attempt counts; it is back.
	EventBreakerOpened = "breaker_opened"
	EventBreakerClosed = "breaker_closed"

	EventAdapted = "adapted"

	// A tick of a schedule met a full bucket and will be retried; a tick was dropped, for this
	// Reason.
	EventScheduleRefused = "schedule_refused"
	EventScheduleMissed  = "schedule_missed"

	// The outcome of a job will not be posted to its callback. Reason: full or refused.
	EventCallbackLost = "callback_lost"

	// An auditor saw starts that broke a limit: see Reason.
	EventLimitBroken = "limit_broken"
)

// EventTypes are the types of events that go over NATS.
var EventTypes = []string{EventAccepted, EventStarted, EventProgress, EventDone, EventFailed,
	EventThrottled, EventDead, EventCancelled, EventBreakerOpened, EventBreakerClosed, EventAdapted,
	EventLimitBroken, EventScheduleRefused, EventScheduleMissed, EventCallbackLost}

// Sink takes events, from many goroutines, and returns at once. Only existing policies are named,
// which bounds the number of metric series.
type Sink interface{ Take(Event) }

// SinkFunc makes a function a [Sink].
type SinkFunc func(Event)

// Take calls f.
func (f SinkFunc) Take(e Event) { f(e) }

// Sinks passes events on to several sinks, which may be nil.
type Sinks []Sink

// Take passes e on.
func (s Sinks) Take(e Event) {
	for _, one := range s {
		if one != nil {
			one.Take(e)
		}
	}
}

// Event is mostly a step of a job. [EventTypes] are published on penstock.event.<policy>.<key>, in
// core NATS: only listeners get them, and a crash may lose some, so use metrics for counts. Above
// 1,000 events a second of one policy, a process omits the rest without a listener, and notices a
// new one within half a second.
type Event struct {
	V    int    `json:"v"`
	Type string `json:"type"`
	Job  string `json:"job"` // <policy>:<sequence>
	Key  Key    `json:"key"`
	// Tags are missing if the publisher no longer has the job's headers.
	Tags       []string `json:"tags,omitempty"`
	Attempt    int      `json:"attempt,omitempty"` // 1 is the first
	WaitMS     int64    `json:"wait_ms,omitempty"` // started: since the job was accepted
	DurationMS int64    `json:"duration_ms,omitempty"`
	Reason     string   `json:"reason,omitempty"`
	Error      string   `json:"error,omitempty"`
	Progress   string   `json:"progress,omitempty"`
	// PauseMS is the pause of the bucket's starts: the target throttled (0: without a duration) or
	// reported an exhausted quota.
	PauseMS int64   `json:"pause_ms,omitempty"`
	Outflow float64 `json:"outflow,omitempty"`
	// All: the breaker covers all buckets of the policy in this drainer.
	All bool `json:"all,omitempty"`

	// At is when a start was last checked, by the drainer's clock. Cost and Costs are the start's
	// unless 1, Used the attempt's.
	At    time.Time        `json:"at,omitzero"`
	Cost  int64            `json:"cost,omitempty"`
	Costs map[string]int64 `json:"costs,omitempty"`
	Used  map[string]int64 `json:"used,omitempty"`
	// The end of a run has its start's At as Started if a limit counts from the answer, unless no
	// request was sent. AnswerMS is the time from then to the answer; without one, to max_delay
	// after the end.
	Started  time.Time `json:"started,omitzero"`
	AnswerMS int64     `json:"answer_ms,omitempty"`
	// Shadow has the delay, in milliseconds, by each shadow limit.
	Shadow map[string]int64 `json:"shadow,omitempty"`

	// Not published. Accepted is when the job was stored, Trace the id of its sampled trace, For
	// how late it started, Answer whether the run's request was answered. The types describe the
	// others.
	Policy   string              `json:"-"`
	Header   map[string][]string `json:"-"`
	Accepted time.Time           `json:"-"`
	Reply    *Reply              `json:"-"`
	Trace    string              `json:"-"`
	Name     string              `json:"-"`
	Answer   string              `json:"-"`
	For      time.Duration       `json:"-"`
	Value    int64               `json:"-"`
	Data     any                 `json:"-"`

	// From is the publishing process, and N numbers its events of the policy. A missing number was
	// lost, or omitted without a listener.
	From string `json:"from,omitempty"`
	N    uint64 `json:"n,omitempty"`
}
