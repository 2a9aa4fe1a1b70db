package workers_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers"
	"github.com/penstock-mq/penstock/workers/workerstest"
)

func TestAMalformedPatternPanics(t *testing.T) {
	d, err := workers.New(workerstest.New(t).Connect(), workers.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a handler of mail-[ is taken, and would never run")
		}
	}()
	d.Handle("mail-[", func(context.Context, workers.Job) error { return nil })
}

func TestOneWorkerRunsManyPolicies(t *testing.T) {
	urgent, bulk, other := workerstest.Policy("mail-urgent", "100000/s"),
		workerstest.Policy("mail-bulk", "100000/s"), workerstest.Policy("other", "100000/s")
	urgent.Weight = 4
	kit := workerstest.New(t, urgent, bulk, other)
	d, err := workers.New(kit.Connect(), workers.Options{Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var order strings.Builder
	started, first := make(chan struct{}), make(chan struct{})
	ran := func(as string) workers.Handler {
		return func(_ context.Context, j workers.Job) error {
			if as == "o" {
				close(started)
				<-first
			}
			mu.Lock()
			defer mu.Unlock()
			order.WriteString(as)
			return nil
		}
	}
	d.Handle("*", ran("o"))
	d.Handle("mail-*", ran("b"))
	d.Handle("mail-urgent", ran("u"))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	kit.Publish("other", "", nil, 1)
	select {
	case <-started:
	case <-time.After(waittest.Patience()):
		t.Fatal("the job of other has not started")
	}
	const jobs = 24
	for _, policy := range []string{"mail-urgent", "mail-bulk"} {
		kit.Publish(policy, "", nil, jobs)
		waittest.Until(t, "its jobs wait for a slot", func() bool {
			a, err := d.AskValve(t.Context(), policy, 0,
				job.Question{Op: job.OpBucket, Key: "_"})
			return err == nil && a.Bucket != nil && a.Bucket.Depth == jobs &&
				a.Bucket.By == job.BlockedByWorkersBusy
		})
	}
	close(first)
	for _, policy := range []string{"mail-urgent", "mail-bulk"} {
		kit.Wait(policy, jobs)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	want := "o" + strings.Repeat("buuuu", jobs/4) + strings.Repeat("b", jobs-jobs/4)
	if order.String() != want {
		t.Errorf("the order is\n%s, want\n%s", order.String(), want)
	}
}
