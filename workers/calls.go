package workers

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/internal/seldom"
)

// calls are the calls to NATS that concern single jobs. At most mostCalls are under way; the others wait in a list, which
// costs little however many there are. A call that failed goes back to the end of the list after a pause, so that what
// cannot succeed holds up nothing that can.
type calls struct {
	mu      sync.Mutex
	waiting []func()
	running int
}

const (
	// mostCalls is how many calls of a drainer are under way at once.
	mostCalls = 256
	// retryPause is the wait before a call that failed is made again.
	retryPause = 250 * time.Millisecond
	// triesUntold is how often a call fails before it is worth a line in the log.
	triesUntold = 4
)

// add makes a call as soon as there is room; spawn runs it.
func (c *calls) add(spawn func(func()), f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == mostCalls {
		c.waiting = append(c.waiting, f)
		return
	}
	c.running++
	spawn(func() {
		for f := f; f != nil; f = c.next() {
			f()
		}
	})
}

// next is the call that waits longest; nil when there is none, and then its caller ends.
func (c *calls) next() func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		c.waiting = nil
		c.running--
		return nil
	}
	f := c.waiting[0]
	c.waiting[0] = nil
	c.waiting = c.waiting[1:]
	return f
}

// call makes a call unless the context has ended by then. It is for the loop alone, as is persist.
func (d *Drainer) call(ctx context.Context, f func()) {
	d.calls.add(d.spawn, func() {
		if ctx.Err() == nil {
			f()
		}
	})
}

// persist calls try until it succeeds or the context ends, and then done, in the loop.
func (d *Drainer) persist(ctx context.Context, what string, try func() error, done func(now instant)) {
	d.try(ctx, what, 0, try, done)
}

func (d *Drainer) try(ctx context.Context, what string, failures int, try func() error, done func(now instant)) {
	d.call(ctx, func() {
		err := try()
		switch {
		case err == nil || ctx.Err() != nil:
			if failures > triesUntold {
				d.struggles.end(ctx)
			}
			if err == nil {
				d.post(done)
			}
			return
		case failures == triesUntold:
			d.struggles.begin(what, err)
		}
		time.AfterFunc(retryPause, func() {
			d.post(func(instant) { d.try(ctx, what, failures+1, try, done) })
		})
	})
}

// struggles are calls that have failed several times in a row: a line about them in ten seconds, and one when none is left.
type struggles struct {
	lines *seldom.Log
	log   *slog.Logger

	mu    sync.Mutex
	open  int
	since time.Time
}

func (s *struggles) begin(what string, err error) {
	s.lines.Log("struggles", slog.LevelWarn, "JetStream does not do what it is asked: still trying", "what", what, "error", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open++; s.open == 1 {
		s.since = time.Now()
	}
}

// end takes that a call succeeded, or that it is given up because its context has ended.
func (s *struggles) end(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open--; s.open == 0 && ctx.Err() == nil {
		s.log.Info("JetStream does again what it is asked", "after", time.Since(s.since).Round(time.Millisecond))
	}
}
