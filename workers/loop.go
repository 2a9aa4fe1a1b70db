package workers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/internal/base/notice"
	"github.com/penstock-mq/penstock/internal/base/seldom"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/timepiece"
)

// loop is the base of a drainer's parts. Only its goroutine touches the core and their state. Slow
// work runs in goroutines (spawn) and results in events (send) or functions (post).
type loop struct {
	log     *slog.Logger
	seldom  *seldom.Log // for lines that others can repeat
	notices *notice.Log
	sink    queue.Sink
	core    *core.Core // nil until Run
	clock   *timepiece.Timepiece
	events  chan func(now pace.Instant)
	life    context.Context
	end     func()
	stopped chan struct{} // when events are no longer taken
	wait    sync.WaitGroup
}

func newLoop(log *slog.Logger, sink queue.Sink) *loop {
	life, end := context.WithCancel(context.Background())
	return &loop{life: life, end: end, log: log, seldom: seldom.New(log), notices: notice.New(log),
		sink: sink, clock: timepiece.New(), events: make(chan func(pace.Instant), 256),
		stopped: make(chan struct{})}
}

func (l *loop) tell(event, policy string, value int64) {
	l.sink.Take(queue.Event{Type: event, Policy: policy, Value: value})
}

func (l *loop) now() pace.Instant { return l.clock.Now() }

// post runs a function in the loop. False: the loop has ended.
func (l *loop) post(do func(now pace.Instant)) bool {
	select {
	case <-l.stopped:
		return false
	default:
	}
	select {
	case l.events <- do:
		return true
	case <-l.stopped:
		return false
	}
}

func (l *loop) send(e core.Event) {
	l.post(func(now pace.Instant) { l.core.Handle(e, now) })
}

func (l *loop) spawn(f func()) { l.wait.Go(f) }

func (l *loop) every(pause time.Duration, look func(now pace.Instant)) {
	l.spawn(func() {
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				l.post(look)
			case <-l.life.Done():
				return
			}
		}
	})
}

// ask runs a function in the loop, which must not call it. ok: the loop has not ended.
func ask[T any](l *loop, question func() T) (answer T, ok bool) {
	answers := make(chan T, 1)
	l.post(func(pace.Instant) { answers <- question() })
	select {
	case answer = <-answers:
		return answer, true
	case <-l.stopped:
		return answer, false
	}
}

type proof struct {
	*loop
	patient time.Duration
	born    pace.Instant
	held    bool // as last told
	err     error
	health  atomic.Pointer[error]
}

var (
	errNoLease   = errors.New("the drainer has no lease yet")
	errLeaseLost = errors.New("the lease cannot be renewed, and nothing starts without it")
	errNoAnswer  = errors.New("no renewal was acknowledged in time")
)

var leaseLost = notice.Kind{Level: slog.LevelWarn,
	Begin: "lease renewal fails: no jobs start until it succeeds",
	End:   "lease renewed again"}

func (p *proof) look(c *core.Core, now pace.Instant) {
	held := now < c.Lease.Fence
	if held != p.held || p.health.Load() == nil {
		p.loop.tell(jet.EventLease, "", jet.Whether(held))
		p.held = held
	}
	var health error
	switch {
	case held:
		p.notices.Tell(&leaseLost, "", "", "id", c.Lease.Id)
	case !c.Lease.Held && now.Since(p.born) < p.patient:
		health = errNoLease
	default:
		why := cmp.Or(p.err, errNoAnswer)
		health = fmt.Errorf("%w: %w", errLeaseLost, why)
		if c.Connected {
			p.notices.Tell(&leaseLost, "", "lost", "id", c.Lease.Id, "error", why)
		}
	}
	p.health.Store(&health)
}
