// Package audit independently checks the start rate of jobs: it receives every start of all
// drainers, and keeps the fullest window of each limit.
//
//	auditor := audit.New(broker, audit.Options{})
//	go auditor.Run(ctx)
//	<-auditor.Ready()
//	…
//	if broken := auditor.Breaches(); len(broken) > 0 {
//		t.Errorf("limits were broken: %v", broken)
//	}
//
// It shares only policies and events (see [queue.Event]) with the code that starts jobs. It
// compares instants by the drainers' clocks, which agree between hosts as well as NTP keeps them.
// A window that counts from the answer holds the runs that are open or were answered within it. An
// auditor judges them when they end.
//
// Events are numbered, so an auditor detects and reports missed ones.
//
// While an auditor listens, drainers publish all events of all policies. That costs a drainer some
// 4 µs of CPU time for each of a job's four events, and the messages.
package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// defaultStarts is the default of [Options.Starts]; it takes some 100 MB.
const defaultStarts = 2_000_000

const mostBreaches = 1000

// Options are the settings of an [Auditor]. The zero value works.
type Options struct {
	// Starts is the approximate number of starts to keep; default defaultStarts. Beyond that, the
	// longest idle buckets are dropped.
	Starts int
	// Logger gets a warning for each broken limit; default [slog.Default].
	Logger *slog.Logger
}

// Auditor receives starts and checks them. It is safe for concurrent use.
type Auditor struct {
	broker *jet.Broker
	log    *slog.Logger
	ready  chan struct{}

	mu     sync.Mutex
	judge  *Judge
	broken []Breach
}

// New makes an auditor, which is idle until [Auditor.Run].
func New(broker *jet.Broker, o Options) *Auditor {
	o.Starts, o.Logger = cmp.Or(o.Starts, defaultStarts), cmp.Or(o.Logger, slog.Default())
	return &Auditor{broker: broker, log: o.Logger, ready: make(chan struct{}),
		judge: NewJudge(o.Starts)}
}

// Ready is closed once the auditor receives starts and has the policies.
func (a *Auditor) Ready() <-chan struct{} { return a.ready }

// Run listens until ctx ends, and then returns nil. Call it once.
func (a *Auditor) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop, err := a.broker.Events().Listen("*", ">", a.heard)
	if err != nil {
		return err
	}
	defer stop()
	policies := store.New(a.broker, a.log)
	followed := make(chan struct{})
	first := sync.OnceFunc(func() { close(followed) })
	ended := make(chan error, 1)
	go func() {
		ended <- policies.Watch(ctx, func(set inforce.Entries, _ []string) {
			a.mu.Lock()
			a.judge.Follow(set, time.Now())
			a.mu.Unlock()
			first()
		})
	}()
	select {
	case <-followed:
	case err := <-ended:
		return err
	}
	err = policies.WatchOverrides(ctx, a.override, func() { close(a.ready) })
	cancel()
	return errors.Join(err, <-ended)
}

func (a *Auditor) override(name string, key queue.Key, o inforce.Override, _ bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.judge.Override(name, key, o, time.Now())
}

func (a *Auditor) heard(name string, e queue.Event) {
	a.mu.Lock()
	broken := a.judge.Heard(name, e, time.Now())
	if room := mostBreaches - len(a.broken); len(broken) > 0 && room > 0 {
		a.broken = append(a.broken, broken[:min(room, len(broken))]...)
	}
	a.mu.Unlock()
	for _, b := range broken {
		a.log.Warn("a limit on starts was broken", "policy", b.Policy, "key", b.Key.Raw(),
			"limit", b.Window.Limit, "units", b.Window.Units, "most", b.Window.Most, "window",
			time.Duration(b.Window.Length), "from", b.Window.From, "to", b.Window.To, "starts",
			b.Starts)
		a.broker.Events().Publish(b.Policy, queue.Event{Type: queue.EventLimitBroken, Key: b.Key,
			Job: b.Starts[len(b.Starts)-1], Reason: b.String()})
	}
}

// Breaches returns the broken limits, up to the first thousand.
func (a *Auditor) Breaches() []Breach {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.broken)
}

