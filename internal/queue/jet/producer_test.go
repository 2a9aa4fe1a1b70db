package jet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

func TestPublish(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 2, 8))
	p := b.NewProducer(ProducerOptions{})
	k := mustKey(t, "tenant 7")
	header := nats.Header{"Penstock-Cost": {"3"}, "Nats-Expected-Last-Sequence": {"99"},
		"nats-ttl": {"1s"}}
	r, err := p.Publish(natstest.Context(t),
		Submission{Policy: "stripe", Key: k, Header: header, Body: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	if r.Seq != 1 || r.Duplicate {
		t.Errorf("got %+v", r)
	}
	if len(header) != 3 {
		t.Errorf("the caller's header was changed: %v", header)
	}
	l := open(t, b, BacklogOptions{Policy: "stripe",
		Partition: job.Partition("penstock.jobs.stripe.tenant%207", 8), Partitions: 8, Epoch: 1})
	a := receive(t, l, 1)[0]
	if a.Key != k || a.Cost != 3 || string(a.Body) != "x" ||
		job.HeaderValue(a.Header, "nats-ttl") != "" || a.Malformed != nil {
		t.Errorf("got %+v", a)
	}

	if _, err := p.Publish(natstest.Context(t), Submission{Policy: "stripe", Key: k}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Publish(natstest.Context(t),
		Submission{Policy: "stripe", Key: k}); !errors.Is(err, ErrFull) {
		t.Errorf("a third job: %v, want ErrFull", err)
	}
	if _, err := p.Publish(natstest.Context(t), Submission{Policy: "stripe", Key: "other"}); err !=
		nil {
		t.Errorf("another bucket: %v", err)
	}
}

func TestPublishAdmitted(t *testing.T) {
	b := newBroker(t)
	apply(t, b, door("search", 10, 2))
	p := b.NewProducer(ProducerOptions{})
	if _, err := p.Publish(natstest.Context(t),
		Submission{Policy: "search", Key: "a", Admitted: true}); err != nil {
		t.Error(err)
	}
	if _, err := p.Publish(natstest.Context(t),
		Submission{Policy: "search", Key: "a"}); !errors.Is(err, ErrNoStream) {
		t.Errorf("past the door: %v, want ErrNoStream", err)
	}
}

func TestPublishIdempotently(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 1, 8))
	p := b.NewProducer(ProducerOptions{})
	j := Submission{Policy: "stripe", Key: "a", IdempotencyKey: "order-1"}
	first, err := p.Publish(natstest.Context(t), j)
	if err != nil || first.Duplicate {
		t.Fatalf("got %+v, %v", first, err)
	}
	again, err := p.Publish(natstest.Context(t), j)
	if err != nil || !again.Duplicate || again.Seq != first.Seq {
		t.Errorf("a repeat to a full bucket: %+v, %v; want job %d again", again, err, first.Seq)
	}
	j.Key = "b"
	if other, err := p.Publish(natstest.Context(t), j); err != nil || other.Duplicate {
		t.Errorf("another tenant's order-1: %+v, %v", other, err)
	}
	j.IdempotencyKey = "order-2"
	if _, err := p.Publish(natstest.Context(t), j); !errors.Is(err, ErrFull) {
		t.Errorf("got %v, want ErrFull", err)
	}
	// The refused job's id can be used again.
	l := open(t, b,
		BacklogOptions{Policy: "stripe", Partition: job.Partition("penstock.jobs.stripe.b", 8),
			Partitions: 8, Epoch: 1})
	got := receive(t, l, 1)[0]
	if id := job.HeaderValue(got.Header, job.HeaderIdempotencyKey); id != "order-1" {
		t.Errorf("the job's Idempotency-Key is %q", id)
	}
	l.Done(got.Seq)
	confirm(t, l, 1)
	if r, err := p.Publish(natstest.Context(t), j); err != nil || r.Duplicate {
		t.Errorf("once there is room: %+v, %v", r, err)
	}
}

func TestMessageID(t *testing.T) {
	seen := map[string]string{}
	for _, key := range []string{"order 1", "a/b", "é", "a\nb", " a", "a ", "a",
		strings.Repeat("x", 256), strings.Repeat("x", 257)} {
		id := messageID("k", key)
		if other, taken := seen[id]; taken {
			t.Errorf("%q and %q are both %q", key, other, id)
		}
		seen[id] = key
		if len(id) > 300 || strings.ContainsAny(id, "\r\né") {
			t.Errorf("%q became %q", key, id)
		}
	}
	if id := messageID("tenant-7", "order 1"); id != "tenant-7 order 1" {
		t.Errorf("got %q", id)
	}
}

