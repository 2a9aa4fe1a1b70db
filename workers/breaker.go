package workers

import (
	"cmp"
	"slices"
	"time"
)

// breaker keeps jobs from a target that is down, while attempts do not count. Each bucket has one, because a target may be
// down for one key alone, and each valve, for all its buckets. A bucket's opens when so many different jobs have found the
// target down and none has found it up in between that it cannot be the jobs; a valve's when so many buckets have. Open, it
// lets one job through per backoff, and closes when one of those finds the target up.
type breaker struct {
	open     bool
	since    instant // when it opened: jobs that have begun later are probes
	failures int     // that opened it or kept it open, in a row
	at       instant // no probe before it
	probe    *job    // the last one
}

// suspicion is what a bucket's jobs have told of its target since one of them found it up.
type suspicion struct {
	breaker
	jobs []*job // that found it down, each once
}

const (
	// mostSuspectJobs open a bucket's breaker, mostSuspectBuckets a valve's.
	mostSuspectJobs, mostSuspectBuckets = 5, 3
	// mostProbeWait is the longest time between two probes, so that a target that is back is noticed soon.
	mostProbeWait = time.Minute
)

// probing reports whether a probe runs: not one that came back, nor one whose partition was handed over or lost.
func (k *breaker) probing() bool {
	return k.open && k.probe != nil && k.probe.stage == stageRunning && k.probe.bucket.part.state <= partitionLive
}

// due is the instant of the next probe. One that runs is waited for, but not for as long as some jobs run.
func (k *breaker) due() instant {
	if k.probing() {
		return max(k.at, k.probe.began.add(mostProbeWait))
	}
	return k.at
}

// asked reports whether a job that has ended was a probe.
func (k *breaker) asked(j *job) bool { return k.open && j.began > k.since }

// next is when the next probe is due, 0 when that depends on the one that runs.
func (k *breaker) next(now instant) instant {
	if k.probing() {
		return 0
	}
	return max(k.at, now)
}

// down reports whether the bucket's own breaker is open.
func (b *bucket) down() bool { return b.target != nil && b.target.open }

// unavailable takes that a job found its target down, and reports whether that counts as an attempt: not while a breaker
// is open. The job goes behind those that have not found the target down, since one of them makes the better probe.
func (v *valve) unavailable(j *job, now instant) (counts bool) {
	b := j.bucket
	if b.target == nil {
		b.target = &suspicion{}
	}
	if j.tried == 0 {
		b.target.jobs = append(b.target.jobs, j)
	}
	j.tried++
	if v.breaker.open || b.target.open {
		probed := v.breaker.asked(j)
		if probed {
			v.wait(&v.breaker, now)
		}
		if probed || b.target.asked(j) {
			v.trip(j, now)
		}
		return false
	}
	if len(b.target.jobs) >= mostSuspectJobs {
		v.trip(j, now)
	}
	if !slices.Contains(v.suspects, b.key) {
		v.suspects = append(v.suspects, b.key)
	}
	if len(v.suspects) >= mostSuspectBuckets {
		v.wait(&v.breaker, now)
		v.out.breakers = append(v.out.breakers, turned{j, true, true})
	}
	return true
}

// trip opens a bucket's breaker, or keeps it open because its probe failed. A failed probe of the valve's opens that of its
// bucket too, so that the next is another's.
func (v *valve) trip(j *job, now instant) {
	b := j.bucket
	if !b.target.open {
		v.broken++
		v.out.breakers = append(v.out.breakers, turned{j, true, false})
	}
	v.wait(&b.target.breaker, now)
}

// wait opens a breaker until its next probe, one backoff from now.
func (v *valve) wait(k *breaker, now instant) {
	most := min(time.Duration(v.policy.Retry.MaxBackoff), mostProbeWait)
	backoff := doubled(time.Duration(v.policy.Retry.Backoff), k.failures, most)
	if !k.open {
		k.since = now
	}
	*k = breaker{open: true, since: k.since, failures: k.failures + 1, at: now.add(jittered(backoff, v.random()))}
}

// available takes that a job found its target up. While a breaker is open only its probes say so: others may have been
// under way for long.
func (v *valve) available(j *job, now instant) {
	b := j.bucket
	if v.breaker.asked(j) {
		v.recovered(now)
		v.out.breakers = append(v.out.breakers, turned{j, false, true})
	}
	if !v.breaker.open {
		v.suspects = v.suspects[:0]
	}
	if b.target != nil && (!b.target.open || b.target.asked(j)) {
		if b.target.open {
			v.out.breakers = append(v.out.breakers, turned{j, false, false})
		}
		v.clear(b, now)
	}
}

// clear closes a bucket's breaker and forgets who found the target down.
func (v *valve) clear(b *bucket, now instant) {
	if b.target.open {
		v.broken--
		if b.pace != nil {
			b.pace.hold(&b.clock, now) // opening again is no burst
		}
	}
	for _, j := range b.target.jobs {
		j.tried = 0
		if j.stage == stageWaiting && j.inBucket >= 0 {
			b.ready.fix(j.inBucket)
		}
	}
	b.target = nil
}

// recovered closes the breaker of all buckets. Those whose own is open probe at once.
func (v *valve) recovered(now instant) {
	v.breaker = breaker{}
	if v.total != nil {
		v.total.hold(&v.totalClock, now)
	}
	for _, p := range v.parts {
		for _, b := range p.buckets {
			if b.target != nil && !b.target.open {
				v.clear(b, now)
			}
			if b.pace != nil { // nor do all buckets begin at once
				b.pace.hold(&b.clock, now.add(spread(b.key, min(b.pace.interval, mostSpread))))
			}
			v.probeNow(b, now)
		}
	}
}

// probeNow lets an open breaker of a bucket wait no longer: there is news of the target.
func (v *valve) probeNow(b *bucket, now instant) {
	if b.down() {
		b.target.at = min(b.target.at, now)
	}
	v.place(b, now)
}

// nextDue is the bucket that is due whose turn it is. While the breaker of all is open that is the one that has waited
// longest, of those that are able: a target may be up for the one that runs most.
func (v *valve) nextDue(able func(*bucket) bool) *bucket {
	first := v.due[0].bucket
	if !v.breaker.open {
		return first
	}
	var longest *bucket
	for _, b := range v.due {
		if (able == nil || able(b.bucket)) && (longest == nil || b.nextAt < longest.nextAt || b.nextAt == longest.nextAt && b.key < longest.key) {
			longest = b.bucket
		}
	}
	return cmp.Or(longest, first)
}

// opened is how many breakers are open.
func (v *valve) opened() int {
	if v.breaker.open && len(v.parts) > 0 {
		return v.broken + 1
	}
	return v.broken
}