// Bucket returns the observations of a bucket, and of its limits on all keys.
func (a *Auditor) Bucket(policy string, key queue.Key) (Standing, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.judge.Bucket(policy, key, time.Now())
}

// Figures returns the observations of all limits of all policies.
func (a *Auditor) Figures() []Figure {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.judge.Figures(time.Now())
}

// openLaw judges windows that count from the answer: at no instant may the units of runs that are
// open, or were answered within the window's length or in the same window of the clock, be more
// than the limit. A start is dated after its decision, so of the runs that count at an instant all
// counted when the last of them was decided, whatever their order. Fewer known runs, or shorter
// ones, only make a sum less.
type openLaw struct {
	spec
	known  []counting // by until
	latest int64      // start
}

type counting struct {
	start
	sum int64 // of the runs that count at its start
}

// remembered is how much longer than it counts a run is compared with those that end later.
const remembered = 10 * time.Second

// until returns when a run no longer counts, at the earliest: another owner of its limit may have
// dated its answer by a clock that is behind.
func (s spec) until(started int64, end queue.Event) int64 {
	open := end.AnswerMS
	if s.from == policy.CountFromEnd {
		open = max(open, end.DurationMS)
	}
	from := started + int64(time.Duration(open)*time.Millisecond-apart)
	if s.kind == byWindow {
		return from + int64(s.window)
	}
	_, until := s.clock().Bounds(time.Unix(0, from))
	return until.UnixNano()
}

// ended corrects a start to its actual cost, and judges it where the answer counts. Only both
// events of a run together tell how long it was open.
func (j *Judge) ended(a *audited, b *bucket, number uint64, e queue.Event) []Breach {
	r, known := b.running[number]
	if !known {
		return nil
	}
	sent, same := !e.Started.IsZero(), e.From == r.source && e.Started.UnixNano() == r.at
	if sent && !same {
		return nil // the end of an earlier attempt
	}
	delete(b.running, number)
	return j.judged(a, b, e.Key, func(i int, s spec) (v view, known bool) {
		units := policy.Limit{Cost: s.cost}.Takes(r.cost, r.costs)
		n, told := e.Used[s.cost]
		if told = told && s.cost != ""; s.from != "" && !sent {
			n, told = 0, true
		}
		run := start{at: r.at, seq: number, units: units}
		switch {
		case !s.arrives() && told:
			b.laws[i].settle(run, n-units)
		case s.arrives() && e.From == b.source:
			if told {
				run.units = min(units, n) // each was counted for a time
			}
			run.until = max(r.at, s.until(r.at, e))
			return b.laws[i].add(run), true
		}
		return v, false
	})
}

func (l *openLaw) size() int { return len(l.known) }

func (l *openLaw) settle(start, int64) {}

// add takes a run that has ended, and returns the fullest instant that it changed.
func (l *openLaw) add(s start) view {
	fullest, own := counting{}, counting{start: s, sum: s.units}
	p := len(l.known)
	for i := len(l.known) - 1; i >= 0 && l.known[i].until > s.at; i-- {
		c := &l.known[i]
		if c.until > s.until {
			p = i
		}
		switch {
		case c.at <= s.at:
			own.sum += c.units
		case c.at < s.until:
			if c.sum += s.units; c.sum > fullest.sum {
				fullest = *c
			}
		}
	}
	if own.sum >= fullest.sum {
		fullest = own
	}
	l.known = slices.Insert(l.known, p, own)
	v := view{units: fullest.sum, most: l.most, length: l.window, from: fullest.at, to: fullest.at}
	if float64(v.units) > l.most {
		l.name(&v)
	}
	l.latest = max(l.latest, s.at)
	gone := 0
	for gone < len(l.known) && l.known[gone].until <= l.latest-int64(remembered) {
		gone++
	}
	l.known = l.known[gone:]
	return v
}

// name adds the starts that count at an instant.
func (l *openLaw) name(v *view) {
	for i := len(l.known) - 1; i >= 0 && l.known[i].until > v.to; i-- {
		if c := l.known[i]; c.at <= v.to {
			v.from = min(v.from, c.at)
			if len(v.starts) < mostNamed {
				v.starts = append(v.starts, c.start)
			}
		}
	}
	slices.SortFunc(v.starts, func(a, b start) int { return cmp.Compare(a.at, b.at) })
}

