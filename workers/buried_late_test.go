package workers

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// A process suspended for longer than its lease does not bury a job that its successor has run.
func TestAProcessThatStoodStillBuriesNoJobOfAnother(t *testing.T) {
	p := leaky("api", "100/s")
	p.Partitions = 1
	b := newBench(t, p)
	d, err := New(b.connect(), Options{Lease: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	begun, over := make(chan struct{}), make(chan struct{})
	d.Handle("api", func(context.Context, Job) error {
		close(begun)
		<-over
		return Permanent(errors.New("no"))
	})
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan error, 1)
	go func() { end <- d.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-end; err != nil {
			t.Error(err)
		}
	}()
	b.publish("api", "a", 0, 1)
	<-begun

	still, taken, performed, looked := make(chan struct{}), make(chan struct{}),
		make(chan struct{}), make(chan struct{})
	var id string
	go d.post(func(pace.Instant) {
		id = d.core.Lease.Id
		close(still)
		<-taken
		close(over)
		ended, now := <-d.pool.results, d.now()
		d.core.Handle(ended, now)
		d.core.Decide(now)
		d.gate.set(d.core.Fence(), d.gate.heard.Load())
		d.core.Perform(performer{d.parts})
		close(performed)
		<-looked
	})
	<-still
	var ran seen
	b.drain(Options{}, map[string]Handler{"api": ran.handle})
	b.empty("api")
	close(taken)
	<-performed
	js, err := b.nc.JetStream(nats.MaxWait(deadline))
	if err != nil {
		t.Fatal(err)
	}
	letter := func() *nats.RawStreamMsg {
		m, err := js.GetLastMsg("PENSTOCK_DEAD_api", "penstock.dead.api.a")
		if err != nil {
			return nil
		}
		return m
	}
	b.until("it has tried to bury the job", func() bool {
		d.calls.mu.Lock()
		defer d.calls.mu.Unlock()
		return d.calls.lines[purpose{"api", "store dead letter"}] == nil || letter() != nil
	})
	close(looked)
	b.until("it has heard that it is dead", func() bool {
		heard := make(chan bool, 1)
		d.post(func(pace.Instant) { heard <- d.core.Lease.Id != id })
		return <-heard
	})
	if m := letter(); m != nil {
		t.Errorf("a letter says %q of a job that %d runs have done",
			m.Header.Get("Penstock-Dead-Reason"), len(ran.bodies("a")))
	}
}
