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

	"github.com/penstock-mq/penstock/internal/waittest"
)

type callsBench struct {
	*calls
	mu    sync.Mutex
	under map[purpose]int
	most  map[purpose]int
	ended int
}

func newTestCalls() *calls {
	return newCalls(newLoop(slog.New(slog.DiscardHandler), nil), nil, deadline)
}

func newCallsBench() *callsBench {
	return &callsBench{calls: newTestCalls(),
		under: map[purpose]int{}, most: map[purpose]int{}}
}

func (b *callsBench) call(p purpose, f func() error) {
	b.add(p, func() error {
		b.mu.Lock()
		b.under[p]++
		b.most[p] = max(b.most[p], b.under[p])
		b.mu.Unlock()
		defer func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.under[p]--
			b.ended++
		}()
		return f()
	})
}

func TestCallsThatAreNotAnsweredHoldUpNoOther(t *testing.T) {
	b := newCallsBench()
	answered, answer := context.WithCancel(t.Context())
	hang := func() error { <-answered.Done(); return nil }
	for dead := range 20 {
		for range 3 * mostCalls {
			b.call(purpose{fmt.Sprint("dead", dead), "read body"}, hang)
		}
	}
	var live sync.WaitGroup
	for range 1000 {
		live.Add(2)
		b.call(purpose{"live", "read body"}, func() error { live.Done(); return nil })
		b.call(purpose{"dead1", "store dead letter"}, func() error { live.Done(); return nil })
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

// A queue whose calls fail has few in flight, and the full number again once one succeeds.
func TestFewCallsAreTriedWhileTheyFail(t *testing.T) {
	b := newCallsBench()
	p := purpose{"api", "record attempt"}
	end := make(chan error)
	until := func(n, ended int) {
		t.Helper()
		waittest.Until(t, fmt.Sprintf("%d calls are under way, after %d", n, ended), func() bool {
			b.calls.mu.Lock()
			running := b.lines[p].running
			b.calls.mu.Unlock()
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.under[p] == n && b.ended == ended && running == n
		})
	}
	for range 4 * mostCalls {
		b.call(p, func() error { return <-end })
	}
	until(mostCalls, 0)
	for range mostCalls {
		end <- errors.New("no leader")
	}
	until(mostFailing, mostCalls)
	end <- nil
	until(mostCalls, mostCalls+1)
	close(end)
	b.wait.Wait()
	if most := b.most[p]; most > mostCalls {
		t.Errorf("%d calls were under way at once", most)
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
	var again func() error
	stop := make(chan struct{})
	again = func() error {
		failing.Add(1)
		c.spawn(func() {
			select {
			case <-stop:
			case <-time.After(ms):
				c.add(purpose{}, again)
			}
		})
		return errors.New("no leader")
	}
	for range 4 * mostCalls {
		c.add(purpose{}, again)
	}
	done := make(chan struct{})
	c.add(purpose{}, func() error { close(done); return nil })
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
		c.add(purpose{}, func() error {
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			<-release
			now.Add(-1)
			made.Add(1)
			return nil
		})
	}
	close(release)
	c.wait.Wait()
	if most.Load() > mostCalls || made.Load() != 10*mostCalls || len(c.lines) != 0 {
		t.Errorf("%d at once, %d made, %d left", most.Load(), made.Load(), len(c.lines))
	}
}
