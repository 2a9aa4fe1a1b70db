package workers

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// callsBench counts what is under way.
type callsBench struct {
	calls
	mu    sync.Mutex
	under map[purpose]int
	most  map[purpose]int
	wait  sync.WaitGroup
}

func newCallsBench() *callsBench {
	return &callsBench{under: map[purpose]int{}, most: map[purpose]int{}}
}

func (b *callsBench) call(p purpose, f func() error) {
	b.add(b.wait.Go, p, func() error {
		b.mu.Lock()
		b.under[p]++
		b.most[p] = max(b.most[p], b.under[p])
		b.mu.Unlock()
		defer func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.under[p]--
		}()
		return f()
	})
}

// Calls that NATS does not answer, of however many policies, and for whatever purpose, hold up no other policy's.
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

// A line whose calls fail has few under way, and as many as ever once one succeeds.
func TestFewCallsAreTriedWhileTheyFail(t *testing.T) {
	b := newCallsBench()
	p := purpose{"api", "record attempt"}
	end := make(chan error)
	until := func(n int) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
			b.mu.Lock()
			under := b.under[p]
			b.mu.Unlock()
			if under == n {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d calls are under way, want %d", under, n)
			}
		}
	}
	for range 4 * mostCalls {
		b.call(p, func() error { return <-end })
	}
	until(mostCalls)
	for range mostCalls {
		end <- errors.New("no leader")
	}
	until(mostFailing)
	end <- nil
	until(mostCalls)
	close(end)
	b.wait.Wait()
	if most := b.most[p]; most > mostCalls {
		t.Errorf("%d calls were under way at once", most)
	}
}

// What is given up while it waits in its line struggles no more: else nobody would hear that all goes well again.
func TestACallThatIsGivenUpInItsLineStrugglesNoMore(t *testing.T) {
	d, err := New(&nats.Conn{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	p := purpose{"api", "record attempt"}
	d.try(ctx, p, triesUntold, func() error { return errors.New("no leader") }, nil)
	again := <-d.events // after a pause
	if d.wait.Wait(); d.struggles.open != 1 {
		t.Fatalf("%d calls struggle, want 1", d.struggles.open)
	}
	giveUp()
	again(d.now())
	if d.wait.Wait(); d.struggles.open != 0 {
		t.Errorf("%d calls still struggle", d.struggles.open)
	}
}
