package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/queue/internal/jsapi"
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

// countNames are the names in [api.Day].
var countNames = [counts]string{"accepted", "started", "ended", "dead", "refused", "late_ms",
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
	for what, name := range countNames {
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

const (
	// RecentTime is how far counts of a [Recent] go back.
	RecentTime = time.Minute

	recentPart  = 2 // seconds
	recentParts = int(RecentTime/time.Second)/recentPart + 1
	// per answer, about 200 KB
	mostRecent = 1000
)

// Recent has a policy's counts of the last minute.
type Recent struct {
	N [Counts]int64 `json:"n"`
	// Starts are per two seconds, oldest first; the last part has begun.
	Starts [recentParts]int64 `json:"starts"`
}

// Add adds another process's counts.
func (r *Recent) Add(other Recent) {
	for what, n := range other.N {
		r.N[what] += n
	}
	for part, n := range other.Starts {
		r.Starts[part] += n
	}
}

// Recents are the counts of one process, or of all drainers and the admitter in one.
type Recents struct {
	V    int    `json:"v"`
	From string `json:"from"`
	// ForMS is how long the process has counted, at most a minute.
	ForMS    int64             `json:"for_ms"`
	Policies map[string]Recent `json:"policies"`
}

type recent [recentParts]struct {
	number int64
	n      [Counts]uint32
}

func (r *recent) add(now time.Time, what Count) {
	number := now.Unix() / recentPart
	p := &r[number%int64(recentParts)]
	if p.number != number {
		p.number, p.n = number, [Counts]uint32{}
	}
	p.n[what]++
}

func (r *recent) sum(now time.Time) (sum Recent, some bool) {
	first := now.Unix()/recentPart - int64(recentParts) + 1
	for _, p := range r {
		if p.number < first || p.number >= first+int64(recentParts) {
			continue
		}
		for what, n := range p.n {
			sum.N[what] += int64(n)
			some = some || n > 0
		}
		sum.Starts[p.number-first] = int64(p.n[CountStarted])
	}
	return sum, some
}

// Recents returns this broker's counts. They run always, with or without listeners.
func (b *Broker) Recents() Recents {
	e := b.told()
	e.mu.Lock()
	gates := maps.Clone(e.gates)
	e.mu.Unlock()
	now := b.minutes.now()
	all := Recents{V: job.FormatVersion, From: e.process, Policies: map[string]Recent{},
		ForMS: min(now.Sub(b.minutes.born), RecentTime).Milliseconds()}
	for policy, g := range gates {
		g.telling.Lock()
		sum, some := g.recent.sum(now)
		g.telling.Unlock()
		if some {
			all.Policies[policy] = sum
		}
	}
	return all
}

func (n Names) recent() string { return n.lower + ".recent" }

func (b *Broker) tellRecents(m *nats.Msg) {
	all := b.Recents()
	busiest := slices.SortedFunc(maps.Keys(all.Policies), func(x, y string) int {
		return cmp.Compare(all.Policies[y].N[CountAccepted], all.Policies[x].N[CountAccepted])
	})
	for _, policy := range busiest[min(mostRecent, len(busiest)):] {
		delete(all.Policies, policy)
	}
	body, err := json.Marshal(all)
	if err == nil {
		err = m.Respond(body)
	}
	if err != nil {
		b.log.Debug("counts of the last minute not told", "error", err)
	}
}

// ListenRecents calls heard with the counts of each other broker of the installation, after each
// ask, until stop.
func (b *Broker) ListenRecents(heard func(Recents)) (ask func() error, stop func(), err error) {
	process := b.told().process
	inbox := b.nc.NewInbox()
	sub, err := b.nc.Subscribe(inbox, func(m *nats.Msg) {
		var all Recents
		if m.Header.Get("Status") != "" {
			return // no other broker
		}
		if err := json.Unmarshal(m.Data, &all); err != nil || all.V != job.FormatVersion {
			b.log.Debug("counts of another format", "error", err)
		} else if all.From != process {
			heard(all)
		}
	})
	if err != nil {
		return nil, nil, jsapi.Translate(err)
	}
	return func() error { return b.nc.PublishRequest(b.names.recent(), inbox, nil) },
		func() { _ = sub.Unsubscribe() }, nil
}
