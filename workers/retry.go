package workers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/base/seldom"
	"github.com/penstock-mq/penstock/internal/queue/job"
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

type wrapped struct{ error }

func (e wrapped) Unwrap() error { return e.error }

// marked returns a mark of an error, or nil for none.
func marked(err, mark error) error {
	if err == nil {
		return nil
	}
	return mark
}

type permanentError struct{ wrapped }

// Permanent marks an error that no retry can resolve: the job becomes a dead letter at once.
// Permanent(nil) is nil.
func Permanent(err error) error { return marked(err, permanentError{wrapped{err}}) }

type retryAfterError struct {
	wrapped
	after    time.Duration
	doubtful bool
}

func (e retryAfterError) Error() string {
	return fmt.Sprintf("throttled, retry after %v: %v", e.after, e.error)
}

// RetryAfter returns an error for a throttling target: the whole bucket starts no jobs for d, the
// job returns to its head, and no attempt is counted. If d is 0 or less, the pause is the policy's
// backoff, doubled for each consecutive one. It never exceeds max_cooldown.
func RetryAfter(d time.Duration, err error) error {
	err = cmp.Or(err, errors.New("the target is throttling"))
	return retryAfterError{wrapped{err}, max(0, d), false}
}

// Doubtful marks an error of [RetryAfter] that may be the job's own fault, as of a target that says
// so in other words than 429 and 503. When the job has ended so three times, and other jobs of its
// bucket passed in between, attempts are counted. The bucket does not pause for those.
func Doubtful(err error) error {
	if e, throttled := errors.AsType[retryAfterError](err); throttled {
		e.doubtful = true
		return e
	}
	return err
}

type laterError struct {
	wrapped
	after time.Duration
}

// Later marks a failed attempt of a job that is not to start again before d, beside the policy's
// backoff. Later(d, nil) is nil.
func Later(d time.Duration, err error) error {
	return marked(err, laterError{wrapped{err}, max(0, d)})
}

type againError struct{ after time.Duration }

func (e againError) Error() string { return fmt.Sprintf("to run again in %v", e.after) }

// Again returns an error for a job that is to start again after d, without counting an attempt. Its
// bucket continues with other jobs. The job's deadline and the policy's max_age still apply.
func Again(d time.Duration) error { return againError{max(0, d)} }

// IsAgain reports whether an error was made by [Again], and its wait.
func IsAgain(err error) (after time.Duration, snoozed bool) {
	e, snoozed := errors.AsType[againError](err)
	return e.after, snoozed
}

// ReadAgain returns the error for an answer's Penstock-Again header, or nil without one.
func ReadAgain(h map[string][]string, now time.Time) error {
	value := job.HeaderValue(h, job.HeaderAgain)
	if value == "" {
		return nil
	}
	at, err := job.ParseInstant(value, now, 0)
	if err != nil {
		return fmt.Errorf("the answer's %s: %w", job.HeaderAgain, err)
	}
	return Again(at.Sub(now))
}

type unavailableError struct{ wrapped }

// Unavailable marks a failure of the target, not of the job. The attempt counts. But after five
// different consecutive jobs of a bucket, or jobs of three buckets, the breaker opens: the bucket,
// or this drainer's share of the policy, starts one job per backoff (at most a minute) until one
// ends otherwise, and no attempt counts. Unavailable(nil) is nil.
func Unavailable(err error) error { return marked(err, unavailableError{wrapped{err}}) }

// IsUnavailable reports whether an error was marked by [Unavailable].
func IsUnavailable(err error) bool {
	_, unavailable := errors.AsType[unavailableError](err)
	return unavailable
}

type misconfiguredError struct{ wrapped }

// Misconfigured marks a mistake of this process that no job is to blame for, such as a missing file
// of credentials: the target was not called. No attempt counts, and the breaker of the bucket opens
// at once, so single jobs find out when it is mended. Misconfigured(nil) is nil.
func Misconfigured(err error) error { return marked(err, misconfiguredError{wrapped{err}}) }

// IsMisconfigured reports whether an error was marked by [Misconfigured].
func IsMisconfigured(err error) bool {
	_, misconfigured := errors.AsType[misconfiguredError](err)
	return misconfigured
}

// IsPermanent reports whether an error was marked by [Permanent].
func IsPermanent(err error) bool {
	_, permanent := errors.AsType[permanentError](err)
	return permanent
}

// IsRetryAfter reports whether an error was made by [RetryAfter], and its pause; 0: the policy's
// backoff.
func IsRetryAfter(err error) (pause time.Duration, throttled bool) {
	e, throttled := errors.AsType[retryAfterError](err)
	return e.after, throttled
}
