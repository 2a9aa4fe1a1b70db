package valve

import (
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/gates"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
)

// Start limits apply in addition to a bucket's pace. A start is charged when decided, and refunded
// if returned; the guard covers the delay in between.
//
// To keep unknown starts few after a crash, no job starts under limits before an owner's first
// checkpoint; if the job costs more than any in a checkpoint; or beyond a stored checkpoint's
// budget.

const (
	// askAgain is the pause before another look for a checkpoint, plus askAgainPerBucket: large
	// partitions have rarer ones.
	askAgain          = 100 * time.Millisecond
	askAgainPerBucket = 10 * time.Microsecond
)

type startLimits struct {
	wall       wallClock
	gates      gates.Gates
	alone      *group // of a forecast without calls
	total      gates.Total
	turns      gates.Turns
	quota      *quota.Limits     // per bucket; may be nil
	together   *together         // over all buckets; may be nil
	shared     []*together       // with other policies
	common     []*together       // shared and together
	candidates *quota.Candidates // shadow limits
}

// limiting is the gate of start limits. Those over all buckets are asked in turns.
type limiting struct{ *startLimits }

// Next implements [gates.Gate].
func (l limiting) Next(b *gates.Bucket) gates.Hold {
	if l.quota == nil && len(l.common) == 0 || !b.Near {
		return gates.Hold{}
	}
	untold := gates.Hold{By: gates.ByStorage, Until: l.untold(b)}
	if l.quota == nil || untold.Until > b.Now {
		return untold
	}
	if b.Store.Spent(l.quota, b.State.Used, false) {
		return gates.Hold{By: gates.ByStorage, Until: b.Now.Add(askAgain +
			time.Duration(b.Buckets)*askAgainPerBucket)}
	}
	wait, by, until := l.quota.Ask(b.State.Used, l.wall.reading(b.Now), b.Takes)
	if b.State.Allowed = (gates.Allowed{}); wait == 0 {
		b.State.Allowed = gates.Allowed{Seq: b.Seq,
			Until: min(pace.Instant(until), b.Now.Add(askAgain))}
		return gates.Hold{}
	}
	return gates.Hold{By: gates.ByLimit, Limit: by, Until: after(wait, b.Now)}
}

// After implements [gates.Later], also of limits over all buckets.
func (l limiting) After(b *gates.Bucket, a *gates.Ahead, at pace.Instant) pace.Instant {
	wait, seen := time.Duration(0), l.wall.reading(b.Now)
	if l.quota != nil {
		wait = l.quota.After(b.State.Used, seen, a.Work.Own(a.Slots), a.Takes)
	}
	for _, t := range l.common {
		if !l.elsewhere(t) {
			wait = max(wait, t.After(t.used, seen, a.Work.All(a.Slots+a.Others), a.Takes))
		}
	}
	return max(at, b.Now.Add(wait))
}

// untold returns until when a job waits for stored checkpoints, also of shared limits; Never: for
// the first.
func (l *startLimits) untold(b *gates.Bucket) (until pace.Instant) {
	again := b.Now.Add(askAgain)
	if l.quota != nil {
		until = b.Store.Holds(b.Takes, l.quota, again)
	}
	for _, t := range l.common {
		if p := t.here(); p != nil {
			until = max(until, p.Checkpoints.Holds(b.Takes, t.Limits, again))
		}
	}
	return until
}

// after returns the end of a wait for a limit; Never if only an answer ends it.
func after(wait time.Duration, now pace.Instant) pace.Instant {
	if wait == quota.UntilAnswered {
		return pace.Never
	}
	return now.Add(wait)
}

// stillWithin checks a due bucket again, because some permissions end.
func (l *startLimits) stillWithin(b *bucket, now pace.Instant) bool {
	seen := l.see(b, now)
	if a := b.Allowed; l.quota != nil && a.Seq == seen.Seq && now < a.Until &&
		l.untold(seen) <= now {
		return l.fits(b, now)
	}
	if (limiting{l}).Next(seen).Until > now {
		b.changed()
		return false
	}
	return l.fits(b, now)
}

func (v *Valve) againWithin(now pace.Instant) {
	for _, t := range v.common {
		t.callBack(now)
	}
	if v.quota == nil && len(v.Policy.Quiet) == 0 {
		return
	}
	for _, part := range v.parts {
		for _, b := range part.buckets {
			if b.fresh = 0; b.spot == spotSched {
				b.changed()
			}
		}
	}
}

// requota applies new limits to what a bucket has used of those before.
func (b *bucket) requota(to *quota.Limits) {
	if b.near == nothingNear {
		return
	}
	b.trial, b.fresh = nil, 0
	if to == nil {
		b.Used = nil
	} else if b.Used != nil {
		b.Used.Adapt(to)
	}
}

// impossible returns why a job or call of a cost can never start, or "".
func (s *settings) impossible(cost int64, named map[string]int64) string {
	limit, of, most := s.Policy.BeyondLimits(cost, named)
	switch {
	case limit != "":
		return fmt.Sprintf("%s exceeds the limit %s of at most %d, so it can never pass",
			job.CostHeader(of), limit, most)
	case s.Policy.Paced() && cost > s.Policy.Capacity:
		return fmt.Sprintf("%s exceeds the bucket's capacity of %d, so it can never pass",
			job.HeaderCost, s.Policy.Capacity)
	}
	return ""
}
