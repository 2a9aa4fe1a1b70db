package queue

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue/embedded"
)

// TestTheEndOfAJobLeadsToItsLetter: who asks for a dead job is told where its letter is, and of which job it became part
// when somebody replayed it.
func TestTheEndOfAJobLeadsToItsLetter(t *testing.T) {
	b := newBroker(t)
	ctx := testContext(t)
	p := b.NewProducer(ProducerOptions{})
	put := paced("stripe", 5, 2)
	if _, err := b.PutPolicy(ctx, put); err != nil {
		t.Fatal(err)
	}
	apply(t, b, put)
	if _, err := b.Ended(ctx, "stripe", 7); !errors.Is(err, ErrNotFound) {
		t.Errorf("a job that never was: %v", err)
	}
	stored := time.Now().UTC()
	header := nats.Header{"Idempotency-Key": {"order-1"}}
	id := bury(t, b, DeadLetter{Policy: "stripe", Key: "a", Seq: 7, Stored: stored, Reason: "attempts", Header: header,
		Body: []byte("x")})
	e, err := b.Ended(ctx, "stripe", 7)
	if err != nil || e.How != EndDead || e.Letter != id || !e.Accepted.Equal(stored) || e.Sum != PayloadSum(nil, []byte("x")) {
		t.Errorf("got %+v, %v; want letter %d", e, err, id)
	}
	receipt, err := p.Replay(ctx, "stripe", id)
	if err != nil {
		t.Fatal(err)
	}
	if e, err = b.Ended(ctx, "stripe", 7); err != nil || e.How != EndReplayed || e.Job != receipt.Seq || e.Letter != id {
		t.Errorf("got %+v, %v; want it replayed as %d", e, err, receipt.Seq)
	}
}

func TestADoneJobIsRememberedForAWhile(t *testing.T) {
	b := newBroker(t)
	if err := b.NoteDone("stripe", 3, Ended{Accepted: time.Now(), Sum: "x"}, time.Second); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the job is known to be done", func() bool {
		e, err := b.Ended(testContext(t), "stripe", 3)
		return err == nil && e.How == EndDone && e.Sum == "x"
	})
	eventually(t, "it is forgotten", func() bool {
		_, err := b.Ended(testContext(t), "stripe", 3)
		return errors.Is(err, ErrNotFound)
	})
}

func TestPayloadSumTellsPayloadsApart(t *testing.T) {
	seen := map[string]int{}
	for i, c := range []struct {
		header nats.Header
		body   string
	}{
		{nil, ""}, {nil, "x"}, {nats.Header{"Penstock-Method": {"PUT"}}, "x"}, {nats.Header{"Penstock-Path": {"PUT"}}, "x"},
		{nats.Header{"Penstock-Path": {"/a"}}, "b"}, {nats.Header{"Penstock-Path": {"/ab"}}, ""},
	} {
		sum := PayloadSum(c.header, []byte(c.body))
		if other, taken := seen[sum]; taken {
			t.Errorf("cases %d and %d have one sum", other, i)
		}
		seen[sum] = i
	}
	if PayloadSum(nats.Header{"penstock-path": {" /a"}, "traceparent": {"1"}}, nil) != PayloadSum(nats.Header{"Penstock-Path": {"/a"}}, nil) {
		t.Error("case, space around a value or a trace make another payload")
	}
}

// TestALetterThatTheServerDoesNotTakeLeavesItsBodyOut: a job that was stored before the server's largest message became
// smaller kept its bucket's place for ever.
func TestALetterThatTheServerDoesNotTakeLeavesItsBodyOut(t *testing.T) {
	b := newBroker(t)
	id := bury(t, b, DeadLetter{Policy: "stripe", Key: "a", Seq: 7, Body: make([]byte, b.nc.MaxPayload())})
	if l, err := b.DeadLetter(testContext(t), "stripe", id); err != nil || len(l.Body) > 0 || !l.Bodyless {
		t.Errorf("the letter has %d bytes, %v", len(l.Body), err)
	}
}

// TestRepeatsAreToldAfterARestartOfTheServer: what a single server holds in memory is gone then, the table of done jobs as a
// whole. Repeats were unavailable until somebody set the installation up anew.
func TestRepeatsAreToldAfterARestartOfTheServer(t *testing.T) {
	dir := t.TempDir()
	server := startServer(t, embedded.Options{Dir: dir})
	b := brokerOver(t, connect(t, server))
	apply(t, b, paced("stripe", 10, 1))
	job := Submission{Policy: "stripe", Key: "a", IdempotencyKey: "order-1"}
	if _, err := b.NewProducer(ProducerOptions{}).Publish(testContext(t), job); err != nil {
		t.Fatal(err)
	}
	server.Shutdown()
	nc := connect(t, startServer(t, embedded.Options{Dir: dir}))
	b, err := NewBroker(nc, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := b.NewProducer(ProducerOptions{}).Publish(testContext(t), job); err != nil || !r.Duplicate {
		t.Errorf("got %+v, %v", r, err)
	}
	if err := b.NoteDone("stripe", 9, Ended{Accepted: time.Now()}, time.Minute); err != nil {
		t.Fatal(err)
	}
	eventually(t, "done jobs are noted again", func() bool {
		e, err := b.Ended(testContext(t), "stripe", 9)
		return err == nil && e.How == EndDone
	})
}
