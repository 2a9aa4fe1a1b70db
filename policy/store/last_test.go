package store

import (
	"testing"

	"github.com/penstock-mq/penstock/internal/natstest"
	"github.com/penstock-mq/penstock/policy"
)

func TestTheLastChangeOfAPolicyIsKept(t *testing.T) {
	s := newStore(t)
	p := paced("stripe", 10, 4)
	last := func(want string) {
		t.Helper()
		entry, err := s.Policy(natstest.Context(t), "stripe")
		if err != nil {
			t.Fatal(err)
		}
		if got := entry.Last; want == "" && got != nil ||
			want != "" && (got == nil || got.Changed.String() != want || got.At.IsZero()) {
			t.Errorf("it became %+v, want %q", got, want)
		}
	}
	put := func() {
		t.Helper()
		if _, err := s.Put(natstest.Context(t), p); err != nil {
			t.Fatal(err)
		}
	}
	put()
	last("")
	p.Capacity = 20
	put()
	last("capacity 10 → 20")
	if _, err := s.SetPaused(natstest.Context(t), "stripe", true); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutFile(natstest.Context(t), File{Policies: []policy.Policy{p}}); err != nil {
		t.Fatal(err)
	}
	last("capacity 10 → 20")
	p.Capacity, p.Concurrency = 30, 2
	if _, err := s.PutFile(natstest.Context(t), File{Policies: []policy.Policy{p}}); err != nil {
		t.Fatal(err)
	}
	last("capacity 20 → 30, concurrency none → 2")
}
