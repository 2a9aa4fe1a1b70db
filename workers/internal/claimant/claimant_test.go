package claimant

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/penstock-mq/penstock/workers/internal/pace"
)

type (
	set  = Set[int]
	line = Queue[int]
)

// reached returns a claimant of each state, by the shortest way.
func reached(t *testing.T, worker string) (claimants [states]*Claimant[int], ways [states][]Event) {
	t.Helper()
	var found func(way []Event)
	make := func(way []Event) (*set, *Claimant[int], *line) {
		s, q := &set{}, &line{}
		k := New(0, q)
		k.Worker, k.Takes.Job = worker, 3
		for _, e := range way {
			if !s.Take(k, e, 5) {
				return s, nil, q
			}
		}
		return s, k, q
	}
	found = func(way []Event) {
		_, k, _ := make(way)
		if k == nil || claimants[k.state] != nil && len(ways[k.state]) <= len(way) {
			return
		}
		claimants[k.state], ways[k.state] = k, slices.Clone(way)
		for e := range events {
			found(append(slices.Clone(way), e))
		}
	}
	found(nil)
	for state, k := range claimants {
		if k == nil && !(worker != "" && State(state) <= Offered) {
			t.Errorf("no way to state %v", State(state))
		}
	}
	return claimants, ways
}

// Every pair of a state and an event is tried. What the table refuses has no effect.
func TestTransitions(t *testing.T) {
	for _, worker := range []string{"", "inbox"} {
		_, ways := reached(t, worker)
		for state := range states {
			if ways[state] == nil && state != Unknown {
				continue
			}
			for event := range events {
				s, q := &set{}, &line{}
				k := New(7, q)
				k.Worker, k.Takes.Job = worker, 3
				for _, e := range ways[state] {
					s.Take(k, e, 5)
				}
				before, offers := *k, fmt.Sprint(*s, q.Len(), q.Near(), q.Slots)
				want := table[state][event]
				took := s.Take(k, event, 9)
				if took != (want != Unknown) {
					t.Errorf("%v %v: took %v", state, event, took)
				}
				if !took {
					if before.state != k.state || before.until != k.until ||
						offers != fmt.Sprint(*s, q.Len(), q.Near(), q.Slots) {
						t.Errorf("%v %v: refused, and has an effect", state, event)
					}
					continue
				}
				if want == Waiting && worker != "" {
					want = Ended
				}
				check(t, fmt.Sprint(state, " ", event), s, q, k, want)
			}
		}
	}
}

func check(t *testing.T, what string, s *set, q *line, k *Claimant[int], want State) {
	t.Helper()
	queued, near := 0, 0
	switch want {
	case Offered, Claiming:
		queued, near = 1, 1
	case Waiting:
		queued = 1
	}
	timed := queued > 0 || want == Running
	if k.State() != want || k.Until() != 9 {
		t.Errorf("%s: %v until %v, want %v", what, k.State(), k.Until(), want)
	}
	if q.Len() != queued || q.Near() != near || q.Slots != int64(3*queued) {
		t.Errorf("%s: %d in the queue, %d near, %d slots", what, q.Len(), q.Near(), q.Slots)
	}
	if (s.Wake() == 9) != timed || (s.Silent(9) == k) != timed || s.Silent(8) != nil {
		t.Errorf("%s: looked at %v", what, s.Wake())
	}
	if works := k.Worker != "" && want.works(); (s.Working == 1) != works {
		t.Errorf("%s: %d work", what, s.Working)
	}
}

func TestAQueueIsInTheOrderOfStarts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	s, q := &set{}, &line{}
	var all []*Claimant[int]
	for i := range 200 {
		k := New(i, q)
		k.Priority, k.Seq, k.Takes.Job = rng.IntN(3), uint64(rng.IntN(100)), 1
		all = append(all, k)
		s.Take(k, Ask, pace.Instant(i))
	}
	for range 20_000 {
		k := all[rng.IntN(len(all))]
		s.Take(k, []Event{Ask, Claim, Offer}[rng.IntN(3)], pace.Instant(rng.IntN(1000)))
		first, next := slices.MinFunc(all, compare), q.Next()
		if q.First().Before(first) || first.Before(q.First()) {
			t.Fatalf("%v is first, want %v", q.First().Seq, first.Seq)
		}
		waiting := 0
		for k := range q.All() {
			if k.state == Waiting {
				waiting++
				if k.Precedes(next) {
					t.Fatalf("%v is next, want %v", next.Seq, k.Seq)
				}
			}
			if k.until < s.Wake() {
				t.Fatalf("looks at %v, too late for %v", s.Wake(), k.until)
			}
		}
		if waiting+q.Near() != q.Len() || q.Len() != len(all) {
			t.Fatalf("%d wait, %d are near, of %d", waiting, q.Near(), q.Len())
		}
	}
}

func compare(a, b *Claimant[int]) int {
	switch {
	case a.Before(b):
		return -1
	case b.Before(a):
		return 1
	}
	return 0
}
