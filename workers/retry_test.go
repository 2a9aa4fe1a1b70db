package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

type callsBench struct {
	*calls
	mu    sync.Mutex
	under map[purpose]int
	most  map[purpose]int
}

func newTestCalls() *calls {
	return newCalls(newLoop(slog.New(slog.DiscardHandler), nil), nil, deadline)
}

func newCallsBench() *callsBench {
	return &callsBench{calls: newTestCalls(),
		under: map[purpose]int{}, most: map[purpose]int{}}
}

func (b *callsBench) call(p purpose, f func()) {
	b.add(p, func() {
		b.mu.Lock()
		b.under[p]++
		b.most[p] = max(b.most[p], b.under[p])
		b.mu.Unlock()
		defer func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.under[p]--
		}()
		f()
	})
}

func TestCallsThatAreNotAnsweredHoldUpNoOther(t *testing.T) {
	b := newCallsBench()
	answered, answer := context.WithCancel(t.Context())
	hang := func() { <-answered.Done() }
	for dead := range 20 {
		for range 3 * mostCalls {
			b.call(purpose{fmt.Sprint("dead", dead), "read body"}, hang)
		}
	}
	var live sync.WaitGroup
	for range 1000 {
		live.Add(2)
		b.call(purpose{"live", "read body"}, live.Done)
		b.call(purpose{"dead1", "store dead letter"}, live.Done)
	}
	live.Wait()
	answer()
	b.wait.Wait()
	for p, most := range b.most {
		if most > mostCalls {
			t.Errorf("%v: %d calls at once", p, most)
		}
	}
	if len(b.lines) != 0 {
		t.Errorf("%d lines are left", len(b.lines))
	}
}

// A call abandoned while it waits in its queue no longer counts as failing; otherwise recovery
// would not be logged.
func TestAnAbandonedCallDoesNotCountAsFailing(t *testing.T) {
	c := newTestCalls()
	ctx, giveUp := context.WithCancel(t.Context())
	p := purpose{"api", "record attempt"}
	c.try(ctx, p, triesUntold, func() error { return errors.New("no leader") }, nil)
	again := <-c.events
	if c.wait.Wait(); c.struggles.open != 1 {
		t.Fatalf("%d calls struggle, want 1", c.struggles.open)
	}
	giveUp()
	again(c.now())
	if c.wait.Wait(); c.struggles.open != 0 {
		t.Errorf("%d calls still struggle", c.struggles.open)
	}
}

func TestCallsThatCannotSucceedHoldNothingUp(t *testing.T) {
	c := newTestCalls()
	var failing atomic.Int32
	var again func()
	stop := make(chan struct{})
	again = func() {
		failing.Add(1)
		c.spawn(func() {
			select {
			case <-stop:
			case <-time.After(ms):
				c.add(purpose{}, again)
			}
		})
	}
	for range 4 * mostCalls {
		c.add(purpose{}, again)
	}
	done := make(chan struct{})
	c.add(purpose{}, func() { close(done) })
	select {
	case <-done:
	case <-time.After(deadline):
		t.Error("the call behind them was never made")
	}
	close(stop)
	c.wait.Wait()
}

func TestCallsAreBounded(t *testing.T) {
	c := newTestCalls()
	var now, most, made atomic.Int32
	release := make(chan struct{})
	for range 10 * mostCalls {
		c.add(purpose{}, func() {
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			<-release
			now.Add(-1)
			made.Add(1)
		})
	}
	close(release)
	c.wait.Wait()
	if most.Load() > mostCalls || made.Load() != 10*mostCalls || len(c.lines) != 0 {
		t.Errorf("%d at once, %d made, %d left", most.Load(), made.Load(), len(c.lines))
	}
}
