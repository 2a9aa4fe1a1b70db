package kv

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/queue/embedded"
)

type member struct {
	*Roster
	count atomic.Int64
	leave func()
}

func enlist(t *testing.T, table *Table) *member {
	t.Helper()
	m := &member{}
	m.count.Store(1)
	m.Roster = NewRoster(table, time.Second, func(live int) { m.count.Store(int64(live)) })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	m.leave = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		ended <- nil
	}
	t.Cleanup(m.leave)
	return m
}

func untilLive(t *testing.T, want int64, members ...*member) {
	t.Helper()
	for _, m := range members {
		waittest.Until(t, fmt.Sprintf("%d are alive", want), func() bool {
			return m.count.Load() == want
		})
	}
}

func TestRosterCountsTheLiving(t *testing.T) {
	s := natstest.Start(t, embedded.Options{})
	first := enlist(t, tableOver(t, natstest.Connect(t, s)))
	second := enlist(t, tableOver(t, natstest.Connect(t, s)))
	crashing := natstest.Connect(t, s)
	third := enlist(t, tableOver(t, crashing))
	untilLive(t, 3, first, second, third)

	second.leave()
	untilLive(t, 2, first, third)

	crashing.Close()
	untilLive(t, 1, first)
	if n := third.count.Load(); n != 2 {
		t.Errorf("a process that is cut off counts %d, want the 2 that it knew last", n)
	}
}

// A process that was cut off from NATS counts the others until they have had time to renew their
// leases.
func TestRosterKeepsItsCountWhileNATSIsAway(t *testing.T) {
	dir, address := t.TempDir(), proctest.FreeAddress(t)
	s := natstest.Start(t, embedded.Options{Dir: dir, Listen: address})
	dial := func() *nats.Conn { return natstest.Reconnecting(t, s.URL()) }
	table := tableOver(t, dial())
	counts := make(chan int, 100)
	r := NewRoster(table, time.Second, func(live int) { counts <- live })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	other := enlist(t, tableOver(t, dial()))
	untilLive(t, 2, other)
	if n := <-counts; n != 2 {
		t.Fatalf("%d are alive, want 2", n)
	}

	s.Shutdown()
	<-time.After(1500 * time.Millisecond)
	back := time.Now()
	s = natstest.Start(t, embedded.Options{Dir: dir, Listen: address})
	for _, id := range []string{r.id, other.id} {
		waittest.Until(t, "the lease is renewed", func() bool {
			lease, err := table.Read(natstest.Context(t), id)
			return err == nil && lease.Stored.After(back)
		})
	}
	other.leave()
	if n := <-counts; n != 1 {
		t.Errorf("a count of %d was told, want 1", n)
	}
}

// A process that could not renew its lease did not see the others' renewals, and gives them another
// lease's time, once.
func TestRosterGivesOthersTimeAfterItWasCutOff(t *testing.T) {
	table := newTable(t)
	if err := table.Set(natstest.Context(t), "other", nil, 0); err != nil {
		t.Fatal(err)
	}
	const lease = 100 * time.Millisecond
	r := NewRoster(table, lease, func(int) {})
	renew := func(within context.Context) {
		<-time.After(2 * lease)
		_, _ = r.renew(within)
	}
	r.live = 2
	renew(natstest.Context(t))
	if r.live != 2 {
		t.Errorf("%d are alive right after it was cut off, want the 2 that were", r.live)
	}
	renew(natstest.Context(t))
	if r.live != 1 {
		t.Errorf("%d are alive, but nothing was heard of the other for a lease", r.live)
	}
	r.live = 2
	gone, cancel := context.WithCancel(natstest.Context(t))
	cancel()
	renew(gone)
	if r.live != 2 {
		t.Errorf("%d are alive while it is cut off, want the 2 that were", r.live)
	}
	renew(natstest.Context(t))
	if r.live != 2 {
		t.Errorf("%d are alive when it is back, want the 2 that were", r.live)
	}
}
