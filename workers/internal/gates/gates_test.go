package gates

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// never fails the test if it is asked.
type never struct{ t *testing.T }

func (n never) Next(*Bucket) Hold {
	n.t.Error("a gate behind a shut one was asked")
	return Hold{}
}

func (n never) After(*Bucket, *Ahead, pace.Instant) pace.Instant {
	n.t.Error("a later start was asked for while a gate is shut")
	return 0
}

func bucket() *Bucket {
	return &Bucket{State: &State{}, Clock: &pace.Clock{}, Live: true, Now: second,
		Pace: pace.New(algorithms.Rate{Count: 10, Per: time.Second}, 1.1, 1)}
}

func TestAnEventOpensAShutGate(t *testing.T) {
	for name, c := range map[string]struct {
		shut func(*Bucket)
		by   Reason
	}{
		"paused":                {func(b *Bucket) { b.Paused, b.Live = true, false }, ByPaused},
		"its backlog is opened": {func(b *Bucket) { b.Live = false }, ByStorage},
		"a crash is recorded":   {func(b *Bucket) { b.State.Noting = 1 }, ByStorage},
		"all places are taken": {func(b *Bucket) { b.Concurrency, b.State.Running = 2, 2 },
			ByConcurrency},
		"runs have not arrived": {func(b *Bucket) { b.Concurrency, b.Unseen = 2, true },
			ByConcurrency},
	} {
		b := bucket()
		if h := Shut.Next(b); h != (Hold{}) {
			t.Errorf("%s: held by %s before", name, h.By)
		}
		c.shut(b)
		all := append(Shut[:len(Shut):len(Shut)], never{t})
		if h := all.Next(b); h.By != c.by || !h.Shut() {
			t.Errorf("%s: held by %s until %v", name, h.By, h.Until)
		}
		g := Gates{List: all, Later: []Later{never{t}}}
		if at := g.After(b, &Ahead{}); at != pace.Never {
			t.Errorf("%s: expected at %v", name, at)
		}
	}
}

func TestTheLongestHoldIsTheReason(t *testing.T) {
	h := NewHealth(nil)
	all := List{Breaking{&h}, Cooling{}, Giving{}, Rate{}}
	b := bucket()
	b.Near, b.Seq = true, 7
	b.Pace.Hold(b.Clock, 2*second)
	for _, c := range []struct {
		held  func()
		by    Reason
		until pace.Instant
	}{
		{func() {}, ByRate, 2 * second},
		{func() { b.State.Passing = Passing{Seq: 6, Until: 9 * second} }, ByRate, 2 * second},
		{func() { b.State.Passing = Passing{Seq: 7, Until: 3 * second, By: "all"} }, ByLimit,
			3 * second},
		{func() { b.State.Cool = 4 * second }, ByCooling, 4 * second},
		{func() { b.State.Target = h.Inherit(1, 4*second, second) }, ByBreaker, 4 * second},
	} {
		if c.held(); all.Next(b).By != c.by || all.Next(b).Until != c.until {
			t.Errorf("held by %+v, want %s until %v", all.Next(b), c.by, c.until)
		}
	}
}

func TestLaterStarts(t *testing.T) {
	h := NewHealth(nil)
	all := Gates{List: List{Breaking{&h}, Cooling{}, Rate{}},
		Later: []Later{Breaking{&h}, Rate{}}}
	b := bucket()
	b.State.Cool = 4 * second
	if at := all.After(b, &Ahead{Slots: 20}); at != 6*second {
		t.Errorf("after a pause and 20 slots at %v, want %v", at, 6*second)
	}
	b.Pace = nil
	if at := all.After(b, &Ahead{Slots: 20}); at != 4*second {
		t.Errorf("unpaced at %v, want %v", at, 4*second)
	}
	b.State.Target = h.Inherit(1, 4*second, second)
	if at := all.After(b, &Ahead{}); at != pace.Never {
		t.Errorf("expected at %v while a breaker is open", at)
	}
}

func TestTurnsAreByWeightAndNotEarnedWhileOthersStart(t *testing.T) {
	var turns Turns
	a := turns.Take(0, 1, 2)
	b := turns.Take(0, 1, 1)
	if a != 0.5 || b != 1 {
		t.Errorf("turns %v and %v, want 0.5 and 1", a, b)
	}
	if a = turns.Take(a, 4, 2); a != 2.5 || turns.Now != 0.5 {
		t.Errorf("the next turn is %v, from %v", a, turns.Now)
	}
	if turns.Rest(); turns.Now != 2.5 {
		t.Errorf("all begin anew from %v, want the last turn", turns.Now)
	}
}

func TestTheRateOfAllBuckets(t *testing.T) {
	of := pace.New(algorithms.Rate{Count: 10, Per: time.Second}, 1, 1)
	total := Total{Pace: of}
	total.Wake(second)
	total.Take(1, second)
	if h := total.Next(); h.By != ByTotalRate || h.Until != second+second/10 {
		t.Errorf("held by %s until %v", h.By, h.Until)
	}
	total.Return(1)
	if h := total.Next(); h.Until > second {
		t.Errorf("a start that was returned holds until %v", h.Until)
	}
	total.Change(nil, second)
	if h := total.Next(); h.Until != 0 {
		t.Errorf("without a rate it holds until %v", h.Until)
	}
	total.Change(of, 3*second)
	if h := total.Next(); h.Until != 3*second {
		t.Errorf("freedom earned a burst: %v", h.Until)
	}
}
