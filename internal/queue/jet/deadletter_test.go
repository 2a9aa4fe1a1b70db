package jet

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/queue/embedded"
)

func TestBury(t *testing.T) {
	b := newBroker(t)
	stored := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	d := DeadLetter{
		Policy:    "stripe",
		Key:       mustKey(t, "tenant 7"),
		Seq:       42,
		Partition: 3,
		Stored:    stored,
		Reason:    "attempts",
		Error:     "line 1\r\nline 2: " + strings.Repeat("é", 5000),
		Attempts:  5,
		Body:      []byte("body"),
		Header: nats.Header{"Content-Type": {"text/plain"}, "penstock-dead-reason": {"mine"},
			"Nats-Msg-Id":                 {"x"},
			"nats-expected-last-sequence": {"7"}},
	}
	for range 2 {
		if _, err := b.Letters(d.Policy).Bury(natstest.Context(t), d); err != nil {
			t.Fatal(err)
		}
	}
	recreated := d
	recreated.Stored = stored.Add(time.Hour)
	if _, err := b.Letters("stripe").Bury(natstest.Context(t), recreated); err != nil {
		t.Fatal(err)
	}
	info, err := b.js.StreamInfo(natstest.Context(t), "PENSTOCK_DEAD_stripe", "")
	if err != nil || info.State.Msgs != 2 {
		t.Fatalf("%d letters, %v; want one for each job", info.State.Msgs, err)
	}
	m, err := b.js.Message(natstest.Context(t), "PENSTOCK_DEAD_stripe", map[string]uint64{"seq": 1})
	if err != nil {
		t.Fatal(err)
	}
	if m.Subject != "penstock.dead.stripe.tenant%207" || string(m.Data) != "body" {
		t.Errorf("got %+v", m)
	}
	for name, want := range map[string]string{
		HeaderDeadReason: "attempts", headerDeadAttempts: "5", headerDeadJob: "stripe:42",
		headerDeadPartition: "3",
		headerDeadStored:    "2026-03-01T12:00:00.123456789Z", "Content-Type": "text/plain",
		"penstock-dead-reason":        "",
		"nats-expected-last-sequence": "",
	} {
		if got := m.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if text := m.Header.Get(HeaderDeadError); !strings.HasPrefix(text, "line 1  line 2: éé") ||
		len(text) > deadErrorBytes ||
		strings.ContainsRune(text, '\uFFFD') {
		t.Errorf("the error became %d bytes: %.40q…", len(text), text)
	}
}

// TestBuryALargestJob checks that every accepted job fits as a dead letter, too.
func TestBuryALargestJob(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 10, 1))
	k := mustKey(t, strings.Repeat("é", 128))
	ack, err := request(t, b.nc, b.names.Jobs("stripe", k),
		strings.Repeat("x", embedded.MaxPayload-headroom-1), nil)
	if err != nil {
		t.Fatal(err)
	}
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	receive(t, l, 1)
	a := bodyOf(t, l, ack.Seq)
	if _, err := b.Letters("stripe").Bury(natstest.Context(t),
		DeadLetter{Policy: "stripe", Key: a.Key, Seq: a.Seq, Stored: a.Stored, Reason: "deadline",
			Error: strings.Repeat("x", 10_000), Header: a.Header, Body: a.Body}); err != nil {
		t.Error(err)
	}
}

func TestBuryWithoutAStream(t *testing.T) {
	nc := natstest.New(t)
	b, err := NewBroker(nc, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Letters("stripe").Bury(natstest.Context(t),
		DeadLetter{Policy: "stripe", Key: "a"}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = b.Letters("stripe").Bury(ctx, DeadLetter{Policy: "stripe", Key: "a"})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's end", err)
	}
}
