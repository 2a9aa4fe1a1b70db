package store

import (
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
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
		if got := entry.Last; want == "" && got != nil || want != "" &&
			(got == nil || got.At.IsZero() || strings.Join(got.Changed, ", ") != want) {
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
	pause(t, s, "stripe", true)
	do(t, s, "stripe", Change{Act: Offer, Set: "default"})
	load(t, s, "", p)
	last("capacity 10 → 20")
	p.Capacity, p.Concurrency = 30, 2
	load(t, s, "", p)
	last("capacity 20 → 30, concurrency none → 2")
}
