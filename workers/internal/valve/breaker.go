package valve

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// breaker is a circuit breaker for a target that is down, during which attempts do not count.
// Each bucket has one, since a target may be down for one key only, and each valve has one over
// all buckets. A bucket's breaker opens when enough different jobs in a row have found the
// target down to rule out the jobs as the cause; a valve's opens when enough buckets have. An
// open breaker lets one job per backoff through, and closes when such a probe finds the target
// up.
type breaker struct {
	open     bool
	since    pace.Instant // when it opened: jobs that began later are probes
	last     pace.Instant // when a job last found the target down
	failures int          // failures in a row that opened it or kept it open
	at       pace.Instant // time of the next probe
	probe    *heldJob     // the last one
}

// health is what is known of the target.
type health struct {
	breaker  breaker      // over all buckets
	answered pace.Instant // latest start of a job that found it up
	suspects []job.Key    // keys that found it down since it was last up
	broken   int          // number of buckets with an open breaker
	lowered  int          // number of buckets with a learnt, lower rate
}

// suspicion is the evidence against a bucket's target since a job last found it up.
type suspicion struct {
	breaker
	jobs []*heldJob // different jobs that found it down
}

const (
	// mostSuspectJobs opens a bucket's breaker. They are different jobs, since a job that kills
	// its target each time must exhaust its attempts without stopping the others.
	// mostSuspectBuckets opens a valve's breaker: fewer may be keys with targets of their own.
	mostSuspectJobs, mostSuspectBuckets = 5, 3
	// mostProbeWait is the longest time between two probes, for a prompt recovery.
	mostProbeWait = time.Minute
)

// probing reports whether a probe runs. It ignores probes that were returned, and probes of
// partitions that were handed over or lost: their outcomes never arrive here, and would keep
// the breaker open forever.
func (k *breaker) probing() bool {
	return k.open && k.probe != nil && k.probe.stage == stageRunning &&
		k.probe.Bucket.Part.state <= partitionLive
}

// due returns the time of the next probe. It waits for a running probe, but for a bounded time.
func (k *breaker) due() pace.Instant {
	if k.probing() {
		return max(k.at, k.probe.began.Add(mostProbeWait))
	}
	return k.at
}

// asked reports whether an ended job was a probe.
func (k *breaker) asked(j *heldJob) bool { return k.open && j.began > k.since }

// unavailable records that a job found its target down, and reports whether that counts as an
// attempt. It counts until a breaker opens, since the cause is not known before (law 6). After
// that it counts only while other buckets get answers: then the job itself fails, and must
// exhaust its attempts. The job moves behind those that have not found the target down, which
// are better probes.
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

// othersAnswer reports whether the target is up for other buckets while this one finds it down:
// a job of another bucket found it up, and began after this bucket's last probe failed.
func (v *Valve) othersAnswer(b *bucket) bool {
	return !v.breaker.open && b.down() && v.answered > b.target.last
}

// trip opens a bucket's breaker, or keeps it open after a failed probe. A failed probe of the
// valve's breaker also opens its bucket's, so that the next probe comes from another bucket.
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
// It uses the policy's job backoff, which states how often the target may be called. Jitter
// keeps the breakers of many buckets from probing at once.
func (v *Valve) wait(k *breaker, now pace.Instant) {
	most := min(time.Duration(v.Policy.Retry.MaxBackoff), mostProbeWait)
	backoff := pace.Doubled(time.Duration(v.Policy.Retry.Backoff), k.failures, most)
	if !k.open {
		k.since = now
	}
	*k = breaker{open: true, since: k.since, last: now, failures: k.failures + 1,
		at: now.Add(pace.Jittered(backoff, v.random()))}
}

// available records a successful call. While the breaker is open, only probes count, because
// other calls may have started earlier.
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

// clear closes a bucket's breaker and discards the evidence against its target.
func (v *Valve) clear(b *bucket, now pace.Instant) {
	if b.target.open {
		v.broken--
		b.pace.Hold(&b.clock, now) // opening again is no burst
	}
	for _, j := range b.target.jobs {
		j.tried = 0
		if j.stage == stageWaiting && j.inBucket >= 0 {
			b.ready.Fix(j.inBucket)
		}
	}
	b.target = nil
}

// recovered closes the breaker over all buckets. Buckets with an open breaker probe at once.
//
// All buckets have been due since the outage began. Their clocks restart now, spread out, so
// that a recovering target does not get the first job of every bucket in one instant.
func (v *Valve) recovered(now pace.Instant) {
	since := v.breaker.since
	v.breaker = breaker{}
	v.total.Hold(&v.total.clock, now)
	for _, p := range v.parts {
		for _, b := range p.buckets {
			if b.target != nil && !b.target.open {
				v.clear(b, now)
			}
			v.missed(b, byBreaker, since, now)
			if b.pace != nil { // spread, so that buckets do not all begin at once
				b.pace.Hold(&b.clock, now.Add(spread(b.key, min(b.pace.Interval, mostSpread))))
			}
			v.probeNow(b, now)
		}
	}
}

// probeNow makes a bucket's open breaker probe now, on news of the target.
func (v *Valve) probeNow(b *bucket, now pace.Instant) {
	if b.down() {
		b.target.at = min(b.target.at, now)
	}
	v.place(b, now)
}

// nextDue returns the due bucket whose turn it is. While the breaker over all buckets is open,
// it returns the able bucket that has waited longest.
//
// By the usual order, a bucket with the fewest running jobs would probe each time; if only its
// own target hangs, the breaker would never close.
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

// Breakers is the state of a policy's breakers.
type Breakers struct {
	Buckets int  // buckets with an open breaker
	All     bool // the breaker over all buckets is open
}

// Open counts the open breakers.
func (b Breakers) Open() int {
	if b.All {
		return b.Buckets + 1
	}
	return b.Buckets
}

// Down reports whether an open breaker holds the jobs of a key, and whether their attempts
// count nevertheless because the target answers other keys.
func (p *Part) Down(key job.Key) (open, counts bool) {
	b := p.buckets[key]
	if b == nil {
		return p.v.breaker.open, false
	}
	return p.v.breaker.open || b.down(), p.v.othersAnswer(b)
}

func (v *Valve) Breakers() Breakers {
	return Breakers{v.broken, v.breaker.open && len(v.parts) > 0}
}
