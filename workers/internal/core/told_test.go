package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

func TestAValveAtRestIsReportedUntilNothingChanges(t *testing.T) {
	p := leaky("api", "10/s")
	p.Limits = []policy.Limit{{Name: "account", Key: policy.KeyGlobal, Rule: policy.Rule{
		Algorithm: policy.FixedWindow, Limit: 5, Window: policy.Duration(time.Minute)}}}
	c := coreBench(t, p)
	part, now := takeOver(c, Opened{})
	v := c.valves.all["api"]
	var left []int64
	tell := func() {
		nothing := func(_, _ string, _ time.Duration) {}
		c.Tell(now, nothing, nothing, func(string, int) {}, func(string, valve.Breakers) {},
			func(_ string, balances []api.LimitLeft) {
				for _, b := range balances {
					left = append(left, b.Left)
				}
			})
	}
	now = c.run(now, time.Second, nil)
	tell()
	if v.awake || !v.told.all {
		t.Fatalf("without jobs it is awake: %v, reported: %v", v.awake, v.told.all)
	}
	left = nil
	c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch, Jobs: []job.Arrived{
		{Seq: 1, Key: "a", Cost: 1, Stored: originWall, Body: []byte{}}}}, now)
	c.advance(now)
	r := c.out.Starts[0]
	r.Decide(atOnce(r), nil)
	c.Handle(Finish(r, record.Outcome{Seq: 1, Kind: record.OutcomeDone}), now)
	c.Handle(Confirmed{part.Partition, []uint64{1}}, now)
	for end := now.Add(time.Hour); now < end && (v.awake || !v.told.all || v.told.left); {
		now = c.run(now, time.Second, nil)
		tell()
	}
	if v.awake || len(left) < 30 || left[0] != 4 || left[len(left)-1] == 4 {
		t.Errorf("it is awake: %v; reported balances: %v", v.awake, left)
	}
}

func TestUnitsWithoutAnAnswerAreReportedOfAllKeysTogether(t *testing.T) {
	p := leaky("api", "10/s")
	p.Limits = []policy.Limit{{Name: "calls", CountFrom: policy.CountFromAnswer, Rule: policy.Rule{
		Algorithm: policy.SlidingLog, Limit: 5, Window: policy.Duration(time.Minute)}}}
	c := coreBench(t, p)
	part, now := takeOver(c, Opened{})
	var open [][]api.LimitLeft
	tell := func() {
		nothing := func(_, _ string, _ time.Duration) {}
		c.Tell(now, nothing, nothing, func(string, int) {}, func(string, valve.Breakers) {},
			func(_ string, balances []api.LimitLeft) { open = append(open, balances) })
	}
	now = c.run(now, time.Second, nil)
	for i, key := range []queue.Key{"a", "b"} {
		c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch, Jobs: []job.Arrived{
			{Seq: uint64(i) + 1, Key: key, Cost: 1, Stored: originWall, Body: []byte{}}}}, now)
	}
	c.advance(now)
	runs := slices.Clone(c.out.Starts)
	tell()
	for _, r := range runs {
		r.Decide(atOnce(r), nil)
		c.Handle(Finish(r, record.Outcome{Seq: r.Seq, Kind: record.OutcomeDone}), now)
		tell()
	}
	tell()
	if got := fmt.Sprint(open); len(runs) != 2 || got != "[[{calls 0 0 2}] [{calls 0 0 1}] []]" {
		t.Errorf("%d runs, and reported was %s", len(runs), got)
	}
}
