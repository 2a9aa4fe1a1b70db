package workers

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// answering is a policy whose target counts one request in any second.
func answering() policy.Policy {
	return policy.Policy{Name: "api", Partitions: 1, MaxDelay: policy.Duration(500 * ms),
		Rule:  policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 100},
		Retry: policy.Retry{MaxAttempts: 5, Backoff: policy.Duration(ms)},
		Limits: policy.Limits{{Name: "target", CountFrom: policy.CountFromAnswer,
			Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 1,
				Window: policy.Duration(second)}}}}
}

func TestAHandlersAnswerCounts(t *testing.T) {
	t.Parallel()
	for name, work := range map[string]func(*bench, map[string]Handler){
		"here": func(b *bench, handlers map[string]Handler) { b.drain(Options{}, handlers) },
		"elsewhere": func(b *bench, handlers map[string]Handler) {
			b.lend(Options{}, handlers)
			b.valve(Options{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, answering())
			began, end := make(chan time.Time, 2), make(chan struct{})
			work(b, map[string]Handler{"api": func(_ context.Context, j Job) error {
				began <- time.Now()
				if j.Answered(); j.Attempt == 1 && j.ID == "api:1" {
					<-end
				}
				return nil
			}})
			b.publish("api", "a", 0, 2)
			first := <-began
			select {
			case second := <-began: // although the first one runs
				if apart := second.Sub(first); apart < time.Second {
					t.Errorf("the second starts %v after the answer of the first", apart)
				}
			case <-time.After(20 * time.Second):
				t.Error("no other job starts after an answer")
			}
			close(end)
		})
	}
}

// A failed run may have sent a request that arrives later. Its concurrency and its worker are kept
// for it.
func TestAFailedRunKeepsItsPlaceForTheLongestDelay(t *testing.T) {
	t.Parallel()
	p := answering()
	p.Concurrency, p.Limits[0].Limit = 1, 100
	b := newBench(t, p)
	began := make(chan time.Time, 2)
	b.drain(Options{}, map[string]Handler{"api": func(_ context.Context, j Job) error {
		began <- time.Now()
		if j.Attempt == 1 {
			return errors.New("the connection broke")
		}
		return nil
	}})
	b.publish("api", "a", 0, 1)
	first := <-began
	if apart := (<-began).Sub(first); apart < 500*ms {
		t.Errorf("the next attempt starts %v after one without an answer", apart)
	}
}

func TestAPauseOfAFailedRunBeginsAtOnce(t *testing.T) {
	t.Parallel()
	p := answering()
	p.MaxDelay, p.Limits[0].Limit = policy.Duration(second), 100
	b := newBench(t, p)
	failed, began := make(chan struct{}, 1), make(chan time.Time, 3)
	b.drain(Options{Sink: queue.SinkFunc(func(e queue.Event) {
		if e.Type == queue.EventFailed {
			failed <- struct{}{}
		}
	})}, map[string]Handler{"api": func(_ context.Context, j Job) error {
		if began <- time.Now(); j.Attempt == 1 && j.ID == "api:1" {
			j.CoolDown(500 * ms)
			return errors.New("the connection broke")
		}
		return nil
	}})
	b.publish("api", "a", 0, 1)
	first := <-began
	<-failed
	b.publish("api", "a", 1, 1)
	if apart := (<-began).Sub(first); apart < 500*ms {
		t.Errorf("the next job starts %v after one that asked for a pause of 500 ms", apart)
	}
}

// An instant that was read before an outcome was taken may precede its answer.
func TestTheLoopReadsTheClockAfterItHasTakenAnEvent(t *testing.T) {
	d := &Drainer{parts: &parts{calls: newCalls(newLoop(slog.Default(), nil), nil, second),
		pool: &pool{results: make(chan core.Finished, 1)}}}
	defer d.end()
	var posted, told pace.Instant
	d.events <- func(now pace.Instant) { told = now }
	for posted = d.now(); d.now() == posted; { // the clock goes on
	}
	posted = d.now()
	if !d.takeNext() || told < posted {
		t.Errorf("an event of %v is handled at %v", posted, told)
	}
}

// The end of a run tells how long its request was open, as limits count it.
func TestTheEndOfARunTellsWhenItsUnitsCount(t *testing.T) {
	t.Parallel()
	p := arrivals("api")
	p.MaxDelay = policy.Duration(500 * ms)
	b := newBench(t, p)
	events := make(chan queue.Event, 100)
	b.drain(Options{Sink: queue.SinkFunc(func(e queue.Event) {
		switch e.Type {
		case queue.EventStarted, queue.EventDone, queue.EventFailed:
			events <- e
		}
	})}, map[string]Handler{"api": func(_ context.Context, j Job) error {
		began := time.Now()
		switch j.Key.Raw() {
		case "answered":
			j.Answered()
			waittest.Until(t, "time has passed", func() bool { return time.Since(began) > 20*ms })
			j.Answered() // counts no more
		case "failed":
			return errors.New("the connection broke")
		case "unsent":
			j.Unsent()
			return errors.New("no connection")
		}
		return nil
	}})
	for _, key := range []string{"answered", "failed", "unsent", "done"} {
		b.publish("api", key, 0, 1)
		begins, ends := <-events, <-events
		open := ends.AnswerMS - ends.DurationMS
		switch told := ends.Started.Equal(begins.At) && !begins.At.IsZero(); {
		case begins.Type != queue.EventStarted || ends.Type == queue.EventStarted:
			t.Fatalf("%s: %+v, then %+v", key, begins, ends)
		case key == "unsent":
			if !ends.Started.IsZero() || ends.AnswerMS != 0 {
				t.Errorf("nothing was sent: %+v", ends)
			}
		case !told, key == "done" && open != 0, key == "failed" && open != 500,
			key == "answered" && open > -10:
			t.Errorf("%s: started %v and %v, answered %d ms from its end", key, begins.At,
				ends.Started, open)
		}
	}
}
