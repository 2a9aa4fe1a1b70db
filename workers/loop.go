package workers

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/internal/seldom"
	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/timepiece"
)

// loop is what every part of a drainer stands on. One goroutine alone touches the core and the
// state of the parts, so that none of it needs a lock. Whatever happens elsewhere (an answer, a
// timer, a message) comes to it as an event for the core (send) or as a function for itself (post);
// whatever may take long runs in a goroutine of its own (spawn), and sends or posts what came of
// it.
type loop struct {
	log     *slog.Logger
	seldom  *seldom.Log // for what others can cause again and again
	clock   *timepiece.Timepiece
	events  chan event
	life    context.Context // of what goes on until the loop has ended
	end     func()          // ends it
	stopped chan struct{}   // closed when nothing takes events any more
	wait    sync.WaitGroup  // for what was spawned
}

// event is one that the core is told, or else a function of the loop's own.
type event struct {
	core core.Event
	do   func(now pace.Instant)
}

func (e event) take(c *core.Core, now pace.Instant) {
	if e.core != nil {
		c.Handle(e.core, now)
	} else {
		e.do(now)
	}
}

func newLoop(log *slog.Logger) *loop {
	life, end := context.WithCancel(context.Background())
	return &loop{
		life:    life,
		end:     end,
		log:     log,
		seldom:  seldom.New(log),
		clock:   timepiece.New(),
		events:  make(chan event, 256),
		stopped: make(chan struct{}),
	}
}

func (l *loop) now() pace.Instant { return l.clock.Now() }

// post has the loop call a function. It reports whether it will: not after the loop has ended.
func (l *loop) post(do func(now pace.Instant)) bool { return l.put(event{do: do}) }

// send has the loop tell the core what happened, in order with what is posted.
func (l *loop) send(e core.Event) bool { return l.put(event{core: e}) }

func (l *loop) put(e event) bool {
	select {
	case <-l.stopped:
		return false
	default:
	}
	select {
	case l.events <- e:
		return true
	case <-l.stopped:
		return false
	}
}

// spawn starts a goroutine that Run waits for.
func (l *loop) spawn(f func()) { l.wait.Go(f) }

// every has the loop call a function time and again.
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

// ask has the loop call a function and returns its answer; not ok: the loop has ended. It is for
// goroutines other than the loop's own.
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
