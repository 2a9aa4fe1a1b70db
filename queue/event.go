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

	// The target of the job's bucket is down: nothing starts but a probe now and then, and no
	// attempt counts; and it is back.
	EventBreakerOpened = "breaker_opened"
	EventBreakerClosed = "breaker_closed"

	// EventAdapted says that a bucket has lowered its rate, because the target throttled.
	EventAdapted = "adapted"

	// A tick of a schedule met a full bucket, and is tried again; and it became no job, because the
	// schedule ticks again or its job cannot be. Reason says why.
	EventScheduleRefused = "schedule_refused"
	EventScheduleMissed  = "schedule_missed"

	// The outcome of a job will not be posted to the URL that its submitter named. Reason says why:
	// full, because the queue of the callbacks is, or refused.
	EventCallbackLost = "callback_lost"

	// An auditor saw starts that broke a limit; Reason says which, and by what.
	EventLimitBroken = "limit_broken"
)

// Event is one step of a job, as it is published on penstock.event.<policy>.<key>. Events are core
// NATS messages: a client that does not listen at that moment misses them, and a crash may swallow
// some. Count with metrics, keep books with outcomes of your own; events are for watching. A
// process that publishes more than 1,000 a second of one policy leaves the rest out while nobody
// listens, and notices a listener within half a second.
type Event struct {
	V    int     `json:"v"`
	Type string  `json:"type"`
	Job  string  `json:"job"` // "<policy>:<stream sequence>"
	Key  job.Key `json:"key"`
	// Tags are the job's; missing where who tells has its headers no longer at hand.
	Tags       []string `json:"tags,omitempty"`
	Attempt    int      `json:"attempt,omitempty"`     // 1 is the first
	WaitMS     int64    `json:"wait_ms,omitempty"`     // started: since the job was accepted
	DurationMS int64    `json:"duration_ms,omitempty"` // done, failed, throttled: of the attempt
	Reason     string   `json:"reason,omitempty"`      // dead: why
	Error      string   `json:"error,omitempty"`
	// PauseMS is for how long the bucket starts nothing: done, failed or dead, because the target
	// said that nothing is left of what it allows; throttled, because it asked for it, missing when
	// it named no time.
	PauseMS int64 `json:"pause_ms,omitempty"`
	// Outflow is the rate of now, in starts per second: adapted.
	Outflow float64 `json:"outflow,omitempty"`
	// All says that the breaker is not the bucket's own, but that of all buckets of the policy
	// whose valve is in the same drainer.
	All bool `json:"all,omitempty"`

	// At is the instant of a start: that of its last check, by the drainer's clock. Cost and Costs
	// are what it takes of limits, where that is not one; Used is what an attempt told that it
	// cost.
	At    time.Time        `json:"at,omitzero"`
	Cost  int64            `json:"cost,omitempty"`
	Costs map[string]int64 `json:"costs,omitempty"`
	Used  map[string]int64 `json:"used,omitempty"`
	// Shadow is by how many milliseconds limits would have delayed a start that hold nothing back.
	Shadow map[string]int64 `json:"shadow,omitempty"`

	// Accepted and Reply are for the history of the policy: when the job was stored, and what ran
	// it had to say. They are not published.
	Accepted time.Time  `json:"-"`
	Reply    *job.Reply `json:"-"`

	// From is the process that tells, and N the number of this event among all that it had to tell
	// of the policy: what is missing was lost, or left out while nobody listened.
	From string `json:"from,omitempty"`
	N    uint64 `json:"n,omitempty"`
}

// Event is where the events of a bucket are published; ">" for a key and "*" for a policy are
// NATS's wildcards.
func (n Names) Event(policy string, k job.Key) string {
	return n.lower + ".event." + policy + "." + string(k)
}

// events makes publishing cheap while nobody listens: core NATS drops such messages,
// but only after both sides have worked for them. The first event of a policy in each period is
// sent as a request, and the server answers at once when nobody subscribes to its subject.
type events struct {
	once    sync.Once
	inbox   string // with its last dot; a policy's name follows
	process string // an id of this process
	mu      sync.Mutex
	gates   map[string]*gate
}

// gate is one policy's.
type gate struct {
	since  time.Time // of the period
	told   int       // events in it
	denied bool      // the server said in it that nobody listens
	nobody bool      // and it said so when it was last asked

	telling sync.Mutex // events are published in the order of their numbers
	number  uint64     // of the last event
	minute  minute     // what was counted since the last one was kept
}

const (
	gatePeriod = 250 * time.Millisecond
	gateFree   = 250 // events in a period that are published in any case
)

// admit decides whether an event is published, and whether as the period's request.
func (g *gate) admit(now time.Time) (publish, ask bool) {
	if past := now.Sub(g.since); past >= gatePeriod {
		g.nobody = g.denied && past < 2*gatePeriod // what was denied before a pause is no news
		g.since, g.told, g.denied = now, 0, false
	}
	g.told++
	return g.told <= gateFree || !g.nobody, g.told == 1
}

// deny notes the server's answer that nobody listens.
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

// gate returns a policy's.
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

// Tell publishes an event, without waiting for anything, and has the history of its policy keep a
// job that ended: see [Broker.KeepHistory].
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
