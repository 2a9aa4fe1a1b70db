package queue

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue/embedded"
)

// enlist runs a roster until the test or what is returned ends it.
func enlist(t *testing.T, b *Broker) (r *Roster, leave func()) {
	t.Helper()
	r = b.NewRoster(time.Second, nil)
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
		eventually(t, fmt.Sprintf("%d are alive", want), func() bool { return r.Live() == want })
	}
}

func TestRosterCountsTheLiving(t *testing.T) {
	s := startServer(t, embedded.Options{})
	first, _ := enlist(t, brokerOver(t, connect(t, s)))
	second, leave := enlist(t, brokerOver(t, connect(t, s)))
	crashing := connect(t, s)
	third, _ := enlist(t, brokerOver(t, crashing))
	untilLive(t, 3, first, second, third)

	leave() // in order: the others know at once
	untilLive(t, 2, first, third)

	crashing.Close() // its lease runs out
	untilLive(t, 1, first)
	if n := third.Live(); n != 2 {
		t.Errorf("who is cut off counts %d, want the 2 that it knew last", n)
	}
}

// Who cannot reach NATS for a while does not take the others for dead when it is back: they are counted until they have had
// the time to be heard again.
func TestRosterKeepsItsCountWhileNATSIsAway(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, embedded.Options{Dir: dir, Listen: "127.0.0.1:0"})
	dial := func() *nats.Conn {
		nc, err := nats.Connect(s.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	counts := make(chan int, 100)
	watching := brokerOver(t, dial())
	r := watching.NewRoster(time.Second, func(live int) { counts <- live })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	other, leave := enlist(t, brokerOver(t, dial()))
	untilLive(t, 2, r, other)

	address := s.URL()
	s.Shutdown()
	<-time.After(1500 * time.Millisecond) // longer than a lease: part of the script
	back := time.Now()
	s = startServer(t, embedded.Options{Dir: dir, Listen: address[len("nats://"):]})
	eventually(t, "the lease is renewed", func() bool {
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

// Who could not renew its own lease has heard of nobody meanwhile: the others get another lease's time, once.
func TestRosterGivesOthersTimeAfterItWasCutOff(t *testing.T) {
	r := newBroker(t).NewRoster(time.Second, nil)
	old := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.seen["other"] = time.Now().Add(-time.Hour)
		r.live = 2
	}
	old()
	r.renew(testContext(t)) // the first that succeeds
	if n := r.Live(); n != 2 {
		t.Errorf("%d are alive right after it was cut off, want the 2 that were", n)
	}
	old()
	gone, cancel := context.WithCancel(testContext(t))
	cancel()
	r.renew(gone)
	if n := r.Live(); n != 2 {
		t.Errorf("%d are alive while it is cut off, want the 2 that were", n)
	}
	r.renew(testContext(t))
	if n := r.Live(); n != 2 {
		t.Errorf("%d are alive when it is back, want the 2 that were", n)
	}
	old()
	r.renew(testContext(t))
	if n := r.Live(); n != 1 {
		t.Errorf("%d are alive, but nothing was heard of the other for a lease", n)
	}
}
