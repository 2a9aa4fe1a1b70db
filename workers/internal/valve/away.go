package valve

import (
	"slices"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
)

// mostAway bounds the absent callers of a bucket; the others get the time of the last one.
const mostAway = 1 << 12

// absent is a refused caller that will ask again, in a call of its own.
type absent struct {
	back  pace.Instant
	takes quota.Cost
}

// group sums up the costs of calls.
type group struct {
	jobs, slots int64
	named       map[string]int64 // less the slots, for calls that name them
}

func (c *group) add(takes quota.Cost) {
	c.jobs++
	c.slots += takes.Job
	for name, n := range takes.Named {
		if c.named == nil {
			c.named = map[string]int64{}
		}
		c.named[name] += n - takes.Job
	}
}

// with adds the calls to other work.
func (c *group) with(other quota.Ahead) quota.Ahead {
	if c.jobs == 0 {
		return other
	}
	return quota.Ahead{Jobs: c.jobs + other.Jobs, Units: func(cost string) int64 {
		units := c.slots + c.named[cost]
		if other.Jobs > 0 {
			units += other.Units(cost)
		}
		return units
	}}
}

// turnAway returns the time in ms after which a refused call may come back; nil: unknown. Calls
// that were refused earlier come back earlier, so each is told its own turn. That is when half of
// its wait is left: the bucket does not run dry, and a late forecast does not refuse it again.
func (v *Valve) turnAway(j *heldJob, most time.Duration, now pace.Instant) *int64 {
	c := j.Bucket.calls()
	c.away = slices.DeleteFunc(c.away, func(a absent) bool { return a.back <= now })
	wait := v.expectCall(j, c.away, now)
	if wait == nil {
		return nil
	}
	again := max(*wait-most.Milliseconds()/2, 1)
	if len(c.away) < mostAway {
		c.away = append(c.away, absent{now.Add(time.Duration(again) * time.Millisecond),
			j.takes()})
	}
	return &again
}
