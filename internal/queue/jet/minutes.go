package jet

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/queue"
)

// Count is a quantity counted per policy and minute.
type Count int

// Counts of a minute.
const (
	CountAccepted Count = iota
	CountStarted
	countEnded // done, dead or cancelled
	CountDead
	CountRefused // by admitters, not by JetStream
	countLateMS  // delay of starts beyond the outflow
	countDepth   // most jobs held
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

// Tally counts what happens to the jobs of each policy in each minute of a day, in a stream, and in
// the last minute, which processes tell each other. It has one timer for all policies.
type Tally struct {
	js       *jsapi.Conn
	names    Names
	replicas int
	log      *slog.Logger
	process  string // told with its counts
	born     time.Time
	now      func() time.Time // time.Now, except in a test

	once     sync.Once
	armed    atomic.Bool // the timer
	mu       sync.Mutex
	policies map[string]*policyCounts
}

type policyCounts struct {
	mu     sync.Mutex
	minute minute // since the last stored minute
	recent recent
}

// Tally returns what counts.
func (b *Broker) Tally() *Tally { return b.tally }

func newTally(js *jsapi.Conn, names Names, replicas int, log *slog.Logger) *Tally {
	return &Tally{js: js, names: names, replicas: replicas, log: log, process: rand.Text()[:12],
		born: time.Now(), now: time.Now, policies: map[string]*policyCounts{}}
}

// countedBy has the counts of published events.
var countedBy = map[string][]Count{
	queue.EventAccepted:  {CountAccepted},
	queue.EventStarted:   {CountStarted},
	queue.EventDead:      {CountDead, countEnded},
	queue.EventDone:      {CountDone, countEnded},
	queue.EventCancelled: {CountCancelled, countEnded},
	queue.EventFailed:    {CountFailed},
	queue.EventThrottled: {CountThrottled},
}

// Count adds n to a count of this minute; countDepth keeps the maximum.
func (t *Tally) Count(policy string, what Count, n int64) {
	p := t.of(policy)
	p.mu.Lock()
	defer p.mu.Unlock()
	now := t.now()
	if what != countLateMS && what != countDepth {
		p.recent.add(now, what)
	}
	if what >= counts {
		return
	}
	if p.minute.At == 0 {
		p.minute.At = now.Unix() / 60
		if t.armed.CompareAndSwap(false, true) {
			time.AfterFunc(now.Truncate(time.Minute).Add(time.Minute).Sub(now), t.KeepMinutes)
		}
	}
	p.minute.add(what, n)
}

func (t *Tally) of(policy string) *policyCounts {
	t.tellOthers()
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.policies[policy]
	if p == nil {
		p = &policyCounts{}
		t.policies[policy] = p
	}
	return p
}

func (t *Tally) all() map[string]*policyCounts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.policies)
}

func (m *minute) add(what Count, n int64) {
	if what == countDepth {
		m.N[what] = max(m.N[what], n)
	} else {
		m.N[what] += n
	}
}

// KeepMinutes stores the pending counts or drops them. It runs every minute; also call it before
// the connection closes.
func (t *Tally) KeepMinutes() {
	taken := map[string]minute{}
	t.armed.Store(false)
	for policy, p := range t.all() {
		p.mu.Lock()
		if p.minute.At != 0 {
			taken[policy], p.minute = p.minute, minute{}
		}
		p.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*t.js.Timeout)
	defer cancel()
	for policy, m := range taken {
		m.V = job.FormatVersion
		if err := t.keep(ctx, policy, m); err != nil {
			t.log.Debug("the counts of a minute are not kept", "policy", policy, "error", err)
			return
		}
	}
}

func (t *Tally) keep(ctx context.Context, policy string, m minute) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return record(ctx, t.js, t.names.minute(policy), body, recordConfig(t.replicas,
		t.names.minutesStream(), t.names.minute("*"),
		"what happened to the jobs of each policy in each minute of a day",
		jetstream.StreamConfig{MaxAge: minutesKept, MaxMsgs: mostMinutes}))
}

// Day returns the counts of a policy, summed over all processes.
func (t *Tally) Day(ctx context.Context, policy string) (api.Day, error) {
	end := t.now().Unix() / 60
	kept := map[int64]*minute{}
	first := end
	for r, err := range t.js.Messages(ctx, t.names.minutesStream(), t.names.minute(policy), 1,
		1000) {
		if errors.Is(err, ErrNoStream) {
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

// Recents returns this process's counts. They run always, with or without listeners.
func (t *Tally) Recents() Recents {
	t.tellOthers()
	now := t.now()
	all := Recents{V: job.FormatVersion, From: t.process, Policies: map[string]Recent{},
		ForMS: min(now.Sub(t.born), RecentTime).Milliseconds()}
	for policy, p := range t.all() {
		p.mu.Lock()
		sum, some := p.recent.sum(now)
		p.mu.Unlock()
		if some {
			all.Policies[policy] = sum
		}
	}
	return all
}

func (n Names) recent() string { return n.lower + ".recent" }

// tellOthers answers their questions from now on.
func (t *Tally) tellOthers() {
	t.once.Do(func() {
		if _, err := t.js.NATS.Subscribe(t.names.recent(), t.tellRecents); err != nil {
			t.log.Debug("counts of the last minute are not told", "error", err)
		}
	})
}

func (t *Tally) tellRecents(m *nats.Msg) {
	all := t.Recents()
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
		t.log.Debug("counts of the last minute not told", "error", err)
	}
}

// ListenRecents calls heard with the counts of each other process of the installation, after each
// ask, until stop.
func (t *Tally) ListenRecents(heard func(Recents)) (ask func() error, stop func(), err error) {
	t.tellOthers()
	nc := t.js.NATS
	inbox := nc.NewInbox()
	sub, err := nc.Subscribe(inbox, func(m *nats.Msg) {
		var all Recents
		if m.Header.Get("Status") != "" {
			return // no other process
		}
		if err := json.Unmarshal(m.Data, &all); err != nil || all.V != job.FormatVersion {
			t.log.Debug("counts of another format", "error", err)
		} else if all.From != t.process {
			heard(all)
		}
	})
	if err != nil {
		return nil, nil, jsapi.Translate(err)
	}
	return func() error { return nc.PublishRequest(t.names.recent(), inbox, nil) },
		func() { _ = sub.Unsubscribe() }, nil
}
