package valve

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// breaker keeps jobs from a target that is down, while attempts do not count. Each bucket has one,
// because a target may be down for one key alone, and each valve, for all its buckets. A bucket's
// opens when so many different jobs have found the target down and none has found it up in between
// that it cannot be the jobs; a valve's when so many buckets have. Open, it lets one job through
// per backoff, and closes when one of those finds the target up.
type breaker struct {
	open     bool
	since    pace.Instant // when it opened: jobs that have begun later are probes
	last     pace.Instant // when a job found the target down last
	failures int          // that opened it or kept it open, in a row
	at       pace.Instant // no probe before it
	probe    *heldJob     // the last one
}

// suspicion is what a bucket's jobs have told of its target since one of them found it up.
type suspicion struct {
	breaker
	jobs []*heldJob // that found it down, each once
}

const (
	// mostSuspectJobs open a bucket's breaker: different jobs, since one that kills its target each
	// time must use its attempts up and not stop the others. mostSuspectBuckets open a valve's:
	// fewer may be keys whose own targets are down.
	mostSuspectJobs, mostSuspectBuckets = 5, 3
	// mostProbeWait is the longest time between two probes, so that a target that is back is
	// noticed soon.
	mostProbeWait = time.Minute
)

// probing reports whether a probe runs: not one that came back, nor one whose partition was handed
// over or lost.
//
// What such a probe comes to is never heard here; a breaker that waited for it would stay open for
// good.
func (k *breaker) probing() bool {
	return k.open && k.probe != nil && k.probe.stage == stageRunning &&
		k.probe.Bucket.Part.state <= partitionLive
}

// due is the instant of the next probe. One that runs is waited for, but not for as long as some
// jobs run.
func (k *breaker) due() pace.Instant {
	if k.probing() {
		return max(k.at, k.probe.began.Add(mostProbeWait))
	}
	return k.at
}

// asked reports whether a job that has ended was a probe.
func (k *breaker) asked(j *heldJob) bool { return k.open && j.began > k.since }

// next is when the next probe is due, 0 when that depends on the one that runs.
func (k *breaker) next(now pace.Instant) pace.Instant {
	if k.probing() {
		return 0
	}
	return max(k.at, now)
}

// unavailable records that a job found its target down, and reports whether that counts as an
// attempt. It does until a breaker opens, since it is not known yet whose fault it is (law 6). Once
// one is open it counts only while jobs of other buckets get answers: then the job is what fails,
// and one that fails each time must use its attempts up. The job goes behind those that have not
// found the target down, since one of them makes the better probe.
func (v *Valve) unavailable(j *heldJob, now pace.Instant) (counts bool) {
	b := j.Bucket
	if b.target == nil {
		b.own().target = &suspicion{}
	}
	if j.tried == 0 {
		b.target.jobs = append(b.target.jobs, j)
	}
	j.tried++
	if v.breaker.open || b.target.open {
		counts = v.othersAnswer(b)
		probed := v.breaker.asked(j)
		if probed {
			v.wait(&v.breaker, now)
		}
		if probed || b.target.asked(j) {
			v.trip(j, now)
		}
		return counts
	}
	if len(b.target.jobs) >= mostSuspectJobs {
		v.trip(j, now)
	}
	if !slices.Contains(v.suspects, b.key) {
		v.suspects = append(v.suspects, b.key)
	}
	if len(v.suspects) >= mostSuspectBuckets {
		v.wait(&v.breaker, now)
		v.out.Breakers = append(v.out.Breakers, Turned{j.ref(), true, true, j.LastError})
	}
	return true
}

// othersAnswer reports whether the target is up for other buckets, while jobs of this one find it
// down: one of theirs that began since the bucket's last probe failed found it up.
func (v *Valve) othersAnswer(b *bucket) bool {
	return !v.breaker.open && b.down() && v.answered > b.target.last
}

// trip opens a bucket's breaker, or keeps it open because its probe failed. A failed probe of the
// valve's opens that of its bucket too, so that the next is another's.
func (v *Valve) trip(j *heldJob, now pace.Instant) {
	b := j.Bucket
	if !b.target.open {
		v.broken++
		v.out.Breakers = append(v.out.Breakers, Turned{j.ref(), true, false, j.LastError})
	}
	v.wait(&b.target.breaker, now)
}

