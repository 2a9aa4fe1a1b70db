package valve

import (
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
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
	quota      *quota.Limits     // per bucket; may be nil
	together   *together         // over all buckets; may be nil
	shared     []*together       // with other policies
	common     []*together       // shared and together
	candidates *quota.Candidates // shadow limits
}

func (v *Valve) withinLimits(b *bucket, now pace.Instant) hold {
	if v.quota == nil && len(v.common) == 0 || b.queue.Near() == 0 {
		return hold{}
	}
	head := b.queue.Head()
	untold := hold{by: byStorage, until: v.untold(b.Part, head.takes(), now)}
	if v.quota == nil || untold.until > now {
		return untold
	}
	if p := b.Part; p.Checkpoints.Spent(v.quota, b.used, false) {
		return hold{by: byStorage,
			until: now.Add(askAgain + time.Duration(p.Buckets())*askAgainPerBucket)}
	}
	wait, by, until := v.quota.Ask(b.used, v.instant(now), head.takes())
	if b.allowed = (allowed{}); wait == 0 {
		b.allowed = allowed{head.Seq, min(pace.Instant(until), now.Add(askAgain))}
		return hold{}
	}
	return hold{by: byLimit, limit: by, until: after(wait, now)}
}

// untold returns until when a job waits for stored checkpoints, also of shared limits; Never: for
// the first.
func (v *Valve) untold(p *Part, c quota.Cost, now pace.Instant) (until pace.Instant) {
	if v.quota != nil {
		until = p.Checkpoints.Holds(c, v.quota, now.Add(askAgain))
	}
	for _, t := range v.common {
		if p := t.here(); p != nil {
			until = max(until, p.Checkpoints.Holds(c, t.Limits, now.Add(askAgain)))
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
func (v *Valve) stillWithin(b *bucket, now pace.Instant) bool {
	head := b.queue.Head()
	if a := b.allowed; v.quota != nil && a.seq == head.Seq && now < a.until &&
		v.untold(b.Part, head.takes(), now) <= now {
		return v.fits(b, now)
	}
	if v.withinLimits(b, now).until > now {
		b.changed()
		return false
	}
	return v.fits(b, now)
}

func (v *Valve) againWithin(now pace.Instant) {
	for _, t := range v.common {
		t.callBack(now)
	}
	if v.quota == nil {
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

func (v *Valve) setQuota(to *quota.Limits, candidates *quota.Candidates) {
	v.quota, v.candidates = to, candidates
	for _, part := range v.parts {
		for _, b := range part.buckets {
			if b.near == nothingNear {
				continue
			}
			b.trial, b.fresh = nil, 0
			if to == nil {
				b.used = nil
			} else if b.used != nil {
				b.used.Adapt(to)
			}
		}
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
