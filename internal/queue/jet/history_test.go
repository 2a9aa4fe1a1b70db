package jet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
)

// end tells that a job of stripe is done.
func end(b *Broker, seq uint64, k queue.Key, reply *queue.Reply) {
	b.events.Publish("stripe", queue.Event{Type: queue.EventDone, Job: job.ID("stripe", seq),
		Key:     k,
		Attempt: 1, Accepted: time.Unix(int64(seq), 0), Reply: reply})
}

// until waits for how many jobs a history has.
func (h History) until(t *testing.T, n int) {
	t.Helper()
	waittest.Until(t, fmt.Sprintf("%d jobs are kept", n), func() bool {
		found, _, err := h.List(natstest.Context(t), "", 0, 10_000)
		return err == nil && len(found) == n
	})
}

// TestAHistoryIsReadFromItsEnd by pages, those of a rare key too, and a job by its number.
func TestAHistoryIsReadFromItsEnd(t *testing.T) {
	b := newBroker(t)
	ctx := natstest.Context(t)
	h := b.History("stripe")
	if found, next, err := h.List(ctx, "", 0, 10); len(found) > 0 || next > 0 || err != nil {
		t.Errorf("there is none, and it has %v, %d, %v", found, next, err)
	}
	end(b, 99, "a", nil) // nobody asked for it to be kept
	b.events.KeepHistory("stripe", time.Hour, func() { t.Error("lost") })
	b.events.Publish("stripe", queue.Event{Type: queue.EventDone, Job: "stripe:97", Key: "a",
		Header: nats.Header{"penstock-retention": {"0s"}}}) // is not to be kept
	// is no end
	b.events.Publish("stripe", queue.Event{Type: queue.EventStarted, Job: "stripe:98", Key: "a"})
	want := map[queue.Key][]uint64{}
	for seq := uint64(1); seq <= 60; seq++ {
		key := queue.Key("a.b")
		if seq%25 == 0 {
			key = "rare"
		}
		end(b, seq, key, nil)
		h.until(t, int(seq)) // so that their order is known
		want[key] = slices.Insert(want[key], 0, seq)
	}
	want[""] = slices.Insert(want["x"], 0, want["a.b"]...)
	want[""] = append(want[""], want["rare"]...)
	slices.Sort(want[""])
	slices.Reverse(want[""])
	for key, seqs := range want {
		var got []uint64
		for before := uint64(0); ; {
			page, next, err := h.List(ctx, key, before, 7)
			if err != nil {
				t.Fatal(err)
			}
			for _, past := range page {
				got = append(got, past.Seq)
				if key != "" && past.Key != key {
					t.Errorf("the history of %s has %+v", key, past)
				}
			}
			if before = next; next == 0 {
				break
			}
		}
		if !slices.Equal(got, seqs) {
			t.Errorf("the history of %q: %v, want %v", key, got, seqs)
		}
	}
	if _, _, err := h.List(ctx, "*", 0, 1); !errors.Is(err, queue.ErrInvalidKey) {
		t.Errorf("a wildcard for a key: %v", err)
	}
	end(b, 25, "rare", &queue.Reply{Status: 201, Body: []byte(strings.Repeat("x", 5000))})
	h.until(t, 61)
	past, err := h.Read(ctx, 25)
	if err != nil || past.Status != 201 || len(past.Answer) != job.KeptReply ||
		past.Key != "rare" || !past.Accepted.Equal(time.Unix(25, 0)) || past.How != queue.EndDone {
		t.Errorf("%+v, %v: want how it ended last, and a KiB of the answer", past, err)
	}
	if _, err := h.Read(ctx, 99); !errors.Is(err, ErrNotFound) {
		t.Errorf("what is not kept: %v", err)
	}
	if kept, leftOut, err := b.Kept(ctx); err != nil ||
		slices.Contains(kept, "PENSTOCK_HISTORY_stripe") ||
		!slices.Contains(leftOut, "PENSTOCK_HISTORY_stripe") {
		t.Errorf("a backup has %v and leaves out %v, %v", kept, leftOut, err)
	}
	if s, err := b.Ration(ctx); err != nil || s.History["stripe"].Used == 0 ||
		s.History["stripe"].Max == 0 || len(s.Letters) > 0 {
		t.Errorf("of the store it takes %+v, %v", s, err)
	}
	if err := errors.Join(h.Drop(ctx), h.Drop(ctx)); err != nil {
		t.Error(err)
	}
	if _, err := h.Read(ctx, 25); !errors.Is(err, ErrNotFound) {
		t.Errorf("what was dropped: %v", err)
	}
}

// TestAHistoryForgets what is older than the policy or the job itself wants.
func TestAHistoryForgets(t *testing.T) {
	b := newBroker(t)
	h := b.History("stripe")
	for seq, c := range []struct {
		policy time.Duration
		job    nats.Header
	}{
		{time.Second, nil}, {time.Second, nats.Header{job.HeaderRetention: {"2d"}}},
		{time.Hour, nats.Header{job.HeaderRetention: {"1s"}}},
	} {
		b.events.KeepHistory("stripe", c.policy, nil)
		b.events.Publish("stripe", queue.Event{Type: queue.EventDone,
			Job: job.ID("stripe", uint64(seq)),
			Key: "a", Header: c.job})
		waittest.Until(t, "the job is kept", func() bool {
			_, err := h.Read(natstest.Context(t), uint64(seq))
			return err == nil
		})
		waittest.Until(t, "it is forgotten", func() bool {
			_, err := h.Read(natstest.Context(t), uint64(seq))
			return errors.Is(err, ErrNotFound)
		})
	}
}

// TestLostHistoryIsCounted, and nothing waits for it.
func TestLostHistoryIsCounted(t *testing.T) {
	b := newBroker(t)
	ctx := natstest.Context(t)
	if err := b.js.CreateStream(ctx, jetstream.StreamConfig{Name: "PENSTOCK_HISTORY_stripe",
		Subjects: []string{"penstock.history.stripe.>"}, MaxMsgs: 1, AllowMsgTTL: true,
		Discard: jetstream.DiscardNew}); err != nil {
		t.Fatal(err)
	}
	var lost atomic.Int32
	b.events.KeepHistory("stripe", time.Hour, func() { lost.Add(1) })
	for seq := range uint64(3) {
		end(b, seq+1, "a", nil)
	}
	waittest.Until(t, "two are lost", func() bool { return lost.Load() == 2 })
	if err := b.js.DeleteStream(ctx, "PENSTOCK_HISTORY_stripe"); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "a history that somebody deleted is made again", func() bool {
		end(b, 4, "a", nil)
		_, err := b.History("stripe").Read(ctx, 4)
		return err == nil
	})
}
