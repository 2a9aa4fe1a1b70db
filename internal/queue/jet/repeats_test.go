package jet

import (
	"cmp"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

func TestARepeatGetsTheOutcomeOfItsJob(t *testing.T) {
	b := newBroker(t)
	ctx := natstest.Context(t)
	apply(t, b, paced("stripe", 10, 1))
	p := b.NewProducer(ProducerOptions{})
	remove := func(seq uint64) {
		t.Helper()
		if err := b.js.Call(ctx, "$JS.API.STREAM.MSG.DELETE.PENSTOCK_stripe",
			map[string]uint64{"seq": seq}, &struct{}{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		ended  *job.Ended
		gone   bool
		how    queue.End
		letter uint64
		seq    uint64
	}{
		{name: "waits"},
		{name: "cancelled", ended: &job.Ended{How: queue.EndCancelled}, gone: true,
			how: queue.EndCancelled},
		{name: "about to be purged", ended: &job.Ended{How: queue.EndPurged}, how: queue.EndPurged},
		{name: "dead", ended: &job.Ended{How: queue.EndDead, Letter: 7}, gone: true,
			how: queue.EndDead, letter: 7},
		{name: "replayed", ended: &job.Ended{How: queue.EndReplayed, Job: 1}, gone: true, seq: 1},
		{name: "of a former stream",
			ended: &job.Ended{How: queue.EndCancelled, Accepted: time.Now().Add(-time.Hour)},
			gone:  true},
		{name: "forgotten", gone: true},
	} {
		job := Submission{Policy: "stripe", Key: "a", IdempotencyKey: c.name, Body: []byte("x")}
		first, err := p.Publish(ctx, job)
		if err != nil || first.Duplicate {
			t.Fatalf("%s: %+v, %v", c.name, first, err)
		}
		if c.ended != nil {
			if c.ended.Accepted.IsZero() {
				c.ended.Accepted = time.Now()
			}
			if err := b.Results().Note(ctx, "stripe", first.Seq, *c.ended); err != nil {
				t.Fatal(err)
			}
		}
		if c.gone {
			remove(first.Seq)
		}
		r, err := p.Publish(ctx, job)
		gone, refused := errors.AsType[*EndedError](err)
		switch {
		case c.how != "":
			if !refused || gone.How != c.how || gone.Letter != c.letter || gone.Seq != first.Seq {
				t.Errorf("%s: %+v, %v", c.name, r, err)
			}
		case err != nil || !r.Duplicate || r.Seq != cmp.Or(c.seq, first.Seq):
			t.Errorf("%s: %+v, %v after %+v", c.name, r, err, first)
		}
	}
}

func TestAnotherPayloadIsNoRepeat(t *testing.T) {
	b := newBroker(t)
	ctx := natstest.Context(t)
	apply(t, b, paced("stripe", 10, 1))
	p := b.NewProducer(ProducerOptions{})
	first := Submission{Policy: "stripe", Key: "a", IdempotencyKey: "order-1", Body: []byte("x"),
		Header: nats.Header{"Penstock-Path": {"/a"}, "traceparent": {"1"}}}
	if _, err := p.Publish(ctx, first); err != nil {
		t.Fatal(err)
	}
	traced, body, path := first, first, first
	traced.Header = nats.Header{"Penstock-Path": {"/a"}, "traceparent": {"2"}}
	body.Body = []byte("y")
	path.Header = nats.Header{"Penstock-Path": {"/b"}}
	if r, err := p.Publish(ctx, traced); err != nil || !r.Duplicate {
		t.Errorf("the same in another trace: %+v, %v", r, err)
	}
	for name, other := range map[string]Submission{"body": body, "path": path} {
		if r, err := p.Publish(ctx, other); !errors.Is(err, ErrOtherPayload) {
			t.Errorf("another %s: %+v, %v", name, r, err)
		}
	}
	header := nats.Header{"Nats-Msg-Id": {"a order-2"}}
	if _, err := request(t, b.nc, "penstock.jobs.stripe.a", "x", header); err != nil {
		t.Fatal(err)
	}
	plain := Submission{Policy: "stripe", Key: "a", IdempotencyKey: "order-2", Body: []byte("x")}
	if r, err := p.Publish(ctx, plain); err != nil || !r.Duplicate {
		t.Errorf("what was published over NATS: %+v, %v", r, err)
	}
	plain.Body = []byte("y")
	if _, err := p.Publish(ctx, plain); !errors.Is(err, ErrOtherPayload) {
		t.Errorf("another payload than what was published over NATS: %v", err)
	}
	done := Submission{Policy: "stripe", Key: "a", IdempotencyKey: "order-3", Body: []byte("x")}
	receipt, err := p.Publish(ctx, done)
	if err != nil {
		t.Fatal(err)
	}
	ended := job.Ended{How: queue.EndDone, Accepted: time.Now(),
		Sum: job.PayloadSum(done.Header, done.Body)}
	if err := b.Results().Note(ctx, "stripe", receipt.Seq, ended); err != nil {
		t.Fatal(err)
	}
	if r, err := p.Publish(ctx, done); err != nil || !r.Duplicate {
		t.Errorf("the same as one that is done: %+v, %v", r, err)
	}
	done.Body = []byte("y")
	if _, err := p.Publish(ctx, done); !errors.Is(err, ErrOtherPayload) {
		t.Errorf("another payload than that of one that is done: %v", err)
	}
}

func TestTheDuplicateWindowIsThePolicys(t *testing.T) {
	b := newBroker(t)
	p := paced("stripe", 10, 1)
	for _, window := range []time.Duration{time.Hour, time.Second} {
		p.DuplicateWindow = policy.Duration(window)
		apply(t, b, p)
		if info, err := b.js.StreamInfo(natstest.Context(t), "PENSTOCK_stripe", ""); err != nil ||
			info.Config.Duplicates != window {
			t.Errorf("the stream's window is %v, %v; want %v", info.Config.Duplicates, err, window)
		}
	}
	job := Submission{Policy: "stripe", Key: "a", IdempotencyKey: "order-1"}
	producer := b.NewProducer(ProducerOptions{})
	if _, err := producer.Publish(natstest.Context(t), job); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the key can be used again", func() bool {
		r, err := producer.Publish(natstest.Context(t), job)
		return err == nil && !r.Duplicate
	})
}
