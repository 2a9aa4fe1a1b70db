package workers

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/base/seldom"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func quiet() *seldom.Log { return seldom.New(slog.New(slog.DiscardHandler)) }

// Without a word of the handler, the end of a run says whether its target has answered.
func TestTheEndOfARunSaysWhetherItWasAnswered(t *testing.T) {
	no := errors.New("no")
	for name, c := range map[string]struct {
		handle func(Job) error
		want   record.Answer
	}{
		"done":          {func(Job) error { return nil }, record.AnswerSeen},
		"throttled":     {func(Job) error { return RetryAfter(0, no) }, record.AnswerSeen},
		"permanent":     {func(Job) error { return Permanent(no) }, record.AnswerSeen},
		"failed":        {func(Job) error { return no }, record.AnswerNone},
		"unavailable":   {func(Job) error { return Unavailable(no) }, record.AnswerNone},
		"again":         {func(Job) error { return Again(0) }, record.AnswerNone},
		"panicked":      {func(Job) error { panic(no) }, record.AnswerNone},
		"misconfigured": {func(Job) error { return Misconfigured(no) }, record.AnswerUnsent},
		"failed after the answer": {func(j Job) error {
			j.Unanswered()
			j.Answered()
			j.Unsent()
			return no
		}, record.AnswerSeen},
		"a gateway's 503": {func(j Job) error {
			j.Unsent()
			j.Unanswered()
			return RetryAfter(time.Second, no)
		}, record.AnswerNone},
		"a gateway's 504 that counts as done": {func(j Job) error {
			j.Unanswered()
			return nil
		}, record.AnswerNone},
		"refused": {func(j Job) error {
			j.Unsent()
			return Unavailable(io.EOF)
		}, record.AnswerUnsent},
		"done without a request": {func(j Job) error {
			j.Unsent()
			return nil
		}, record.AnswerUnsent},
	} {
		o := call(t.Context(), quiet(), time.Minute, func(_ context.Context, j Job) error {
			return c.handle(j)
		}, 1, Job{})
		if o.Answer != c.want {
			t.Errorf("%s: answer %q, want %q", name, o.Answer, c.want)
		}
	}
	if o := exited(1); o.Answer != record.AnswerNone {
		t.Errorf("a handler that exits: answer %q", o.Answer)
	}
}

// A handler's goroutine that goes on reports nothing of the run after its end.
func TestAnAnswerIsReportedOnceAndBeforeTheEnd(t *testing.T) {
	reports := 0
	report := func() pace.Instant {
		reports++
		return 0
	}
	j := Job{settled: &settled{answer: report}}
	call(t.Context(), quiet(), time.Minute, func(_ context.Context, j Job) error {
		j.Answered()
		j.Answered()
		return nil
	}, 1, j)
	if reports != 1 {
		t.Errorf("%d reports of an answer", reports)
	}
	j.settled = &settled{answer: report}
	ended := make(chan struct{})
	late := make(chan struct{})
	call(t.Context(), quiet(), time.Minute, func(_ context.Context, j Job) error {
		go func() {
			<-ended
			j.Answered()
			close(late)
		}()
		return nil
	}, 1, j)
	close(ended)
	if <-late; reports != 1 {
		t.Errorf("an answer is reported after the end of its run")
	}
}

// arrivals is a policy with a limit that counts from the answer.
func arrivals(name string) policy.Policy {
	p := leaky(name, "1000/s")
	p.Retry.MaxAttempts, p.Retry.Backoff = 1, policy.Duration(time.Millisecond)
	p.MaxDelay = policy.Duration(10 * time.Millisecond)
	p.WindowMargin = policy.Duration(time.Millisecond)
	p.Limits = policy.Limits{{Name: "arrivals", CountFrom: policy.CountFromAnswer,
		Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 1000,
			Window: policy.Duration(time.Second)}}}
	return p
}

// Another drainer runs the jobs. Its reports say what their handlers know of answers.
func TestRemoteAnswersAreReported(t *testing.T) {
	b := newBench(t, arrivals("api"))
	want := map[queue.Key]string{"answered": "", "failed": "none", "unsent": "unsent", "done": "",
		"throttled": "none"}
	var throttled bool
	b.lend(Options{}, map[string]Handler{"api": func(_ context.Context, j Job) error {
		no := errors.New("no")
		switch j.Key.Raw() {
		case "answered":
			j.Answered()
			return no
		case "failed":
			return no
		case "unsent":
			j.Unsent()
			return no
		case "throttled":
			if !throttled {
				throttled = true
				j.Unanswered()
				return RetryAfter(time.Millisecond, no)
			}
		}
		return nil
	}})
	ends := make(chan queue.Event, 100)
	b.valve(Options{Sink: queue.SinkFunc(func(e queue.Event) {
		switch e.Type {
		case queue.EventDone, queue.EventFailed, queue.EventThrottled:
			ends <- e
		}
	})})
	for key := range want {
		b.publish("api", key.Raw(), 0, 1)
	}
	got := map[queue.Key]string{}
	for len(got) < len(want) {
		select {
		case e := <-ends:
			if _, known := got[e.Key]; !known {
				got[e.Key] = e.Answer
			}
		case <-time.After(deadline):
			t.Fatalf("only %v have ended", got)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("answers %v, want %v", got, want)
	}
	b.empty("api")
}

// A worker reports an answer when a limit asks for it, and no more than once.
func TestAWorkerReportsAnAnswerIfAsked(t *testing.T) {
	for _, maxDelay := range []time.Duration{0, time.Second} {
		b := newBench(t, leaky("api", "1000/s"))
		began := make(chan struct{})
		b.lend(Options{}, map[string]Handler{"api": func(_ context.Context, j Job) error {
			began <- struct{}{}
			j.Answered()
			j.Answered()
			return nil
		}})
		o := b.owns()
		o.maxDelay = maxDelay
		o.runs(began, time.Minute)
		if maxDelay > 0 {
			if m, c := o.hears(); c.Op != job.OpAnswered {
				t.Errorf("report %+v, want an answer", c)
			} else {
				o.says(m, job.TurnSettled)
			}
		}
		if m, c := o.hears(); c.Op != job.OpSettle || c.Status != job.SettledDone {
			t.Errorf("report %+v, want the end", c)
		} else {
			o.says(m, job.TurnSettled)
		}
	}
}
