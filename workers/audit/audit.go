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
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/policy/store"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

// DefaultStarts is the default of [Options.Starts]; it takes some 100 MB.
const DefaultStarts = 2_000_000

const mostBreaches = 1000

// Options are the settings of an [Auditor]. The zero value works.
type Options struct {
	// Starts is the approximate number of starts to keep; default [DefaultStarts]. Beyond that, the
	// longest idle buckets are dropped.
	Starts int
	// Logger gets a warning for each broken limit; default [slog.Default].
	Logger *slog.Logger
}

// Auditor receives starts and checks them. It is safe for concurrent use.
type Auditor struct {
	broker *queue.Broker
	log    *slog.Logger
	ready  chan struct{}

	mu     sync.Mutex
	judge  *Judge
	broken []Breach
}

// New makes an auditor, which is idle until [Auditor.Run].
func New(broker *queue.Broker, o Options) *Auditor {
	o.Starts, o.Logger = cmp.Or(o.Starts, DefaultStarts), cmp.Or(o.Logger, slog.Default())
	return &Auditor{broker: broker, log: o.Logger, ready: make(chan struct{}),
		judge: NewJudge(o.Starts)}
}

// Ready is closed once the auditor receives starts and has the policies.
func (a *Auditor) Ready() <-chan struct{} { return a.ready }

// Run listens until ctx ends, and then returns nil. Call it once.
func (a *Auditor) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop, err := a.broker.Listen("*", ">", a.heard)
	if err != nil {
		return err
	}
	defer stop()
	policies := store.New(a.broker, a.log)
	followed := make(chan struct{})
	first := sync.OnceFunc(func() { close(followed) })
	ended := make(chan error, 1)
	go func() {
		ended <- policies.Watch(ctx, func(set policy.Entries, _ []string) {
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

func (a *Auditor) override(name string, key job.Key, o policy.Override, _ bool) {
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
		a.broker.PublishEvent(b.Policy, queue.Event{Type: queue.EventLimitBroken, Key: b.Key,
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
func (a *Auditor) Bucket(policy string, key job.Key) (Standing, bool) {
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
