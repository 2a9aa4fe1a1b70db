package queue

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

// The types of an [Event].
const (
	EventAccepted  = "accepted"  // the job is stored, and its valve has seen it
	EventStarted   = "started"   // an attempt began
	EventDone      = "done"      // the job is finished
	EventFailed    = "failed"    // an attempt failed; there may be more
	EventThrottled = "throttled" // the target asked for a pause; no attempt was counted
	EventDead      = "dead"      // the job became a dead letter
	EventCancelled = "cancelled" // an operator dropped the job

	// The target of the job's bucket is down: nothing starts except occasional probes, and no
	// attempt counts; and the target is back.
	EventBreakerOpened = "breaker_opened"
	EventBreakerClosed = "breaker_closed"

	// EventAdapted: the bucket lowered its rate because the target throttled.
	EventAdapted = "adapted"

	// A tick of a schedule met a full bucket and will be retried; and a tick was dropped, because
	// the schedule ticks again or its job is invalid. Reason gives the cause.
	EventScheduleRefused = "schedule_refused"
	EventScheduleMissed  = "schedule_missed"

	// The outcome of a job will not be posted to its submitter's URL. Reason gives the cause: full
	// (the callback queue is full) or refused.
	EventCallbackLost = "callback_lost"

	// An auditor saw starts that broke a limit; Reason names the limit and the excess.
	EventLimitBroken = "limit_broken"
)

// Event is one step of a job, as published on penstock.event.<policy>.<key>. Events are core NATS
// messages for watching: a client misses events while it does not listen, and a crash may lose
// some. For counts use metrics; for accounting keep your own records of outcomes. A process that
// publishes more than 1,000 events a second of one policy leaves out the rest while there is no
// listener, and notices a new listener within half a second.
type Event struct {
	V    int     `json:"v"`
	Type string  `json:"type"`
	Job  string  `json:"job"` // "<policy>:<stream sequence>"
	Key  job.Key `json:"key"`
	// Tags are the job's; missing where the publisher no longer has its headers.
	Tags       []string `json:"tags,omitempty"`
	Attempt    int      `json:"attempt,omitempty"`     // 1 is the first
	WaitMS     int64    `json:"wait_ms,omitempty"`     // started: since the job was accepted
	DurationMS int64    `json:"duration_ms,omitempty"` // done, failed, throttled: of the attempt
	Reason     string   `json:"reason,omitempty"`      // dead: why
	Error      string   `json:"error,omitempty"`
	// PauseMS is how long the bucket starts nothing. On done, failed or dead: the target reported
	// an exhausted quota. On throttled: the target asked for a pause; missing if it gave no
	// duration.
	PauseMS int64 `json:"pause_ms,omitempty"`
	// Outflow is the new rate in starts per second: adapted.
	Outflow float64 `json:"outflow,omitempty"`
	// All means that the breaker covers all buckets of the policy in the same drainer, not only
	// this bucket.
	All bool `json:"all,omitempty"`

	// At is the time of the last check before a start, by the drainer's clock. Cost and Costs are
	// the start's cost under the limits, where it is not 1; Used is the cost that the attempt
	// reported.
	At    time.Time        `json:"at,omitzero"`
	Cost  int64            `json:"cost,omitempty"`
	Costs map[string]int64 `json:"costs,omitempty"`
	Used  map[string]int64 `json:"used,omitempty"`
	// Shadow holds, per shadow limit, the milliseconds by which it would have delayed the start.
	Shadow map[string]int64 `json:"shadow,omitempty"`

	// Accepted and Reply are for the policy's history: when the job was stored, and the reply of
	// its run. They are not published.
	Accepted time.Time  `json:"-"`
	Reply    *job.Reply `json:"-"`

	// From is the publishing process, and N numbers its events of the policy: a missing number was
	// lost, or left out while there was no listener.
	From string `json:"from,omitempty"`
	N    uint64 `json:"n,omitempty"`
}

// Event is the subject of a bucket's events; ">" as the key and "*" as the policy are NATS
// wildcards.
func (n Names) Event(policy string, k job.Key) string {
	return n.lower + ".event." + policy + "." + string(k)
}

