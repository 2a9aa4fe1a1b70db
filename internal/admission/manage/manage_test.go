package manage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/brokertest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

func open(t *testing.T, o Options) *Service {
	t.Helper()
	_, nc := brokertest.Start(t, embedded.Options{})
	broker := brokertest.Open(t, nc)
	o.Timeout = cmp.Or(o.Timeout, 25*time.Second)
	return New(broker, broker.NewProducer(jet.ProducerOptions{}), o)
}

func stripe(capacity int64) policy.Policy {
	return policy.Policy{Name: "stripe",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: capacity,
			Outflow: algorithms.Rate{Count: 10, Per: time.Second}},
		Partitions: 2}
}

func put(t *testing.T, s *Service, p policy.Policy) {
	t.Helper()
	if _, _, err := s.PutPolicy(t.Context(), p, Write{}); err != nil {
		t.Fatal(err)
	}
}

// TestCapacityUnderLoad changes the capacity while producers keep buckets full, without losing
// accepted jobs.
func TestCapacityUnderLoad(t *testing.T) {
	s := open(t, Options{})
	put(t, s, stripe(20))
	var accepted atomic.Int64
	stop := make(chan struct{})
	var producers sync.WaitGroup
	for n := range 4 {
		producers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				_, err := s.producer.Publish(t.Context(),
					jet.Submission{Policy: "stripe", Key: queue.Key(fmt.Sprint("k", i%3)),
						Body: fmt.Append(nil, n, i)})
				switch {
				case err == nil:
					accepted.Add(1)
				case !errors.Is(err, jet.ErrFull):
					t.Errorf("publish: %v", err)
					return
				}
			}
		})
	}
	var lowered, refused int
	for _, capacity := range []int64{30, 10, 40, 39, 50, 60, 5, 60} {
		_, _, err := s.PutPolicy(t.Context(), stripe(capacity), Write{})
		switch {
		case err == nil:
			lowered++
		case errors.Is(err, admission.ErrConflict):
			refused++
		default:
			t.Errorf("capacity %d: %v", capacity, err)
		}
	}
	close(stop)
	producers.Wait()
	depth, err := s.broker.Depth(t.Context(), "stripe")
	if err != nil || int64(depth) != accepted.Load() {
		t.Errorf("%d jobs are stored, %v; %d were accepted", depth, err, accepted.Load())
	}
	t.Logf("%d jobs, %d changes, %d refused", depth, lowered, refused)
	depths, err := s.broker.Depths(t.Context(), "stripe")
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Policy(t.Context(), "stripe")
	if err != nil {
		t.Fatal(err)
	}
	for key, depth := range depths {
		if int64(depth) > p.Policy.Capacity {
			t.Errorf("bucket %s holds %d, capacity %d", key, depth, p.Policy.Capacity)
		}
	}
}

// A bulk replay stops when its time is up, and reports the rest for another call.
func TestReplayAllInParts(t *testing.T) {
	s, patience := open(t, Options{}), 20*time.Millisecond
	put(t, s, stripe(1000))
	const letters = 300
	for n := range letters {
		_, err := s.broker.Letters("stripe").Bury(t.Context(),
			jet.DeadLetter{Policy: "stripe", Key: "a", Seq: uint64(n), Reason: "attempts"})
		if err != nil {
			t.Fatal(err)
		}
	}
	waittest.Until(t, "all letters are replayed", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		r, err := s.ReplaySome(ctx, "stripe", jet.DeadLetterFilter{})
		if err != nil && !errors.Is(err, admission.ErrUnavailable) {
			t.Fatal(err)
		}
		if r.Replayed == 0 {
			patience *= 2
		}
		return err == nil && r.Complete
	})
	depth, err := s.broker.Depth(t.Context(), "stripe")
	if err != nil || depth != letters {
		t.Errorf("%d jobs, %v, want %d: each letter once", depth, err, letters)
	}
	if page, err := s.DeadLetters(t.Context(), "stripe", 0, 10); err != nil ||
		len(page.Letters) != 0 || page.Next != nil {
		t.Errorf("left %+v, %v", page, err)
	}
}

func TestPolicyRevivesAndPausesTogether(t *testing.T) {
	s := open(t, Options{})
	for _, ps := range [][]policy.Policy{{stripe(5)}, nil} {
		if _, err := store.New(s.broker, nil).Replace(t.Context(), store.Set{Policies: ps,
			Prune: true, Shrink: true}); err != nil {
			t.Fatal(err)
		}
	}
	if p, err := s.Policy(t.Context(), "stripe"); err != nil || p.State != inforce.StateDraining ||
		p.Source != inforce.SourceAPI {
		t.Errorf("got %+v, %v", p, err)
	}
	_, err := s.broker.Letters("stripe").Bury(t.Context(),
		jet.DeadLetter{Policy: "stripe", Key: "a", Seq: 1, Reason: "attempts"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Replay(t.Context(), "stripe", 1); !errors.Is(err, admission.ErrConflict) {
		t.Errorf("replay for a draining policy: %v", err)
	}
	if _, err := s.ReplaySome(t.Context(), "stripe", jet.DeadLetterFilter{}); !errors.Is(err,
		admission.ErrConflict) {
		t.Errorf("replay all for a draining policy: %v", err)
	}
	put(t, s, stripe(5))
	if p, err := s.Policy(t.Context(), "stripe"); err != nil || p.State != inforce.StateLive ||
		p.Source != inforce.SourceAPI {
		t.Errorf("got %+v, %v", p, err)
	}
	if o, err := s.Replay(t.Context(), "stripe", 1); err != nil || o.Verdict != admission.Queued ||
		o.Job != "stripe:1" {
		t.Errorf("got %+v, %v", o, err)
	}

	// Concurrent changes of one key's pause and limits are all kept.
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			if _, err := s.PauseKey(t.Context(), "stripe", "a", n%2 == 0); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	burst := int64(2)
	if _, err := s.ChangeOverride(t.Context(), "stripe", "a", Write{},
		func(inforce.Override) (inforce.Override, error) {
			return inforce.Override{Burst: &burst}, nil
		}); err != nil {
		t.Fatal(err)
	}
	if o, err := s.PauseKey(t.Context(), "stripe", "a", true); err != nil || !o.Override.Paused ||
		*o.Override.Burst != 2 {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestDeadLettersOutliveTheirPolicy(t *testing.T) {
	s := open(t, Options{})
	bury := func(name string) {
		t.Helper()
		_, err := s.broker.Letters(name).Bury(t.Context(),
			jet.DeadLetter{Key: "a", Seq: 1, Reason: "attempts"})
		if err != nil {
			t.Fatal(err)
		}
	}
	bury("gone")
	bury("other")
	page, err := s.DeadLetters(t.Context(), "gone", 0, 10)
	if err != nil || len(page.Letters) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	id := page.Letters[0].ID
	if l, err := s.DeadLetter(t.Context(), "gone", id); err != nil || l.Job != "gone:1" {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := s.Replay(t.Context(), "gone", id); !errors.Is(err, admission.ErrConflict) {
		t.Errorf("a replay for a policy that is gone: %v", err)
	}
	if _, err := s.ReplaySome(t.Context(), "gone", jet.DeadLetterFilter{}); !errors.Is(err,
		admission.ErrConflict) {
		t.Errorf("all of them: %v", err)
	}
	if _, err := s.Discard(t.Context(), "gone", id); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"gone", "never", "*", "dead", ">"} {
		if _, err := s.DeadLetters(t.Context(), name, 0, 10); !errors.Is(err,
			admission.ErrUnknownPolicy) {
			t.Errorf("%s, which has none: %v", name, err)
		}
	}
}