// wait opens a breaker until its next probe, one backoff from now.
//
// The backoff is the policy's for jobs: whoever chose it said how often the target may be bothered.
// Jitter keeps the breakers of many buckets from probing at once.
func (v *Valve) wait(k *breaker, now pace.Instant) {
	most := min(time.Duration(v.Policy.Retry.MaxBackoff), mostProbeWait)
	backoff := pace.Doubled(time.Duration(v.Policy.Retry.Backoff), k.failures, most)
	if !k.open {
		k.since = now
	}
	*k = breaker{open: true, since: k.since, last: now, failures: k.failures + 1,
		at: now.Add(pace.Jittered(backoff, v.random()))}
}

// available takes that a job found its target up. While a breaker is open only its probes say so:
// others may have been under way for long.
func (v *Valve) available(j *heldJob, now pace.Instant) {
	b := j.Bucket
	v.answered = max(v.answered, j.began)
	if v.breaker.asked(j) {
		v.recovered(now)
		v.out.Breakers = append(v.out.Breakers, Turned{j.ref(), false, true, j.LastError})
	}
	if !v.breaker.open {
		v.suspects = v.suspects[:0]
	}
	if b.target != nil && (!b.target.open || b.target.asked(j)) {
		if b.target.open {
			v.out.Breakers = append(v.out.Breakers, Turned{j.ref(), false, false, j.LastError})
		}
		v.clear(b, now)
	}
}

// clear closes a bucket's breaker and forgets who found the target down.
func (v *Valve) clear(b *bucket, now pace.Instant) {
	if b.target.open {
		v.broken--
		if b.pace != nil {
			b.pace.Hold(&b.clock, now) // opening again is no burst
		}
	}
	for _, j := range b.target.jobs {
		j.tried = 0
		if j.stage == stageWaiting && j.inBucket >= 0 {
			b.ready.Fix(j.inBucket)
		}
	}
	b.target = nil
}

// recovered closes the breaker of all buckets. Those whose own is open probe at once.
//
// Their clocks begin now and are spread, because all have been due for the whole outage: a target
// that has just come up would get the first job of every bucket in one instant.
func (v *Valve) recovered(now pace.Instant) {
	since := v.breaker.since
	v.breaker = breaker{}
	if v.total != nil {
		v.total.Hold(&v.totalClock, now)
	}
	for _, p := range v.parts {
		for _, b := range p.buckets {
			if b.target != nil && !b.target.open {
				v.clear(b, now)
			}
			v.missed(b, byBreaker, since, now)
			if b.pace != nil { // nor do all buckets begin at once
				b.pace.Hold(&b.clock, now.Add(spread(b.key, min(b.pace.Interval, mostSpread))))
			}
			v.probeNow(b, now)
		}
	}
}

// probeNow lets an open breaker of a bucket wait no longer: there is news of the target.
func (v *Valve) probeNow(b *bucket, now pace.Instant) {
	if b.down() {
		b.target.at = min(b.target.at, now)
	}
	v.place(b, now)
}

// nextDue is the bucket that is due whose turn it is. While the breaker of all is open that is the
// one that has waited longest, of those that are able: a target may be up for the one that runs
// most.
//
// Else a bucket with fewest running jobs would be the probe each time, and if its own target is
// what hangs, the breaker would never close.
func (v *Valve) nextDue(able func(*bucket) bool) *bucket {
	first := v.due[0].bucket
	if !v.breaker.open {
		return first
	}
	var longest *bucket
	for _, b := range v.due {
		if (able == nil || able(b.bucket)) &&
			(longest == nil || b.nextAt < longest.nextAt ||
				b.nextAt == longest.nextAt && b.key < longest.key) {
			longest = b.bucket
		}
	}
	return cmp.Or(longest, first)
}

// Breakers is how the breakers of a policy stand.
type Breakers struct {
	Buckets int  // that have theirs open
	All     bool // the one of all buckets together is open
}

// Open is how many are.
func (b Breakers) Open() int {
	if b.All {
		return b.Buckets + 1
	}
	return b.Buckets
}

// Down reports whether a breaker is open that keeps the jobs of a key back, and whether an attempt
// of theirs counts nevertheless, since the target answers others.
func (v *Valve) Down(p *Part, key job.Key) (open, counts bool) {
	b := p.buckets[key]
	if b == nil {
		return v.breaker.open, false
	}
	return v.breaker.open || b.down(), v.othersAnswer(b)
}

func (v *Valve) Breakers() Breakers {
	return Breakers{v.broken, v.breaker.open && len(v.parts) > 0}
}