// Window is a window of a limit.
type Window struct {
	// Limit is outflow, outflow_total, or a limit's name.
	Limit string `json:"limit"`
	// Length is the window's; for windows of any length the fullest one's.
	Length policy.Duration `json:"window"`
	Units  int64           `json:"units"` // started
	Most   float64         `json:"most"`
	From   time.Time       `json:"from"` // first and last start; of open runs only if broken
	To     time.Time       `json:"to"`
}

// Share returns the used part of the limit; above 1 it was broken.
func (w Window) Share() float64 { return float64(w.Units) / w.Most }

// Breach is a broken limit.
type Breach struct {
	Policy string
	Key    queue.Key // of the last start
	Window Window
	// Starts are ids of jobs started in the window: the first, if known, and the last ones.
	Starts []string
}

// String implements [fmt.Stringer].
func (b Breach) String() string {
	return fmt.Sprintf("%s: %d units counted within %s, of at most %.1f, the last ones %s",
		b.Window.Limit, b.Window.Units, time.Duration(b.Window.Length), b.Window.Most,
		strings.Join(b.Starts, " "))
}

// Standing is the observations of a bucket.
type Standing struct {
	Since time.Time `json:"since"`
	// Worst are the fullest windows of the last hour or two, by limit and length.
	Worst []Window `json:"worst"`
	// Broken counts the breaches of a limit since then.
	Broken uint64 `json:"broken"`
	// Incomplete means that lost events could have added starts.
	Incomplete bool `json:"incomplete,omitempty"`
}

// Figure is the observations of one limit, over all buckets.
type Figure struct {
	Policy, Limit string
	Worst         float64 // largest [Window.Share] of the last hour or two
	Broken        uint64
	Incomplete    bool
}

// missing reports whether lost events could count in the windows.
func missing(lost time.Time, specs []spec, now time.Time) bool {
	longest := period
	for _, s := range specs {
		longest = max(longest, period+2*s.window)
	}
	return !lost.IsZero() && now.Sub(lost) < period+longest
}

// Bucket returns the observations of a bucket, and of its limits on all keys and shared ones.
func (j *Judge) Bucket(name string, key queue.Key, now time.Time) (s Standing, known bool) {
	a := j.policies[name]
	if a == nil || a.buckets[key] == nil {
		return Standing{}, false
	}
	s = a.buckets[key].standing(now)
	s.add(a.all.standing(now))
	for _, l := range a.shared {
		s.add(l.starts.standing(now))
	}
	return s, true
}

func (s *Standing) add(other Standing) {
	s.Worst, s.Broken = append(s.Worst, other.Worst...), s.Broken+other.Broken
	s.Incomplete = s.Incomplete || other.Incomplete
}

func (b *bucket) standing(now time.Time) Standing {
	s := Standing{Since: b.since.UTC(), Worst: []Window{}, Broken: b.breaks,
		Incomplete: missing(b.lostAt, b.specs, now) ||
			b.of != nil && missing(b.of.lostAt, b.specs, now)}
	for i := range b.worst {
		w := b.worst[i].largest(now, fuller)
		same := slices.IndexFunc(s.Worst, func(other Window) bool {
			return other.Limit == w.Limit && other.Length == w.Length
		})
		switch {
		case w.Most == 0:
		case same < 0:
			s.Worst = append(s.Worst, w)
		case fuller(w, s.Worst[same]):
			s.Worst[same] = w
		}
	}
	return s
}

// Figures returns the observations of all limits of all policies.
func (j *Judge) Figures(now time.Time) (all []Figure) {
	for _, name := range slices.Sorted(maps.Keys(j.policies)) {
		a := j.policies[name]
		incomplete := missing(a.lostAt, j.specs(a.policy, ""), now)
		for _, limit := range slices.Sorted(maps.Keys(a.figures)) {
			f := a.figures[limit]
			lost := slices.ContainsFunc(a.shared, func(s shared) bool {
				return s.specs[0].limit == limit && missing(s.starts.lostAt, s.specs, now)
			})
			all = append(all, Figure{name, limit, f.worst.largest(now, larger), f.broken,
				incomplete || lost})
		}
	}
	return all
}
