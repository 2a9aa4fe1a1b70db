package kv

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/proctest"
	"github.com/penstock-mq/penstock/internal/waittest"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/natstest"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// live is how many processes a roster counts.
func live(r *Roster) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live
}

// enlist runs a roster until the test or what is returned ends it.
func enlist(t *testing.T, table *Table) (r *Roster, leave func()) {
	t.Helper()
	r = NewRoster(table, time.Second, func(int) {})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	leave = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		ended <- nil
	}
	t.Cleanup(leave)
	return r, leave
}

func untilLive(t *testing.T, want int, rosters ...*Roster) {
	t.Helper()
	for _, r := range rosters {
		waittest.Until(t, fmt.Sprintf("%d are alive", want), func() bool {
			return live(r) == want
		})
	}
}

func TestRosterCountsTheLiving(t *testing.T) {
	s := natstest.Start(t, embedded.Options{})
	first, _ := enlist(t, tableOver(t, natstest.Connect(t, s)))
	second, leave := enlist(t, tableOver(t, natstest.Connect(t, s)))
	crashing := natstest.Connect(t, s)
	third, _ := enlist(t, tableOver(t, crashing))
	untilLive(t, 3, first, second, third)

	leave() // in order: the others know at once
	untilLive(t, 2, first, third)

	crashing.Close() // its lease runs out
	untilLive(t, 1, first)
	if n := live(third); n != 2 {
		t.Errorf("a process that is cut off counts %d, want the 2 that it knew last", n)
	}
}

// A process that could not reach NATS does not take the others for dead when it is back: they are
// counted until they have had the time to be heard again.
func TestRosterKeepsItsCountWhileNATSIsAway(t *testing.T) {
	dir, address := t.TempDir(), proctest.FreeAddress(t)
	s := natstest.Start(t, embedded.Options{Dir: dir, Listen: address})
	dial := func() *nats.Conn { return natstest.Reconnecting(t, s.URL()) }
	counts := make(chan int, 100)
	r := NewRoster(tableOver(t, dial()), time.Second, func(live int) { counts <- live })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	other, leave := enlist(t, tableOver(t, dial()))
	untilLive(t, 2, r, other)

	s.Shutdown()
	<-time.After(1500 * time.Millisecond) // longer than a lease: part of the script
	back := time.Now()
	s = natstest.Start(t, embedded.Options{Dir: dir, Listen: address})
	waittest.Until(t, "the lease is renewed", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.heard && r.seen[other.id].After(back)
	})
	leave()
	for _, want := range []int{2, 1} {
		if got := <-counts; got != want {
			t.Errorf("a count of %d was told, want %d", got, want)
		}
	}
}

// A process that could not renew its own lease has heard of nobody meanwhile: the others get
// another lease's time, once.
func TestRosterGivesOthersTimeAfterItWasCutOff(t *testing.T) {
	r := NewRoster(newTable(t), time.Second, func(int) {})
	old := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.seen["other"] = time.Now().Add(-time.Hour)
		r.live = 2
	}
	old()
	r.renew(natstest.Context(t)) // the first that succeeds
	if n := live(r); n != 2 {
		t.Errorf("%d are alive right after it was cut off, want the 2 that were", n)
	}
	old()
	gone, cancel := context.WithCancel(natstest.Context(t))
	cancel()
	r.renew(gone)
	if n := live(r); n != 2 {
		t.Errorf("%d are alive while it is cut off, want the 2 that were", n)
	}
	r.renew(natstest.Context(t))
	if n := live(r); n != 2 {
		t.Errorf("%d are alive when it is back, want the 2 that were", n)
	}
	old()
	r.renew(natstest.Context(t))
	if n := live(r); n != 1 {
		t.Errorf("%d are alive, but nothing was heard of the other for a lease", n)
	}
}
