package jet

import (
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/queue/job"
)

// Without an Idempotency-Key, a job's key at its target contains its sequence. A replay has a new
// sequence, so a charge that had timed out was once charged again.
func TestAReplayKeepsTheKeyThatItsRunsCarried(t *testing.T) {
	b := newBroker(t)
	ctx := natstest.Context(t)
	p := b.NewProducer(ProducerOptions{})
	put := paced("stripe", 5, 1)
	apply(t, b, put)
	derived := bury(t, b,
		DeadLetter{Policy: "stripe", Key: "a", Seq: 1008, Reason: "attempts",
			IdempotencyKey: "stripe-5-1008"})
	own := bury(t, b,
		DeadLetter{Policy: "stripe", Key: "a", Seq: 1009, Reason: "attempts",
			IdempotencyKey: "order-1",
			Header:         nats.Header{"idempotency-key": {"order-1"}}})
	for id, want := range map[uint64]string{derived: "stripe-5-1008", own: "order-1"} {
		receipt, err := p.Replay(ctx, "stripe", id)
		if err != nil {
			t.Fatal(err)
		}
		j, err := b.StoredJob(ctx, "stripe", receipt.Seq)
		if err != nil || job.HeaderValue(j.Header, job.HeaderIdempotencyKey) != want {
			t.Errorf("letter %d became a job with %v, %v; want the key %s", id, j.Header, err, want)
		}
	}
}

func TestAReplayDoesNotWaitAgain(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		value  string
		stored time.Time
		want   string
	}{
		{"1h", now.Add(-2 * time.Hour), ""},
		{"2026-03-01T11:00:00Z", now.Add(-2 * time.Hour), ""},
		{"1h", now.Add(-20 * time.Minute), "2026-03-01T12:40:00Z"},
		{"2026-03-02T00:00:00Z", now.Add(-time.Minute), "2026-03-02T00:00:00Z"},
	} {
		l := StoredLetter{DeadLetter: DeadLetter{Key: "a", Stored: c.stored,
			Header: nats.Header{"penstock-not-before": {c.value}}}}
		h, err := replayHeader(l, now)
		if got := job.HeaderValue(h, job.HeaderNotBefore); err != nil || got != c.want {
			t.Errorf("%s after %v became %q, %v; want %q", c.value, now.Sub(c.stored), got, err,
				c.want)
		}
	}
}

func TestReplaysAtOnceCountEachLetterOnce(t *testing.T) {
	b := newBroker(t)
	ctx := natstest.Context(t)
	p := b.NewProducer(ProducerOptions{})
	put := paced("stripe", 1000, 1)
	apply(t, b, put)
	const letters = 200
	for seq := range uint64(letters) {
		bury(t, b, DeadLetter{Policy: "stripe", Key: "a", Seq: seq + 1, Reason: "attempts"})
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	replayed := 0
	for range 4 {
		wg.Go(func() {
			r, err := p.ReplaySome(ctx, "stripe", DeadLetterFilter{})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			replayed += r.Replayed
		})
	}
	wg.Wait()
	if stored := len(jobs(t, b, "stripe")); stored != letters || replayed != letters {
		t.Errorf("%d jobs of %d letters, and %d counted", stored, letters, replayed)
	}
}

func TestADeadlineInTheYear1HasPassed(t *testing.T) {
	a := job.ParseHeader(nats.Header{"Penstock-Deadline": {"0001-01-01T00:00:00Z"}}, time.Now())
	if a.Malformed != nil || a.Deadline.IsZero() || a.Deadline.After(time.Now()) {
		t.Errorf("got %v, %v", a.Deadline, a.Malformed)
	}
}