func TestPublishErrors(t *testing.T) {
	s := natstest.Start(t, embedded.Options{})
	b := brokerOver(t, natstest.Connect(t, s))
	apply(t, b, paced("stripe", 10, 1))
	p := b.NewProducer(ProducerOptions{})
	for _, size := range []int{embedded.MaxPayload - 32<<10, embedded.MaxPayload + 1} {
		_, err := p.Publish(natstest.Context(t),
			Submission{Policy: "stripe", Key: "a", Body: bytes.Repeat([]byte("x"), size)})
		if !errors.Is(err, ErrTooLarge) {
			t.Errorf("%d bytes: %v, want ErrTooLarge", size, err)
		}
	}
	if _, err := p.Publish(natstest.Context(t),
		Submission{Policy: "nowhere", Key: "a"}); !errors.Is(err, ErrNoStream) {
		t.Errorf("an unknown policy: %v, want ErrNoStream", err)
	}
	if _, err := b.Retire(natstest.Context(t), "stripe"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Publish(natstest.Context(t),
		Submission{Policy: "stripe", Key: "a"}); !errors.Is(err, ErrNoStream) {
		t.Errorf("a retired policy: %v, want ErrNoStream", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := p.Publish(ctx, Submission{Policy: "stripe", Key: "a"}); !errors.Is(err,
		ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("after the context's end: %v", err)
	}
	b.nc.Close()
	if _, err := p.Publish(natstest.Context(t),
		Submission{Policy: "stripe", Key: "a"}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("over a closed connection: %v, want ErrUnavailable", err)
	}
}

func TestPublishToAFullStream(t *testing.T) {
	b := newBroker(t)
	p := paced("stripe", 3, 1)
	p.MaxJobs = 3
	apply(t, b, p)
	publish(t, b, "stripe", "a", 3)
	_, err := b.NewProducer(ProducerOptions{}).Publish(natstest.Context(t),
		Submission{Policy: "stripe", Key: "b"})
	if !errors.Is(err, ErrMostJobs) || !errors.Is(err, ErrStreamFull) || errors.Is(err, ErrFull) {
		t.Errorf("got %v, want ErrMostJobs", err)
	}
}

func TestPublishWaitsAtAClosedDoor(t *testing.T) {
	b := newBroker(t)
	p := paced("stripe", 10, 1)
	apply(t, b, p)
	if _, err := b.shut(natstest.Context(t), "stripe", b.streamConfig(p)); err != nil {
		t.Fatal(err)
	}
	published := make(chan error, 1)
	go func() {
		_, err := b.NewProducer(ProducerOptions{}).Publish(natstest.Context(t),
			Submission{Policy: "stripe", Key: "a"})
		published <- err
	}()
	select {
	case err := <-published:
		t.Fatalf("published through a closed door: %v", err)
	case <-time.After(30 * time.Millisecond):
	}
	apply(t, b, p)
	if err := <-published; err != nil {
		t.Error(err)
	}
}

// The tests lose an answer, answer that the id is in progress, and report a duplicate of the
// producer's own attempt: one job is stored, and not reported as a repeat.
func TestPublishIsRepeated(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	ids := make(chan string, 8)
	answers := []string{
		"",
		`{"error":{"code":409,"err_code":10158,"description":"duplicate message id is in process"},"stream":"PENSTOCK_x"}`,
		`{"stream":"PENSTOCK_x","seq":7,"duplicate":true}`,
	}
	n := 0
	sub, err := b.nc.Subscribe("penstock.jobs.x.>", func(m *nats.Msg) {
		ids <- m.Header.Get("Nats-Msg-Id")
		if answer := answers[n%len(answers)]; answer != "" {
			_ = m.Respond([]byte(answer))
		}
		n++
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	p := b.NewProducer(ProducerOptions{})
	for _, key := range []string{"", "order-1"} {
		r, err := p.Publish(natstest.Context(t),
			Submission{Policy: "x", Key: "a", IdempotencyKey: key})
		if err != nil || r.Seq != 7 || r.Duplicate != (key != "") {
			t.Errorf("got %+v, %v", r, err)
		}
		first := <-ids
		if second, third := <-ids, <-ids; first == "" || second != first || third != first {
			t.Errorf("ids %q, %q, %q", first, second, third)
		}
	}
}

func TestPublishIsRepeatedOverAReconnect(t *testing.T) {
	t.Parallel()
	dir, address := t.TempDir(), proctest.FreeAddress(t)
	s := natstest.Start(t, embedded.Options{Dir: dir, Listen: address})
	nc := natstest.Reconnecting(t, s.URL())
	b := brokerOver(t, nc)
	apply(t, b, paced("stripe", 100_000, 4))
	p := b.NewProducer(ProducerOptions{})

	const publishers, each = 16, 50
	var wg sync.WaitGroup
	half := make(chan struct{}, publishers)
	for i := range publishers {
		wg.Go(func() {
			for j := range each {
				if j == each/2 {
					half <- struct{}{}
				}
				if _, err := p.Publish(natstest.Context(t),
					Submission{Policy: "stripe", Key: queue.Key(fmt.Sprint("k", i))}); err != nil {
					t.Errorf("publish: %v", err)
					return
				}
			}
		})
	}
	<-half
	s.Shutdown()
	natstest.Start(t, embedded.Options{Dir: dir, Listen: address})
	wg.Wait()
	if n, err := b.Depth(natstest.Context(t), "stripe"); err != nil || n != publishers*each {
		t.Errorf("%d jobs are stored, want %d; %v", n, publishers*each, err)
	}
}

func TestMaxInFlight(t *testing.T) {
	b := newBroker(t)
	p := b.NewProducer(ProducerOptions{})
	for range cap(p.slots) {
		p.slots <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	if _, err := p.Publish(ctx, Submission{Policy: "stripe", Key: "a"}); !errors.Is(err,
		ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}

// The caller may reuse the body of an abandoned publish.
func TestAGivenUpPublishIsNotRead(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 1000, 8))
	p := b.NewProducer(ProducerOptions{})
	var publishing sync.WaitGroup
	for i := range 8 {
		publishing.Go(func() {
			body := make([]byte, 64<<10)
			for n := range 100 {
				ctx, cancel := context.WithCancel(t.Context())
				wait := p.Send(ctx, Submission{Policy: "stripe", Key: queue.Key(fmt.Sprint("k", i)),
					Body: body})
				runtime.Gosched()
				cancel()
				_, _ = wait(ctx) // either answer is right
				body[0] = byte(n)
			}
		})
	}
	publishing.Wait()
}
