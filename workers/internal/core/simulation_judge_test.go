package core

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace/pacetest"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// slot is a start, with the limits that its drainer had.
type slot struct {
	number int
	at     time.Duration
	cost   int64
	own    pacing
	total  pacing
	by     *drainer // of a call
	tokens int64    // that it used, where a limit counts them; 0: its cost
}

// takeover follows a crash; composed is when its checkpoint was built, −1 without one.
type takeover struct {
	at    time.Duration
	noted int
}

type change struct {
	at time.Duration
	to pacing
}

func (w *world) judge() {
	type class struct {
		bucket   string
		priority int
	}
	last := map[class]*fate{}
	for _, f := range w.fates() {
		if !f.final() && len(w.broken) == 0 {
			w.fail("law 3: %s has no outcome; starts %v", job.ID(f.policy, f.seq), f.slots)
		}
		if f.excepted || len(f.slots) != 1 {
			continue
		}
		c := class{f.bucket, f.priority}
		if l := last[c]; l != nil && f.slots[0].at < l.slots[0].at {
			w.fail("law 4: %s: job %d started at %v, before job %d at %v", f.bucket, f.seq,
				f.slots[0].at, l.seq, l.slots[0].at)
		}
		last[c] = f
	}
	if !w.settled() && len(w.broken) == 0 {
		w.fail("stuck: jobs are left in a stream")
	}
	w.judgeRates()
}

func (w *world) judgeRates() {
	buckets, totals := w.starts()
	for _, p := range w.policies {
		for _, key := range keys {
			bucket := bucketOf(p.Name, key)
			takeovers := w.takeovers[record.ShareKey(p.Name, partitionOf(key, p.Partitions))]
			own := func(s slot) pacing { return s.own }
			if why := overfull(buckets[bucket], own, w.changes[bucket], takeovers); why != "" {
				w.fail("law 2: %s: %s", bucket, why)
			}
		}
		if !p.OutflowTotal.IsZero() {
			total := func(s slot) pacing { return s.total }
			if why := overfull(totals[p.Name], total, w.changes[p.Name],
				w.takeovers[record.ShareKey(p.Name, 0)]); why != "" {
				w.fail("law 2: %s in total: %s", p.Name, why)
			}
		}
	}
}

func (w *world) fates() []*fate {
	return slices.SortedFunc(maps.Values(w.accepted), func(a, b *fate) int {
		return cmp.Or(cmp.Compare(a.policy, b.policy), a.message.Stored.Compare(b.message.Stored),
			cmp.Compare(a.seq, b.seq))
	})
}

// overfull checks law 2 in slots: in any window of length T ≥ 1 s at most peak·(T + 2 ms) + burst
// slots start, where the last job of the window counts as one.
//
// A clock lets a job start when one slot is free, and makes later ones wait for all its slots (see
// pace.Clock). A job may therefore overshoot by its cost minus one, at the end of a window only.
// Two exceptions:
//
// - After a crash a bucket counts as having started a job of cost one, unless a checkpoint shows
// better. So the last job before a takeover, if started after the checkpoint was built, counts as
// one.
//
// - Across a change the larger rate and burst count, and waits become shorter with a faster rate
// but no longer with a slower one. So a slower rate that becomes faster again loses the last job's
// cost.
func overfull(starts []slot, paceOf func(slot) pacing, changes []change,
	takeovers []takeover) string {
	slices.SortFunc(starts, func(a, b slot) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.number, b.number))
	})
	takes := make([]int64, len(starts))
	for i, s := range starts {
		takes[i] = s.cost
	}
	before := func(at time.Duration) int {
		i, _ := slices.BinarySearchFunc(starts, at+1, func(s slot, at time.Duration) int {
			return cmp.Compare(s.at, at)
		})
		return i - 1
	}
	for _, t := range takeovers {
		if i := before(t.at); i >= 0 && starts[i].number > t.noted {
			takes[i] = min(takes[i], 1)
		}
	}
	for _, c := range changes {
		if i := before(c.at); i >= 0 {
			takes[i] = 0
		}
	}
	first := 0
	for i, from := range starts {
		for first < len(changes) && changes[first].at < from.at {
			first++
		}
		most, taken, next := paceOf(from), int64(0), first
		for j, to := range starts[i:] {
			for ; next < len(changes) && changes[next].at < to.at; next++ {
				most = most.larger(changes[next].to)
			}
			most = most.larger(paceOf(to))
			window := max(time.Second, to.at-from.at)
			window += time.Duration(float64(window) * mostDrift)
			if float64(taken+1) > pacetest.Most(window, most.peak, most.burst) {
				return fmt.Sprintf("%d slots, peak %v/s, burst %d, in %d starts within %v, "+
					"%v to %v", taken+1, most.peak, most.burst, j+1, window, from.at, to.at)
			}
			taken += takes[i+j]
		}
	}
	return ""
}

func (p pacing) larger(q pacing) pacing {
	return pacing{max(p.rate, q.rate), max(p.peak, q.peak), max(p.burst, q.burst)}
}
