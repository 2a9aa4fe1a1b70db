package workers

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/seldom"
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
	j := Job{settled: &settled{answer: func() { reports++ }}}
	call(t.Context(), quiet(), time.Minute, func(_ context.Context, j Job) error {
		j.Answered()
		j.Answered()
		return nil
	}, 1, j)
	if reports != 1 {
		t.Errorf("%d reports of an answer", reports)
	}
	j.settled = &settled{answer: func() { reports++ }}
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
