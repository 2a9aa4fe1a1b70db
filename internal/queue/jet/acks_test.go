package jet

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
)

func TestAcknowledgementsAreRepeated(t *testing.T) {
	t.Parallel()
	nc := natstest.New(t)
	js, err := jsapi.New(nc, "")
	if err != nil {
		t.Fatal(err)
	}
	a, err := newAcks(js, "S", "C")
	if err != nil {
		t.Fatal(err)
	}
	a.add(7) // without a subscriber the answer is "no responders"
	requests := make(chan *nats.Msg, 16)
	waittest.Until(t, "the first is sent", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.sent) == 1
	})
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.ChanSubscribe("$JS.ACK.S.C.>", requests); err != nil {
		t.Fatal(err)
	}
	deadline := time.NewTimer(natstest.Patience)
	defer deadline.Stop()
	for range 2 {
		select {
		case m := <-requests:
			if m.Subject != "$JS.ACK.S.C.1.7.0.0.0" {
				t.Fatalf("acknowledged on %s", m.Subject)
			}
		case <-deadline.C:
			t.Fatal("not repeated")
		}
	}
	m := <-requests
	for range 2 {
		if err := m.Respond(nil); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-a.news:
		if got := a.takeConfirmed(); !slices.Equal(got, []uint64{7}) {
			t.Errorf("confirmed %v", got)
		}
	case <-deadline.C:
		t.Fatal("not confirmed")
	}
	if left := a.close(); left != 0 {
		t.Errorf("%d left", left)
	}
}

// Only acknowledgements that the server has passed over are sent again, not those that it has not
// reached.
func TestSlowConfirmationsAreAwaited(t *testing.T) {
	start := time.Now().Add(-time.Hour)
	after := func(d time.Duration) time.Time { return start.Add(d) }
	a := &acks{sent: map[string]*group{}, news: make(chan struct{}, 1)}
	a.enter([]uint64{1, 2}, after(0))
	second := a.enter([]uint64{3}, after(0))
	third := a.enter([]uint64{4}, after(time.Second))
	a.enter([]uint64{5}, after(time.Second))
	a.heard = after(ackRepeat)
	expectOverdue := func(when string, now time.Duration, want ...uint64) {
		t.Helper()
		var got []uint64
		for _, g := range a.overdue(after(now)) {
			got = append(got, g.seqs...)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v is sent again, want %v", when, got, want)
		}
	}
	expectOverdue("at work", ackRepeat+time.Second)
	a.answered(&nats.Msg{Subject: second.reply})
	a.heard = after(ackRepeat + time.Second)
	expectOverdue("at work still", ackRepeat+time.Second)
	a.answered(&nats.Msg{Subject: third.reply})
	a.heard = after(ackRepeat + time.Second)
	expectOverdue("passed over", ackRepeat+time.Second, 1, 2)
	expectOverdue("just sent again", ackRepeat+time.Second)
	expectOverdue("silent", 2*ackRepeat+time.Second, 1, 2, 5)
}

// A group is confirmed once the server has confirmed all of it. Overdue ones are sent again alone.
func TestAGroupIsConfirmedAsAWhole(t *testing.T) {
	sent := time.Now().Add(-ackRepeat)
	a := &acks{sent: map[string]*group{}, news: make(chan struct{}, 1)}
	first := a.enter([]uint64{1, 2, 3}, sent)
	for n := range 3 {
		if got := a.takeConfirmed(); got != nil {
			t.Errorf("confirmed %v after %d answers of 3", got, n)
		}
		a.answered(&nats.Msg{Subject: first.reply})
	}
	if got := a.takeConfirmed(); !slices.Equal(got, []uint64{1, 2, 3}) || !a.idle() {
		t.Errorf("confirmed %v; idle: %t", got, a.idle())
	}
	second := a.enter([]uint64{4, 5}, sent)
	a.answered(&nats.Msg{Subject: second.reply})
	a.heard = sent
	again := a.overdue(sent.Add(ackRepeat))
	a.answered(&nats.Msg{Subject: second.reply})
	if len(again) != 2 || a.takeConfirmed() != nil {
		t.Fatalf("%d groups are sent again, want 2", len(again))
	}
	a.answered(&nats.Msg{Subject: again[0].reply})
	if got := a.takeConfirmed(); !slices.Equal(got, again[0].seqs) || a.pending != 1 {
		t.Errorf("confirmed %v, want %v; %d pending", got, again[0].seqs, a.pending)
	}
}

func TestAnAcknowledgementSentAgainCountsOnce(t *testing.T) {
	a := &acks{sent: map[string]*group{}, news: make(chan struct{}, 1)}
	former := a.enter([]uint64{1, 2}, time.Now())
	a.answered(&nats.Msg{Subject: former.reply})
	again := a.renew(time.Now())
	a.answered(&nats.Msg{Subject: former.reply})
	a.answered(&nats.Msg{Subject: again[0].reply})
	if got := a.takeConfirmed(); got != nil || a.pending != 2 {
		t.Errorf("confirmed %v, %d pending; want none, 2", got, a.pending)
	}
	a.answered(&nats.Msg{Subject: again[0].reply})
	if got := a.takeConfirmed(); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("confirmed %v, want 1 and 2", got)
	}
}

// A job that finished under the former owner is acknowledged as soon as the new consumer has
// delivered it.
func TestDoneBeforeArrival(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 100, 1))
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	l.Done(1)
	publish(t, b, "stripe", "a", 1)
	receive(t, l, 1)
	if got := confirm(t, l, 1); !got[1] {
		t.Errorf("confirmed %v", got)
	}
}

func TestCloseFlushesAcknowledgements(t *testing.T) {
	b := newBroker(t)
	apply(t, b, paced("stripe", 50_000, 1))
	const jobs, window = 2000, 500
	flood(t, b, jobs)
	l := open(t, b, BacklogOptions{Policy: "stripe", Epoch: 1})
	l.acks.mu.Lock()
	l.acks.window = window
	l.acks.mu.Unlock()
	for _, a := range receive(t, l, jobs) {
		l.Done(a.Seq)
	}
	if err := l.Close(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Depth(natstest.Context(t), "stripe"); err != nil || n != 0 {
		t.Errorf("depth %d, %v", n, err)
	}
	confirm(t, l, jobs)
	u, err := l.Next(natstest.Context(t))
	if err == nil && u.Swept { // select picks ready channels at random
		u, err = l.Next(natstest.Context(t))
	}
	if !errors.Is(err, ErrClosed) {
		t.Errorf("after the last confirmation: %+v, %v", u, err)
	}
	l.Done(1)
	if err := l.Close(natstest.Context(t)); err != nil {
		t.Errorf("closing again: %v", err)
	}
	if err := b.js.DeleteConsumer(natstest.Context(t), "PENSTOCK_stripe", "valve-0-1"); err != nil {
		t.Errorf("the consumer did not stay: %v", err)
	}
}
