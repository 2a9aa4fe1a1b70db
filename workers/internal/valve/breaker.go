package valve

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// breaker is a circuit breaker for a target that is down, during which attempts do not count. A
// bucket's opens when several different jobs in a row have found the target down; the valve's opens
// when several buckets have. It lets one probe per backoff through, and closes when one finds the
// target up.
type breaker struct {
	open     bool
	since    pace.Instant // when it opened: jobs that began later are probes
	last     pace.Instant // when a job last found the target down
	failures int          // failures in a row that opened it or kept it open
	at       pace.Instant // time of the next probe
	probe    *heldJob     // the last one
}

type health struct {
	breaker  breaker      // over all buckets
	answered pace.Instant // latest start of a job that found it up
	suspects []job.Key    // keys that found it down since it was last up
	broken   int          // number of buckets with an open breaker
	lowered  int          // number of buckets with a learnt, lower rate
}

// suspicion is the evidence against a bucket's target since it was last up.
type suspicion struct {
	breaker
	jobs []*heldJob // different jobs that found it down
}

const (
	// mostSuspectJobs opens a bucket's breaker. They must differ: a job that kills its target must
	// exhaust its attempts without stopping the others. mostSuspectBuckets opens the valve's: fewer
	// may have targets of their own.
	mostSuspectJobs, mostSuspectBuckets = 5, 3
	// mostProbeWait is the longest time between two probes, for a prompt recovery.
	mostProbeWait = time.Minute
)

// probing reports whether a probe runs. Probes of partitions that were handed over never report.
func (k *breaker) probing() bool {
	return k.open && k.probe != nil && k.probe.stage == stageRunning &&
		k.probe.Bucket.Part.state <= partitionLive
}

// due returns the time of the next probe. It waits for a running one, up to mostProbeWait.
func (k *breaker) due() pace.Instant {
	if k.probing() {
		return max(k.at, k.probe.began.Add(mostProbeWait))
	}
	return k.at
}

func (k *breaker) asked(j *heldJob) bool { return k.open && j.began > k.since }

// unavailable records that a job found its target down, and reports whether that counts as an
// attempt: until a breaker opens (law 6), and then only while other buckets get answers, since then
// the job itself fails. The job moves behind others that have not found the target down.
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

// othersAnswer reports whether another bucket's job found the target up, and began after this
// bucket's last probe failed.
func (v *Valve) othersAnswer(b *bucket) bool {
	return !v.breaker.open && b.down() && v.answered > b.target.last
}

// trip opens a bucket's breaker, or keeps it open. A failed probe of the valve's breaker also does,
// so that the next probe comes from another bucket.
func (v *Valve) trip(j *heldJob, now pace.Instant) {
	b := j.Bucket
	if !b.target.open {
		v.broken++
		v.out.Breakers = append(v.out.Breakers, Turned{j.ref(), true, false, j.LastError})
	}
	v.wait(&b.target.breaker, now)
}

// wait opens a breaker until its next probe, one jittered backoff of the policy from now.
func (v *Valve) wait(k *breaker, now pace.Instant) {
	most := min(time.Duration(v.Policy.Retry.MaxBackoff), mostProbeWait)
	backoff := pace.Doubled(time.Duration(v.Policy.Retry.Backoff), k.failures, most)
	if !k.open {
		k.since = now
	}
	*k = breaker{open: true, since: k.since, last: now, failures: k.failures + 1,
		at: now.Add(pace.Jittered(backoff, v.random()))}
}

// available records a successful call. Calls that began before a breaker opened do not close it.
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

// recovered closes the breaker over all buckets, whose clocks restart, spread out.
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
			if b.pace != nil {
				b.pace.Hold(&b.clock, now.Add(spread(b.key, min(b.pace.Interval, mostSpread))))
			}
			v.probeNow(b, now)
		}
	}
}

func (v *Valve) probeNow(b *bucket, now pace.Instant) {
	if b.down() {
		b.target.at = min(b.target.at, now)
	}
	v.place(b, now)
}

// nextDue returns the due bucket whose turn it is; while the valve's breaker is open, the able
// bucket that has waited longest, so that a bucket whose own target hangs cannot probe each time.
func (v *Valve) nextDue(able func(*bucket) bool) *bucket {
	first := v.due[0].bucket
	if !v.breaker.open {
		return first
	}
	var longest *bucket
	for _, b := range v.due {
		if (able == nil || able(b.bucket)) && (longest == nil || b.nextAt < longest.nextAt ||
			b.nextAt == longest.nextAt && b.key < longest.key) {
			longest = b.bucket
		}
	}
	return cmp.Or(longest, first)
}

type Breakers struct {
	Buckets int  // buckets with an open breaker
	All     bool // the breaker over all buckets is open
}

func (b Breakers) Open() int {
	if b.All {
		return b.Buckets + 1
	}
	return b.Buckets
}

// Down reports whether an open breaker holds the jobs of a key, and whether their attempts count
// nevertheless.
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