// events makes publishing cheap while there is no listener: core NATS drops such messages, but
// only after both sides have done work for them. The first event of a policy in each period is
// sent as a request, which the server refuses at once when its subject has no subscriber.
type events struct {
	once    sync.Once
	inbox   string // with its trailing dot; a policy's name follows
	process string // an id of this process
	mu      sync.Mutex
	gates   map[string]*gate
}

// gate holds the publishing state of one policy.
type gate struct {
	since  time.Time // start of the period
	told   int       // events in it
	denied bool      // the server reported no listener in this period
	nobody bool      // the server's latest report: no listener

	telling sync.Mutex // publishes events in the order of their numbers
	number  uint64     // of the last event
	minute  minute     // counts since the last stored minute
}

const (
	gatePeriod = 250 * time.Millisecond
	gateFree   = 250 // events of a period that are published in any case
)

// admit reports whether to publish an event, and whether to send it as the period's request.
func (g *gate) admit(now time.Time) (publish, ask bool) {
	if past := now.Sub(g.since); past >= gatePeriod {
		g.nobody = g.denied && past < 2*gatePeriod // a report from before a pause is outdated
		g.since, g.told, g.denied = now, 0, false
	}
	g.told++
	return g.told <= gateFree || !g.nobody, g.told == 1
}

// deny records the server's report of no listener.
func (b *Broker) deny(m *nats.Msg) {
	if m.Header.Get("Status") != "503" {
		return // a listener answered, which it need not
	}
	e := &b.events
	e.mu.Lock()
	defer e.mu.Unlock()
	if g := e.gates[m.Subject[len(e.inbox):]]; g != nil {
		g.denied, g.nobody = true, true
	}
}

// gate returns a policy's gate.
func (b *Broker) gate(policy string) *gate {
	e := &b.events
	e.once.Do(func() {
		e.inbox, e.gates = b.nc.NewInbox()+".", map[string]*gate{}
		e.process = rand.Text()[:12]
		if _, err := b.nc.Subscribe(e.inbox+"*", b.deny); err != nil {
			b.log.Debug("events are published whether or not anybody listens", "error", err)
		}
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	g := e.gates[policy]
	if g == nil {
		g = &gate{}
		e.gates[policy] = g
	}
	return g
}

// Tell publishes an event without blocking and, for a job that ended, adds it to its policy's
// history: see [Broker.KeepHistory].
func (b *Broker) Tell(policy string, e Event) {
	b.chronicled(policy, e)
	g := b.gate(policy)
	g.telling.Lock()
	defer g.telling.Unlock()
	g.number++
	b.counted(g, e.Type)
	now := time.Now()
	b.events.mu.Lock()
	publish, ask := g.admit(now)
	b.events.mu.Unlock()
	if !publish {
		return
	}
	e.V, e.From, e.N = job.FormatVersion, b.events.process, g.number
	body, err := json.Marshal(e)
	switch subject := b.names.Event(policy, e.Key); {
	case err != nil:
	case ask:
		err = b.nc.PublishRequest(subject, b.events.inbox+policy, body)
	default:
		err = b.nc.Publish(subject, body)
	}
	if err != nil {
		b.log.Debug("event not published", "policy", policy, "type", e.Type, "error", err)
	}
}

// Listen calls heard for each event of a policy ("*": of all) and a key (">": of all), one at a
// time, until stop is called.
func (b *Broker) Listen(policy string, k job.Key,
	heard func(policy string, e Event)) (stop func(), err error) {
	prefix := len(b.names.lower + ".event.")
	sub, err := b.nc.Subscribe(b.names.Event(policy, k), func(m *nats.Msg) {
		var e Event
		if err := json.Unmarshal(m.Data, &e); err != nil || e.V != job.FormatVersion {
			b.log.Debug("event of another format", "subject", m.Subject, "error", err)
			return
		}
		name, _, _ := strings.Cut(m.Subject[prefix:], ".")
		heard(name, e)
	})
	if err != nil {
		return nil, fmt.Errorf("listen to events of %s: %w", policy, jsapi.Translate(err))
	}
	return func() { _ = sub.Unsubscribe() }, nil
}
