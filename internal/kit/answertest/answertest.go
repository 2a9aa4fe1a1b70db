// Package answertest tells what the ends of jobs say of their targets' answers.
package answertest

import (
	"context"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers"
	"github.com/penstock-mq/penstock/workers/workerstest"
)

// Run runs a job of each policy at its target, and returns what their first ends say of answers: by
// policy "none", "unsent", or "" if one has begun.
func Run(t testing.TB, target func(inforce.Entry) (workers.Handler, error),
	policies ...policy.Policy) map[string]string {
	t.Helper()
	kit := workerstest.New(t, policies...)
	ends := make(chan queue.Event, 1000)
	drainer, err := workers.New(kit.Connect(), workers.Options{
		Target: target,
		Sink: queue.SinkFunc(func(e queue.Event) {
			switch e.Type {
			case queue.EventDone, queue.EventFailed, queue.EventThrottled, jet.EventUncounted:
				ends <- e
			}
		})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- drainer.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	}()
	producer := kit.Broker().NewProducer(jet.ProducerOptions{})
	for _, p := range policies {
		if _, err := producer.Publish(t.Context(), jet.Submission{Policy: p.Name,
			Key: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	answers := map[string]string{}
	for patience := time.After(waittest.Patience()); len(answers) < len(policies); {
		select {
		case e := <-ends:
			if _, known := answers[e.Policy]; !known {
				answers[e.Policy] = e.Answer
			}
		case <-patience:
			t.Fatalf("%d of %d jobs have run", len(answers), len(policies))
		}
	}
	return answers
}
