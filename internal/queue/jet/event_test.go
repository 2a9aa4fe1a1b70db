package jet

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/queue"
)

func TestEventsWithoutListenersAreNotSent(t *testing.T) {
	start := time.Unix(1000, 0)
	var g gate
	count := func(at time.Duration, n int) (published, asked int) {
		for range n {
			publish, ask := g.admit(start.Add(at))
			if publish {
				published++
			}
			if ask {
				asked++
			}
		}
		return published, asked
	}
	for _, step := range []struct {
		at        time.Duration
		published int
		denied    bool
	}{
		{0, 1000, true},
		{gatePeriod, gateFree, true}, // without a listener
		// noticed after the period
		{2 * gatePeriod, gateFree, false},
		{3 * gatePeriod, 1000, false},
		{4 * gatePeriod, 1000, true},                 // it left
		{5 * gatePeriod, gateFree, true},             // noticed in the next period
		{6*gatePeriod + time.Second, 1000, true},     // a listener may have come in the pause
		{7*gatePeriod + time.Second, gateFree, true}, // but has not
	} {
		published, asked := count(step.at, 1000)
		if published != step.published || asked != 1 {
			t.Errorf("at %v: %d of 1000 published, %d as requests; want %d and 1", step.at,
				published, asked, step.published)
		}
		if step.denied {
			g.denied, g.nobody = true, true
		}
	}
}

func TestEventsWithoutListenersAreCheap(t *testing.T) {
	b := newBroker(t)
	tell := func(n int) uint64 {
		before := b.nc.Stats().OutMsgs
		for range n {
			b.events.Publish("api", queue.Event{Type: queue.EventDone, Job: "api:1", Key: "k"})
		}
		return b.nc.Stats().OutMsgs - before
	}
	nobody := func() bool {
		b.events.mu.Lock()
		defer b.events.mu.Unlock()
		return b.events.gates["api"].nobody
	}
	tell(1)
	waittest.Until(t, "the server says that nobody listens", func() bool {
		tell(1)
		return nobody()
	})
	if n := tell(100_000); n > 50_000 {
		t.Errorf("%d of 100,000 events were published to nobody", n)
	}
	heard := make(chan queue.Event, 1024)
	stop, err := b.events.Listen("api", "k", func(policy string, e queue.Event) {
		select {
		case heard <- e:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	waittest.Until(t, "a listener is noticed", func() bool { tell(1000); return !nobody() })
	if e := <-heard; e.Type != queue.EventDone || e.Key != "k" || e.Job != "api:1" {
		t.Errorf("heard %+v", e)
	}
}
