package workers

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/internal/seldom"
	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// calls are the calls to NATS that the loop has made. Those of one policy for one purpose make a
// line: some of them are under way, the others wait, which costs little however many there are.
// What NATS does not answer, because one stream or one KV bucket has no leader, so holds up nothing
// but itself. A call that failed goes back to the end of its line after a pause, so that what
// cannot succeed holds up nothing that can. Anybody may call its methods.
type calls struct {
	*loop
	patience  time.Duration // how long one may take
	struggles struggles

	mu    sync.Mutex
	lines map[purpose]*line
}

func newCalls(l *loop, patience time.Duration) *calls {
	return &calls{
		loop:      l,
		patience:  patience,
		struggles: struggles{log: l.log, lines: seldom.New(l.log)},
		lines:     map[purpose]*line{},
	}
}

// purpose is what a call is for.
type purpose struct{ policy, what string }

type line struct {
	waiting []func() error
	running int
	failing bool // the last call that has ended failed
}

const (
	// mostCalls is how many calls of one line are under way at once, mostFailing how many while
	// they fail.
	mostCalls, mostFailing = 64, 8
	// retryPause is the wait before a call that failed is made again.
	retryPause = 250 * time.Millisecond
	// triesUntold is how often a call fails before it is worth a line in the log.
	triesUntold = 4
	// wellFor is how long what goes on for ever must last not to have failed at once.
	wellFor = 10 * time.Second
)

// add makes a call as soon as there is room.
func (c *calls) add(p purpose, f func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lines[p] == nil {
		c.lines[p] = &line{}
	}
	l := c.lines[p]
	l.waiting = append(l.waiting, f)
	c.proceed(p, l)
}

// proceed begins as many calls of a line as there is room for.
func (c *calls) proceed(p purpose, l *line) {
	for len(l.waiting) > 0 && l.running < l.room() {
		f := l.waiting[0]
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
		l.running++
		c.spawn(func() {
			err := f()
			c.mu.Lock()
			defer c.mu.Unlock()
			l.running--
			l.failing = err != nil
			c.proceed(p, l)
		})
	}
	if l.running == 0 {
		delete(c.lines, p)
	}
}

func (l *line) room() int {
	if l.failing {
		return mostFailing
	}
	return mostCalls
}

// call makes a call unless the context has ended by then.
func (c *calls) call(ctx context.Context, p purpose, f func() error) {
	c.add(p, func() error {
		if ctx.Err() != nil {
			return nil
		}
		return f()
	})
}

// persist calls try until it succeeds or the context ends, and then tells the core what is done.
func (c *calls) persist(ctx context.Context, p purpose, try func() error,
	done func() core.Event) {
	c.try(ctx, p, 0, try, done)
}

func (c *calls) try(ctx context.Context, p purpose, failures int, try func() error,
	done func() core.Event) {
	c.add(p, func() error {
		err := ctx.Err()
		if err == nil {
			err = try()
		}
		switch {
		case err == nil || ctx.Err() != nil:
			if failures > triesUntold {
				c.struggles.end(ctx)
			}
			if err == nil {
				c.send(done())
			}
			return nil
		case failures == triesUntold:
			c.struggles.begin(p.what, err)
		}
		time.AfterFunc(retryPause, func() {
			c.post(func(pace.Instant) { c.try(ctx, p, failures+1, try, done) })
		})
		return err
	})
}

// forever calls f again until the context ends.
func (c *calls) forever(ctx context.Context, what string, f func() error) {
	c.retry(ctx, what, func() error {
		if err := f(); err != nil {
			return err
		}
		return errors.New("ended")
	})
}

// retry calls f until it succeeds or the context ends, with a pause between, and reports whether it
// succeeded. It waits in no line. Some failures in a row are logged, unless what is empty.
func (c *calls) retry(ctx context.Context, what string, f func() error) bool {
	told := false
	for tries := 0; ; tries++ {
		began := time.Now()
		err := f()
		over := err == nil || ctx.Err() != nil
		if told && (over || time.Since(began) >= wellFor) {
			c.struggles.end(ctx)
			tries, told = 0, false
		}
		if over {
			return err == nil
		}
		if tries == triesUntold && what != "" {
			c.struggles.begin(what, err)
			told = true
		}
		timer := time.NewTimer(retryPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// struggles are calls that have failed several times in a row: a line about them in ten seconds,
// and one when none is left.
type struggles struct {
	lines *seldom.Log
	log   *slog.Logger

	mu    sync.Mutex
	open  int
	since time.Time
}

func (s *struggles) begin(what string, err error) {
	s.lines.Log("struggles", slog.LevelWarn, "JetStream does not do what it is asked: still trying",
		"what", what, "error", err)
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
		s.log.Info("JetStream does again what it is asked", "after",
			time.Since(s.since).Round(time.Millisecond))
	}
}
