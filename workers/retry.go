package workers

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/base/seldom"
	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// calls runs calls to NATS in a queue per policy and purpose, each with bounded concurrency: a
// stream or KV bucket without a leader delays only its own calls. A failed call returns to the end
// after a pause. It is safe for concurrent use.
type calls struct {
	*loop
	nc        *nats.Conn
	patience  time.Duration
	struggles struggles

	mu    sync.Mutex
	lines map[purpose]*line
}

func newCalls(l *loop, nc *nats.Conn, patience time.Duration) *calls {
	return &calls{loop: l, nc: nc, patience: patience, lines: map[purpose]*line{},
		struggles: struggles{log: l.log, lines: seldom.New(l.log)}}
}

type purpose struct{ policy, what string }

type line struct {
	waiting []func()
	running int
}

const (
	// mostCalls bounds a queue's concurrent calls.
	mostCalls  = 64
	retryPause = 250 * time.Millisecond
	// triesUntold is the number of failures before a log line.
	triesUntold = 4
	// wellFor is the least run of a permanent task whose end is not another failure.
	wellFor = 10 * time.Second
)

func (c *calls) add(p purpose, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lines[p] == nil {
		c.lines[p] = &line{}
	}
	l := c.lines[p]
	l.waiting = append(l.waiting, f)
	c.proceed(p, l)
}

func (c *calls) proceed(p purpose, l *line) {
	for len(l.waiting) > 0 && l.running < mostCalls {
		f := l.waiting[0]
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
		l.running++
		c.spawn(func() {
			f()
			c.mu.Lock()
			defer c.mu.Unlock()
			l.running--
			c.proceed(p, l)
		})
	}
	if l.running == 0 {
		delete(c.lines, p)
	}
}

func (c *calls) call(ctx context.Context, p purpose, f func()) {
	c.add(p, func() {
		if ctx.Err() == nil {
			f()
		}
	})
}

func (c *calls) persist(ctx context.Context, p purpose, try func() error, done func() core.Event) {
	c.try(ctx, p, 0, try, done)
}

func (c *calls) try(ctx context.Context, p purpose, failures int, try func() error,
	done func() core.Event) {
	c.add(p, func() {
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
			return
		case failures == triesUntold:
			c.struggles.begin(p.what, err)
		}
		time.AfterFunc(retryPause, func() {
			c.post(func(pace.Instant) { c.try(ctx, p, failures+1, try, done) })
		})
	})
}

func (c *calls) forever(ctx context.Context, what string, f func() error) {
	c.retry(ctx, what, func() error {
		if err := f(); err != nil {
			return err
		}
		return errors.New("ended")
	})
}

// retry repeats f until it succeeds or the context ends, and reports success. It logs repeated
// failures if what is not empty.
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
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return false
		}
	}
}

// struggles logs repeated failures, at most once in ten seconds, and after the last.
type struggles struct {
	lines *seldom.Log
	log   *slog.Logger

	mu    sync.Mutex
	open  int
	since time.Time
}

func (s *struggles) begin(what string, err error) {
	s.lines.Log("struggles", slog.LevelWarn, "JetStream operation fails: still retrying",
		"what", what, "error", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open++; s.open == 1 {
		s.since = time.Now()
	}
}

func (s *struggles) end(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open--; s.open == 0 && ctx.Err() == nil {
		s.log.Info("JetStream operation succeeds again", "after",
			time.Since(s.since).Round(time.Millisecond))
	}
}
