package queue

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/penstock-mq/penstock/internal/waittest"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/natstest"
	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

func TestLeanBacklog(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 100, 1))
	body := bytes.Repeat([]byte("x"), 9000)
	header := nats.Header{"Penstock-Cost": {"2"}}
	for range 3 {
		if _, err := request(t, b.nc, "penstock.jobs.stripe.a", string(body), header); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, b, "stripe", "a", 1)
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	arrived := receive(t, l, 4)
	for i, a := range arrived[:3] {
		if !a.Lean || a.Body != nil || a.Size != len(body) || a.Cost != 2 || len(a.Header) != 1 {
			t.Fatalf("arrival %d is %+v", i, a)
		}
		full, err := l.Body(natstest.Context(t), a.Seq)
		if err != nil || !bytes.Equal(full.Body, body) || full.Lean || full.Size != len(body) ||
			full.Key != a.Key || full.Cost != 2 ||
			!full.Stored.Equal(a.Stored) || len(full.Header) != 1 {
			t.Fatalf("the whole of arrival %d is %+v, %v", i, full, err)
		}
	}
	if a := arrived[3]; a.Size != 1 || a.Header != nil || !a.Lean {
		t.Errorf("a small one is %+v", a)
	}
	if _, err := l.Body(natstest.Context(t), 99); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}

// TestSlowReaderPausesPulling: more is stored than may wait in memory, the reader takes its time,
// and nothing is dropped.
func TestSlowReaderPausesPulling(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 100_000, 1))
	const jobs = 3 * jsapi.PullOpen
	flood(t, b, jobs)
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	consumer, err := b.js.Consumer(natstest.Context(t), "PENSTOCK_stripe", "valve-0-1")
	if err != nil {
		t.Fatal(err)
	}
	delivered := func() uint64 {
		info, err := consumer.Info(natstest.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		return info.Delivered.Consumer
	}
	waittest.Until(t, "the open pulls are served", func() bool {
		return delivered() >= jsapi.PullOpen
	})
	if n := delivered(); n > jsapi.PullOpen+jsapi.PullBatch {
		t.Errorf("%d are delivered that nobody has taken", n)
	}
	receive(t, l, jobs)
}

// TestBodiesInMemoryAreBounded: a pull ends early when what it brings is large, and the next one
// goes on.
func TestLargeBodiesFlowInBoundedPulls(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 100, 1))
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1}) // empty stream: with bodies
	body := string(make([]byte, 1<<20))
	const jobs = shapeBytes>>20 - 1 // more than a pull brings, and no reason to open it anew
	for i := range jobs {
		if _, err := request(t, b.nc, b.names.Jobs("stripe", job.Key(fmt.Sprint(i))), body,
			nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range receive(t, l, jobs) {
		if len(a.Body) != len(body) {
			t.Fatalf("got %d bytes", len(a.Body))
		}
	}
}
