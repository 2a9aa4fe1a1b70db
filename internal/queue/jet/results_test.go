package jet

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// TestTheEndOfAJobLeadsToItsLetter asks for a dead job, and gets its letter, or the job that
// replayed it.
func TestTheEndOfAJobLeadsToItsLetter(t *testing.T) {
	b := newBroker(t)
	ctx := natstest.Context(t)
	p := b.NewProducer(ProducerOptions{})
	put := paced("stripe", 5, 2)
	apply(t, b, put)
	if _, err := b.Results().Read(ctx, "stripe", 7); !errors.Is(err, ErrNotFound) {
		t.Errorf("a job that never was: %v", err)
	}
	stored := time.Now().UTC()
	header := nats.Header{"Idempotency-Key": {"order-1"}}
	id := bury(t, b,
		DeadLetter{Policy: "stripe", Key: "a", Seq: 7, Stored: stored, Reason: "attempts",
			Header: header,
			Body:   []byte("x")})
	e, err := b.Results().Read(ctx, "stripe", 7)
	if err != nil || e.How != queue.EndDead || e.Letter != id || !e.Accepted.Equal(stored) ||
		e.Sum != job.PayloadSum(nil, []byte("x")) {
		t.Errorf("got %+v, %v; want letter %d", e, err, id)
	}
	receipt, err := p.Replay(ctx, "stripe", id)
	if err != nil {
		t.Fatal(err)
	}
	if e, err = b.Results().Read(ctx, "stripe", 7); err != nil || e.How != queue.EndReplayed ||
		e.Job != receipt.Seq || e.Letter != id {
		t.Errorf("got %+v, %v; want it replayed as %d", e, err, receipt.Seq)
	}
}

func TestADoneJobIsRememberedForAWhile(t *testing.T) {
	b := newBroker(t)
	if err := b.Results().NoteDone("stripe", 3, job.Ended{Accepted: time.Now(), Sum: "x"},
		time.Second); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the job is known to be done", func() bool {
		e, err := b.Results().Read(natstest.Context(t), "stripe", 3)
		return err == nil && e.How == queue.EndDone && e.Sum == "x"
	})
	waittest.Until(t, "it is forgotten", func() bool {
		_, err := b.Results().Read(natstest.Context(t), "stripe", 3)
		return errors.Is(err, ErrNotFound)
	})
}

func TestPayloadSumTellsPayloadsApart(t *testing.T) {
	seen := map[string]int{}
	for i, c := range []struct {
		header nats.Header
		body   string
	}{
		{nil, ""}, {nil, "x"}, {nats.Header{"Penstock-Method": {"PUT"}}, "x"},
		{nats.Header{"Penstock-Path": {"PUT"}}, "x"},
		{nats.Header{"Penstock-Path": {"/a"}}, "b"}, {nats.Header{"Penstock-Path": {"/ab"}}, ""},
	} {
		sum := job.PayloadSum(c.header, []byte(c.body))
		if other, taken := seen[sum]; taken {
			t.Errorf("cases %d and %d have one sum", other, i)
		}
		seen[sum] = i
	}
	if job.PayloadSum(nats.Header{"penstock-path": {" /a"}, "traceparent": {"1"}}, nil) !=
		job.PayloadSum(nats.Header{"Penstock-Path": {"/a"}}, nil) {
		t.Error("case, space around a value or a trace make another payload")
	}
}

// TestALetterThatTheServerDoesNotTakeLeavesItsBodyOut buries a job stored before the server's
// largest message became smaller; it once occupied its bucket permanently.
func TestALetterThatTheServerDoesNotTakeLeavesItsBodyOut(t *testing.T) {
	b := newBroker(t)
	id := bury(t, b,
		DeadLetter{Policy: "stripe", Key: "a", Seq: 7, Body: make([]byte, b.nc.MaxPayload())})
	if l, err := b.Letters("stripe").Read(natstest.Context(t), id); err != nil || len(l.Body) > 0 ||
		!l.Bodyless {
		t.Errorf("the letter has %d bytes, %v", len(l.Body), err)
	}
}

// TestRepeatsAreRecognizedAfterARestart restarts a single server, which loses the table of done
// jobs in memory.
func TestRepeatsAreRecognizedAfterARestart(t *testing.T) {
	dir := t.TempDir()
	server := natstest.Start(t, embedded.Options{Dir: dir})
	b := brokerOver(t, natstest.Connect(t, server))
	apply(t, b, paced("stripe", 10, 1))
	j := Submission{Policy: "stripe", Key: "a", IdempotencyKey: "order-1"}
	if _, err := b.NewProducer(ProducerOptions{}).Publish(natstest.Context(t), j); err != nil {
		t.Fatal(err)
	}
	server.Shutdown()
	nc := natstest.Connect(t, natstest.Start(t, embedded.Options{Dir: dir}))
	b, err := NewBroker(nc, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := b.NewProducer(ProducerOptions{}).Publish(natstest.Context(t), j); err != nil ||
		!r.Duplicate {
		t.Errorf("got %+v, %v", r, err)
	}
	if err := b.Results().NoteDone("stripe", 9, job.Ended{Accepted: time.Now()},
		time.Minute); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "done jobs are noted again", func() bool {
		e, err := b.Results().Read(natstest.Context(t), "stripe", 9)
		return err == nil && e.How == queue.EndDone
	})
}
