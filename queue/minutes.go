package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

// Count is something that is counted of a policy in each minute.
type Count int

const (
	CountAccepted Count = iota
	CountStarted
	CountEnded   // done, dead or cancelled
	CountDead    // became a dead letter
	CountRefused // by admitters; JetStream's refusals of plain publishes are not known
	CountLateMS  // by how much starts of all buckets became later than their outflow allowed
	CountDepth   // the most jobs that the policy held
	counts
)

// CountNames are what the API calls them.
var CountNames = [counts]string{"accepted", "started", "ended", "dead", "refused", "late_ms",
	"depth"}

const (
	// minutesKept and mostMinutes bound what is kept of all policies together: some 40 MB. A
	// policy takes two records a minute while it has jobs: of its drainer and of an admitter.
	minutesKept = 24 * time.Hour
	mostMinutes = 400_000
)

// minute is what one process has counted of a policy in one minute, as it is stored.
type minute struct {
	V  int           `json:"v"`
	At int64         `json:"at"` // in minutes since 1970
	N  [counts]int64 `json:"n"`
}

// minutes publishes what the gates of policies have counted. There is a timer only while there is
// something to publish, and one for all policies.
type minutes struct {
	armed atomic.Bool
	now   func() time.Time // nil: time.Now
}

func (m *minutes) time() time.Time {
	if m.now != nil {
		return m.now()
	}
	return time.Now()
}

// Count counts something of a policy in this minute.
func (b *Broker) Count(policy string, what Count, n int64) {
	g := b.gate(policy)
	g.telling.Lock()
	defer g.telling.Unlock()
	b.count(g, what, n)
}

// count is Count with the policy's gate, which is locked.
func (b *Broker) count(g *gate, what Count, n int64) {
	if g.minute.At == 0 {
		now := b.minutes.time()
		g.minute.At = now.Unix() / 60
		if b.minutes.armed.CompareAndSwap(false, true) {
			time.AfterFunc(now.Truncate(time.Minute).Add(time.Minute).Sub(now), b.KeepMinutes)
		}
	}
	if at := &g.minute.N[what]; what == CountDepth {
		*at = max(*at, n)
	} else {
		*at += n
	}
}

// counted counts an event, whether or not it is published. The gate is locked.
func (b *Broker) counted(g *gate, event string) {
	switch event {
	case EventAccepted:
		b.count(g, CountAccepted, 1)
	case EventStarted:
		b.count(g, CountStarted, 1)
	case EventDead:
		b.count(g, CountDead, 1)
		b.count(g, CountEnded, 1)
	case EventDone, EventCancelled:
		b.count(g, CountEnded, 1)
	}
}

// KeepMinutes stores what was counted and is not stored yet. It is called each minute; call it also
// before the connection is closed. What cannot be stored is forgotten.
func (b *Broker) KeepMinutes() {
	b.minutes.armed.Store(false)
	taken := map[string]minute{}
	b.events.mu.Lock()
	gates := make(map[string]*gate, len(b.events.gates))
	for policy, g := range b.events.gates {
		gates[policy] = g
	}
	b.events.mu.Unlock()
	for policy, g := range gates {
		g.telling.Lock()
		if g.minute.At != 0 {
			taken[policy] = g.minute
			g.minute = minute{}
		}
		g.telling.Unlock()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*jsapi.CallTimeout)
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
	publish := func() error {
		_, err := b.js.Publish(ctx, b.names.minute(policy), body, jetstream.WithRetryAttempts(0))
		return err
	}
	if err = publish(); !errors.Is(err, jetstream.ErrNoStreamResponse) {
		return err
	}
	err = b.js.Ensure(ctx, jetstream.StreamConfig{
		Name:        b.names.minutesStream(),
		Description: "Penstock: what happened to the jobs of each policy in each minute of a day",
		Subjects:    []string{b.names.minute("*")},
		Retention:   jetstream.LimitsPolicy,
		Storage:     jetstream.FileStorage,
		Discard:     jetstream.DiscardOld,
		MaxAge:      minutesKept,
		MaxMsgs:     mostMinutes,
		MaxBytes:    -1,
		Replicas:    b.replicas,
		AllowDirect: true,
	})
	if err != nil {
		return err
	}
	return publish()
}

// Day is what happened to the jobs of a policy in each minute of the last day.
type Day struct {
	From time.Time `json:"from"` // the begin of the first minute; those without counts go before
	// Counts has a number for each minute from From on, by the names in [CountNames]. The minute
	// that is not over yet is left out.
	Counts map[string][]int64 `json:"counts"`
}

// Day returns what was counted of a policy, by all processes together.
func (b *Broker) Day(ctx context.Context, policy string) (Day, error) {
	end := b.minutes.time().Unix() / 60
	kept := map[int64]*minute{}
	first := end
	for from := uint64(1); ; {
		// The batch ends where the server has no more, or after so many bytes.
		read, err := b.js.Batch(ctx, b.names.minutesStream(), b.names.minute(policy), from, 1000)
		if errors.Is(err, ErrUnavailable) && b.noMinutes(ctx) {
			break
		}
		if err != nil {
			return Day{}, fmt.Errorf("minutes of %s: %w", policy, err)
		}
		if len(read) == 0 {
			break
		}
		for _, r := range read {
			from = r.Seq + 1
			var m minute
			if json.Unmarshal(r.Data, &m) != nil || m.V != job.FormatVersion || m.At >= end ||
				m.At < end-int64(minutesKept/time.Minute) {
				continue
			}
			first = min(first, m.At)
			sum := kept[m.At]
			if sum == nil {
				sum = &minute{}
				kept[m.At] = sum
			}
			for what, n := range m.N {
				if Count(what) == CountDepth {
					sum.N[what] = max(sum.N[what], n)
				} else {
					sum.N[what] += n
				}
			}
		}
	}
	day := Day{From: time.Unix(first*60, 0).UTC(), Counts: map[string][]int64{}}
	for what, name := range CountNames {
		numbers := make([]int64, end-first)
		for at, m := range kept {
			numbers[at-first] = m.N[what]
		}
		day.Counts[name] = numbers
	}
	return day, nil
}

// noMinutes reports whether nothing was ever kept.
func (b *Broker) noMinutes(ctx context.Context) bool {
	_, err := b.js.StreamInfo(ctx, b.names.minutesStream(), "")
	return jsapi.HasCode(err, jsapi.CodeStreamNotFound)
}
