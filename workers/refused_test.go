package workers

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
)

// The job would run again, because its end could not be stored.
func TestNothingStartsWhileNothingCanBeStored(t *testing.T) {
	t.Parallel()
	b := newBench(t, leaky("api", "1000/s"))
	var ran atomic.Int64
	d, stop := b.drainer(Options{}, map[string]Handler{
		"api": func(context.Context, Job) error { ran.Add(1); return nil }})
	b.publish("api", "a", 0, 10)
	b.until("jobs run", func() bool { return ran.Load() == 10 })
	d.Refuse(errors.New("the disk is full"))
	b.until("the fence is closed", func() bool {
		fence, now := d.gate.check()
		return now >= fence
	})
	b.publish("api", "a", 10, 10)
	b.until("it says why jobs wait", func() bool {
		s := b.bucket("api", "a")
		return s.Waiting == 10 && s.By == job.BlockedByStorage
	})
	if n := ran.Load(); n != 10 {
		t.Errorf("%d jobs started", n-10)
	}
	if err := d.Health(); !errors.Is(err, jet.ErrStorage) {
		t.Errorf("it feels %v", err)
	}
	d.Refuse(nil)
	b.until("the others run", func() bool { return ran.Load() == 20 })
	b.until("it is well", func() bool { return d.Health() == nil })
	stop()
}

func TestADrainerDoesNotWaitForAHandoverThatCannotBeStored(t *testing.T) {
	t.Parallel()
	b := newBench(t, leaky("api", "1000/s"))
	d, err := New(b.connect(), Options{Grace: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	started, end := make(chan struct{}), make(chan struct{})
	d.Handle("api", func(context.Context, Job) error {
		close(started)
		<-end
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	b.publish("api", "a", 0, 1)
	b.receive("a job runs", started)
	d.Refuse(errors.New("the disk is full"))
	b.until("the fence is closed", func() bool {
		fence, now := d.gate.check()
		return now >= fence
	})
	cancel()
	leaves := func() bool { return d.core.Leaving }
	b.until("it leaves", func() bool {
		leaving, _ := ask(d.loop, leaves)
		return leaving
	})
	if _, runs := ask(d.loop, leaves); !runs {
		t.Error("it left its running job")
	}
	close(end)
	select {
	case err := <-ended:
		if !errors.Is(err, errUnwritten) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(deadline):
		t.Error("it waits")
	}
}
