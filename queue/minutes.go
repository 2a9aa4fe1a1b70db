package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/queue/job"
)

// Count is a quantity counted per policy and minute.
type Count int

// Counts of a minute.
const (
	CountAccepted Count = iota
	CountStarted
	CountEnded // done, dead or cancelled
	CountDead
	CountRefused // by admitters, not by JetStream
	CountLateMS  // delay of starts beyond the outflow
	CountDepth   // most jobs held
	counts
)

// Counts of the last minute only.
const (
	CountDone = counts + iota
	CountFailed
	CountThrottled
	CountCancelled
	CountAllowed // checks of this process
	CountDenied
	// CountAdmitted has this process's jobs. CountAccepted has everybody's, except those that were
	// stored before their valve looked.
	CountAdmitted
	Counts
)

// CountNames are the names in [api.Day].
var CountNames = [counts]string{"accepted", "started", "ended", "dead", "refused", "late_ms",
	"depth"}

const (
	// Together these take about 40 MB. A policy adds two records a minute while it has jobs.
	minutesKept = 24 * time.Hour
	mostMinutes = 400_000
)

type minute struct {
	V  int           `json:"v"`
	At int64         `json:"at"` // in minutes since 1970
	N  [counts]int64 `json:"n"`
}

// minutes stores the counts held by the gates, with one timer for all.
type minutes struct {
	armed atomic.Bool
	born  time.Time
	now   func() time.Time // time.Now, except in a test
}

// Count adds n to a count of this minute; CountDepth keeps the maximum.
func (b *Broker) Count(policy string, what Count, n int64) {
	g := b.gate(policy)
	g.telling.Lock()
	defer g.telling.Unlock()
	b.count(g, what, n)
}

func (b *Broker) count(g *gate, what Count, n int64) {
	now := b.minutes.now()
	if what != CountLateMS && what != CountDepth {
		g.recent.add(now, what)
	}
	if what >= counts {
		return
	}
	if g.minute.At == 0 {
		g.minute.At = now.Unix() / 60
		if b.minutes.armed.CompareAndSwap(false, true) {
			time.AfterFunc(now.Truncate(time.Minute).Add(time.Minute).Sub(now), b.KeepMinutes)
		}
	}
	g.minute.add(what, n)
}

func (m *minute) add(what Count, n int64) {
	if what == CountDepth {
		m.N[what] = max(m.N[what], n)
	} else {
		m.N[what] += n
	}
}

func (b *Broker) counted(g *gate, event string) {
	switch event {
	case EventAccepted:
		b.count(g, CountAccepted, 1)
	case EventStarted:
		b.count(g, CountStarted, 1)
	case EventDead:
		b.count(g, CountDead, 1)
		b.count(g, CountEnded, 1)
	case EventDone:
		b.count(g, CountDone, 1)
		b.count(g, CountEnded, 1)
	case EventCancelled:
		b.count(g, CountCancelled, 1)
		b.count(g, CountEnded, 1)
	case EventFailed:
		b.count(g, CountFailed, 1)
	case EventThrottled:
		b.count(g, CountThrottled, 1)
	}
}

// KeepMinutes stores the pending counts or drops them. It runs every minute; also call it before
// the connection closes.
func (b *Broker) KeepMinutes() {
	b.minutes.armed.Store(false)
	taken := map[string]minute{}
	b.events.mu.Lock()
	gates := maps.Clone(b.events.gates)
	b.events.mu.Unlock()
	for policy, g := range gates {
		g.telling.Lock()
		if g.minute.At != 0 {
			taken[policy] = g.minute
			g.minute = minute{}
		}
		g.telling.Unlock()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*b.js.Timeout)
	defer cancel()
	for policy, m := range taken {
		m.V = job.FormatVersion
		if err := b.keepMinute(ctx, policy, m); err != nil {
			b.log.Debug("the counts of a minute are not kept", "policy", policy, "error", err)
			return
		}
	}
}

func (b *Broker) keepMinute(ctx context.Context, policy string, m minute) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return b.record(ctx, b.names.minute(policy), body, b.recordConfig(b.names.minutesStream(),
		b.names.minute("*"), "what happened to the jobs of each policy in each minute of a day",
		jetstream.StreamConfig{MaxAge: minutesKept, MaxMsgs: mostMinutes}))
}

// record stores a record in a stream that discards old ones, and creates the stream if needed.
func (b *Broker) record(ctx context.Context, subject string, body []byte,
	stream jetstream.StreamConfig) error {

	m := &nats.Msg{Subject: subject, Data: body}
	_, err := b.js.Publish(ctx, m)
	if !errors.Is(err, nats.ErrNoResponders) {
		return err
	}
	stream.Discard, stream.MaxBytes = jetstream.DiscardOld, -1
	if err = b.js.Ensure(ctx, stream); err == nil {
		_, err = b.js.Publish(ctx, m)
	}
	return err
}

// Day returns the counts of a policy, summed over all processes.
func (b *Broker) Day(ctx context.Context, policy string) (api.Day, error) {
	end := b.minutes.now().Unix() / 60
	kept := map[int64]*minute{}
	first := end
	stream, subject := b.names.minutesStream(), b.names.minute(policy)
	for r, err := range b.js.Messages(ctx, stream, subject, 1, 1000) {
		if errors.Is(err, ErrUnavailable) && b.noMinutes(ctx) {
			break
		}
		if err != nil {
			return api.Day{}, fmt.Errorf("minutes of %s: %w", policy, err)
		}
		var m minute
		if json.Unmarshal(r.Data, &m) != nil || m.V != job.FormatVersion || m.At >= end ||
			m.At < end-int64(minutesKept/time.Minute) {
			continue
		}
		first = min(first, m.At)
		if kept[m.At] == nil {
			kept[m.At] = &minute{}
		}
		for what, n := range m.N {
			kept[m.At].add(Count(what), n)
		}
	}
	day := api.Day{From: time.Unix(first*60, 0).UTC(), Counts: map[string][]int64{}}
	for what, name := range CountNames {
		numbers := make([]int64, end-first)
		for at, m := range kept {
			numbers[at-first] = m.N[what]
		}
		day.Counts[name] = numbers
	}
	return day, nil
}

func (b *Broker) noMinutes(ctx context.Context) bool {
	_, err := b.js.StreamInfo(ctx, b.names.minutesStream(), "")
	return errors.Is(err, ErrNoStream)
}
