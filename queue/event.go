package queue

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

// What an [Event] can tell.
const (
	EventAccepted  = "accepted"  // the job is stored, and its valve has seen it
	EventStarted   = "started"   // an attempt began
	EventDone      = "done"      // the job is finished
	EventFailed    = "failed"    // an attempt failed; there may be more
	EventThrottled = "throttled" // the target asked for a pause; no attempt was counted
	EventDead      = "dead"      // the job became a dead letter
	EventCancelled = "cancelled" // an operator dropped the job
)

// Event is one step of a job, as it is published on penstock.event.<policy>.<key>. Events are core NATS messages: who
// does not listen at that moment misses them, and a crash may swallow some. Count with metrics, keep books with outcomes
// of your own; events are for watching.
type Event struct {
	V          int    `json:"v"`
	Type       string `json:"type"`
	Job        string `json:"job"` // "<policy>:<stream sequence>"
	Key        Key    `json:"key"`
	Attempt    int    `json:"attempt,omitempty"`     // 1 is the first
	WaitMS     int64  `json:"wait_ms,omitempty"`     // started: since the job was accepted
	DurationMS int64  `json:"duration_ms,omitempty"` // done, failed, throttled: of the attempt
	Reason     string `json:"reason,omitempty"`      // dead: why
	Error      string `json:"error,omitempty"`
}

// Event is where the events of a bucket are published; ">" for a key and "*" for a policy are NATS's wildcards.
func (n Names) Event(policy string, k Key) string {
	return n.lower + ".event." + policy + "." + string(k)
}

// Tell publishes an event, without waiting for anything.
func (b *Broker) Tell(policy string, e Event) {
	e.V = formatVersion
	body, err := json.Marshal(e)
	if err == nil {
		err = b.nc.Publish(b.names.Event(policy, e.Key), body)
	}
	if err != nil {
		b.log.Debug("event not published", "policy", policy, "type", e.Type, "error", err)
	}
}

// Listen calls heard for each event of a policy ("*": of all) and a key (">": of all), one at a time, until stop is called.
func (b *Broker) Listen(policy string, k Key, heard func(policy string, e Event)) (stop func(), err error) {
	prefix := len(b.names.lower + ".event.")
	sub, err := b.nc.Subscribe(b.names.Event(policy, k), func(m *nats.Msg) {
		var e Event
		if err := json.Unmarshal(m.Data, &e); err != nil || e.V != formatVersion {
			b.log.Debug("event of another format", "subject", m.Subject, "error", err)
			return
		}
		name, _, _ := strings.Cut(m.Subject[prefix:], ".")
		heard(name, e)
	})
	if err != nil {
		return nil, fmt.Errorf("listen to events of %s: %w", policy, translate(err))
	}
	return func() { _ = sub.Unsubscribe() }, nil
}
