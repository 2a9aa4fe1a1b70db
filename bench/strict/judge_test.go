package main

import (
	"testing"
	"time"
)

const ms = time.Millisecond

func TestTheWorstWindowIsHalfOpen(t *testing.T) {
	var comb []visit
	for i := range 300 {
		comb = append(comb, visit{time.Duration(i) * 10 * ms, time.Duration(i)*10*ms + 5*ms})
	}
	if w := counted(comb, 100*ms, 10); w != (worst{most: 10}) {
		t.Errorf("a comb of 10 in 100 ms: %+v", w)
	}
	// An answer 5 ms later leaves one more request countable in a window of 100 ms.
	if w := anywhere(comb, 100*ms, 10); w.most != 11 || w.over != 290 {
		t.Errorf("a comb of 10 in 100 ms, counted anywhere: %+v", w)
	}
	comb[200].came = comb[199].came
	if w := counted(comb, 100*ms, 10); w.most != 11 {
		t.Errorf("two at once in a comb of 10 in 100 ms: %+v", w)
	}
}

func TestAnUnansweredVisitCountsOnce(t *testing.T) {
	lost := []visit{{0, unanswered}, {200 * ms, 210 * ms}}
	if w := anywhere(lost, 100*ms, 1); w != (worst{most: 1}) {
		t.Errorf("%+v, want one at most", w)
	}
}

func TestWindowsInFullUse(t *testing.T) {
	var bursts []visit
	for i := range 100 {
		for range 10 {
			bursts = append(bursts, visit{came: time.Duration(i) * 250 * ms})
		}
	}
	if got := cycles(bursts, 10); got != 40 {
		t.Errorf("%v a second, want 10 in 250 ms", got)
	}
	if got := inUse(bursts, 250*ms, 250*ms, 10); got != 99 {
		t.Errorf("%d windows in full use, want 99", got)
	}
	if got := inUse(bursts, 0, 250*ms, 12); got != 0 {
		t.Errorf("%d windows with nine tenths of 12, want none", got)
	}
	if got := len(between(bursts, 250*ms, 500*ms)); got != 10 {
		t.Errorf("%d between, want 10", got)
	}
}
