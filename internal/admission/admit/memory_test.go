package admit

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/queue"
)

func TestRefusalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRefusals(time.Hour, time.Hour)
		for i := range maxRefusals + 100 {
			known, mine := r.remember(queue.Key(fmt.Sprint(i)))
			if !mine {
				t.Fatalf("bucket %d was known before", i)
			}
			r.settle(known, time.Hour)
		}
		if len(r.buckets) != maxRefusals {
			t.Errorf("%d refusals are remembered, want %d", len(r.buckets), maxRefusals)
		}
		if r.recall(queue.Key(fmt.Sprint(maxRefusals+1))) != nil {
			t.Error("a refusal beyond the bound is remembered")
		}
		time.Sleep(maxHold)
		known, mine := r.remember("new")
		r.settle(known, time.Hour)
		if !mine || r.recall("new") != known || len(r.buckets) != 1 {
			t.Errorf("expired refusals were not forgotten: %d remain", len(r.buckets))
		}
	})
}

// Refused callers get successive free places, each once, but no later than a full bucket takes to
// drain.
func TestARefusedCrowdIsToldPlacesOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval, places = 10 * time.Millisecond, 5
		r := newRefusals(interval, places*interval)
		began := time.Now()
		told := func(free time.Duration) time.Duration {
			return r.place("a", &refusal{free: began.Add(free)}).Sub(began)
		}
		for i := range time.Duration(places + 1) {
			if at := told(interval); at != interval+i*interval {
				t.Errorf("refusal %d is told %v", i+1, at)
			}
		}
		if at := told(interval); at != interval {
			t.Errorf("when all places are promised it is told %v", at)
		}
		time.Sleep(2 * interval)
		if at := told(3 * interval); at != 3*interval {
			t.Errorf("when the crowd could have come it is told %v", at)
		}
		if at := told(3 * interval); at != 4*interval {
			t.Errorf("and the next %v", at)
		}
		for i := range maxRefusals + 100 {
			r.place(queue.Key(fmt.Sprint(i)), &refusal{free: time.Now()})
		}
		if len(r.crowds) > maxRefusals {
			t.Errorf("%d crowds are remembered", len(r.crowds))
		}
	})
}

func TestRepeatsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeats(time.Minute)
		job := func(i int) repeatKey { return repeatKey{"acme", fmt.Sprint(i)} }
		for i := range maxRepeats + 10 {
			r.remember(job(i), jet.Receipt{Seq: uint64(i)})
		}
		if len(r.receipts) != maxRepeats || len(r.order) != maxRepeats {
			t.Errorf("%d and %d are remembered, want %d", len(r.receipts), len(r.order), maxRepeats)
		}
		if _, found := r.recall(job(9)); found {
			t.Error("the oldest was not forgotten first")
		}
		if receipt, found := r.recall(job(10)); !found || receipt.Seq != 10 {
			t.Errorf("got %+v, %v", receipt, found)
		}
		r.remember(job(10), jet.Receipt{Seq: 99})
		if receipt, _ := r.recall(job(10)); receipt.Seq != 10 {
			t.Error("a repeat replaced the first answer")
		}
		time.Sleep(time.Minute)
		if _, found := r.recall(job(maxRepeats)); found || len(r.receipts) != 0 ||
			len(r.order) != 0 {
			t.Error("the window has passed and something is remembered")
		}
	})
}

func TestABudgetIsSharedByClients(t *testing.T) {
	b := NewBudget(100)
	most := func(c Client) (n int64) {
		for b.Reserve(c, 1) == nil {
			n++
		}
		return n
	}
	greedy, other, operator := Client{Name: "greedy"}, Client{Name: "other"},
		Client{Name: "operator", Operator: true}
	got := []int64{most(greedy), most(other), most(Client{Name: "third"}), most(operator)}
	if want := []int64{67, 17, 4, 9}; !slices.Equal(got, want) {
		t.Errorf("clients that want everything get %d, want %d", got, want)
	}
	b.Release(greedy, 67)
	if n := most(operator); n < 40 {
		t.Errorf("an operator gets %d more of what a client gave back", n)
	}
	if one := NewBudget(1); one.Reserve(greedy, 1) != nil || one.Reserve(operator, 1) == nil {
		t.Error("a budget of one is not for one")
	}
}
