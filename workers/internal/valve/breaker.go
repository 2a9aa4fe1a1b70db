package valve

import (
	"github.com/penstock-mq/penstock/workers/internal/gates"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// down records that a job found its target down, or with suspects = 1 that a worker could not call
// it, and reports whether that counts as an attempt. The job moves behind those without failures.
func (v *Valve) down(j *heldJob, suspects int, now pace.Instant) (counts bool) {
	b := j.Bucket
	if b.Target == nil {
		b.own().Target = &gates.Target{}
	}
	j.tried++
	counts, opened := v.health.Failed(b.Target, gates.Failure{Key: b.queue.Key, Run: j,
		Began: j.began, First: j.tried == 1, Jobs: suspects}, v.Policy.Retry, now)
	v.out.turned(j, true, opened)
	return counts
}

// available records a success.
func (v *Valve) available(j *heldJob, now pace.Instant) {
	b := j.Bucket
	clears, closed := v.health.Succeeded(b.Target, j.began)
	if closed.All {
		v.recovered(now)
	}
	if clears && b.Target != nil {
		b.clear(&v.health, now)
	}
	v.out.turned(j, false, closed)
}

func (a *Actions) turned(j *heldJob, open bool, which gates.Turned) {
	if which.Bucket {
		a.Breakers = append(a.Breakers, Turned{j.ref(), open, false, j.LastError})
	}
	if which.All {
		a.Breakers = append(a.Breakers, Turned{j.ref(), open, true, j.LastError})
	}
}

// clear ends what is held against a bucket's target, without a burst.
func (b *bucket) clear(h *gates.Health, now pace.Instant) {
	if h.Clear(b.Target) {
		b.pace.Hold(&b.clock, now)
	}
	b.Target = nil
}

// Probing implements [gates.Run].
func (j *heldJob) Probing() bool { return j.stage == stageRunning && j.Bucket.Part.Owned() }

// Cleared implements [gates.Run].
func (j *heldJob) Cleared() {
	if j.tried = 0; j.stage == stageWaiting {
		j.Behind = j.behind()
		j.Bucket.queue.Fix(&j.Job)
	}
}

// recovered closes the breaker over all buckets. Their clocks restart, spread out.
func (v *Valve) recovered(now pace.Instant) {
	since := v.health.Recovered()
	v.total.Hold(now)
	for _, p := range v.parts {
		for _, b := range p.buckets {
			if b.Target != nil && !b.Target.Open {
				b.clear(&v.health, now)
			}
			b.missed(gates.ByBreaker, since, now)
			if b.pace != nil {
				apart := spread(b.queue.Key, min(b.pace.Interval, mostSpread))
				b.pace.Hold(&b.clock, now.Add(apart))
			}
			b.Target.Hasten(now)
			b.changed()
		}
	}
}

type Breakers struct {
	Buckets int
	All     bool
}

func (b Breakers) Open() int {
	if b.All {
		return b.Buckets + 1
	}
	return b.Buckets
}

func (v *Valve) Breakers() Breakers {
	return Breakers{v.health.Broken, v.health.All.Open && len(v.parts) > 0}
}
