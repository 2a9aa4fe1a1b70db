package workers

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
)

func TestAStepOfPriorityIsWorthWaiting(t *testing.T) {
	t.Parallel()
	const step, n = 2 * ms, 120
	p := leaky("api", "500/s")
	p.Concurrency, p.PriorityStep = 1, policy.Duration(step)
	b := newBench(t, p)
	pause := b.pause
	pause(true) // until the valve holds all jobs
	for i := range n {
		b.send("api", "a", fmt.Sprint(i), "Penstock-Priority", fmt.Sprint(i*7%19-9))
	}
	var ran seen
	b.drain(Options{}, map[string]Handler{"api": ran.handle})
	b.until("all jobs have come", func() bool { return b.bucket("api", "a").Waiting == n })
	pause(false)
	b.empty("api")
	place := func(j Job) time.Time {
		priority, _ := strconv.Atoi(j.Header.Get("Penstock-Priority"))
		return j.Accepted.Add(-time.Duration(priority) * step)
	}
	jobs := ran.all()
	if !slices.IsSortedFunc(jobs, func(a, b Job) int { return place(a).Compare(place(b)) }) ||
		slices.IsSortedFunc(jobs, func(a, b Job) int { return a.Accepted.Compare(b.Accepted) }) {
		t.Error("they started in another order")
	}
	if len(jobs) != n {
		t.Errorf("%d started", len(jobs))
	}
}
