package valve

import (
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// breaker is a circuit breaker: while a target is down, attempts do not count, and one probe starts
// per backoff.
type breaker struct {
	open     bool
	since    pace.Instant // jobs that began later are probes
	last     pace.Instant // last failure
	failures int
	at       pace.Instant // next probe
	probe    *heldJob
}

type health struct {
	breaker  breaker
	answered pace.Instant // start of a successful job
	suspects []job.Key
	broken   int
	lowered  int // with a learnt, lower rate
}

type suspicion struct {
	breaker
	jobs []*heldJob
}

const (
	// mostSuspectJobs different jobs open a bucket's breaker: a job that kills its target must use
	// up its attempts without stopping others. mostSuspectBuckets open the valve's; with fewer, the
	// buckets may have separate targets.
	mostSuspectJobs, mostSuspectBuckets = 5, 3
	mostProbeWait                       = time.Minute
)

// probing reports whether a probe runs. Probes of lost partitions never report.
func (k *breaker) probing() bool {
	return k.open && k.probe != nil && k.probe.stage == stageRunning &&
		k.probe.Bucket.Part.state <= partitionLive
}

// due returns when the next probe may start. It waits for a running one up to mostProbeWait.
func (k *breaker) due() pace.Instant {
	if k.probing() {
		return max(k.at, k.probe.began.Add(mostProbeWait))
	}
	return k.at
}

func (k *breaker) asked(j *heldJob) bool { return k.open && j.began > k.since }

// unavailable records that a job found its target down, and reports whether that counts as an
// attempt. It does until a breaker opens (law 6), and then only while other buckets succeed,
// because then the job itself fails. The job moves behind those without failures.
func (v *Valve) unavailable(j *heldJob, now pace.Instant) (counts bool) {
	return v.down(j, mostSuspectJobs, now)
}

// uncallable records that a worker could not call the target, through no fault of the job.
func (v *Valve) uncallable(j *heldJob, reason string, now pace.Instant) {
	j.LastError, j.Bucket.own().lastError = reason, reason
	v.down(j, 1, now)
}

// down opens the bucket's breaker at a number of different jobs.
func (v *Valve) down(j *heldJob, suspects int, now pace.Instant) (counts bool) {
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
	if len(b.target.jobs) >= suspects {
		v.trip(j, now)
	}
	if !slices.Contains(v.suspects, b.queue.Key) {
		v.suspects = append(v.suspects, b.queue.Key)
	}
	if len(v.suspects) >= mostSuspectBuckets {
		v.wait(&v.breaker, now)
		v.out.Breakers = append(v.out.Breakers, Turned{j.ref(), true, true, j.LastError})
	}
	return true
}

// othersAnswer reports whether another bucket's job succeeded that began after this bucket's last
// failure.
func (h *health) othersAnswer(b *bucket) bool {
	return !h.breaker.open && b.down() && h.answered > b.target.last
}

// trip opens a bucket's breaker or keeps it open. So does a failed probe of the valve's breaker,
// whose next probe is another bucket's.
func (v *Valve) trip(j *heldJob, now pace.Instant) {
	b := j.Bucket
	if !b.target.open {
		v.broken++
		v.out.Breakers = append(v.out.Breakers, Turned{j.ref(), true, false, j.LastError})
	}
	v.wait(&b.target.breaker, now)
}

// wait keeps a breaker open for another jittered backoff.
func (v *Valve) wait(k *breaker, now pace.Instant) {
	most := min(time.Duration(v.Policy.Retry.MaxBackoff), mostProbeWait)
	backoff := pace.Doubled(time.Duration(v.Policy.Retry.Backoff), k.failures, most)
	if !k.open {
		k.since = now
	}
	*k = breaker{open: true, since: k.since, last: now, failures: k.failures + 1,
		at: now.Add(pace.Jittered(backoff, v.random()))}
}

// available records a success. Jobs that began before a breaker opened do not close it.
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

func (h *health) clear(b *bucket, now pace.Instant) {
	if b.target.open {
		h.broken--
		b.pace.Hold(&b.clock, now) // without a burst
	}
	for _, j := range b.target.jobs {
		if j.tried = 0; j.stage == stageWaiting {
			j.Behind = j.behind()
			b.queue.Fix(&j.Job)
		}
	}
	b.target = nil
}

// recovered closes the breaker over all buckets. Their clocks restart, spread out.
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
				apart := spread(b.queue.Key, min(b.pace.Interval, mostSpread))
				b.pace.Hold(&b.clock, now.Add(apart))
			}
			v.probeNow(b, now)
		}
	}
}

func (v *Valve) probeNow(b *bucket, now pace.Instant) {
	if b.down() {
		b.target.at = min(b.target.at, now)
	}
	b.changed()
}

// probeSooner makes the next probes of the open breakers that hold a bucket due, for an operator
// who knows that the target is back, and returns their number.
func (h *health) probeSooner(b *bucket, now pace.Instant) (sooner int) {
	holding := []*breaker{&h.breaker}
	if b.down() {
		holding = append(holding, &b.target.breaker)
	}
	for _, k := range holding {
		if k.open && k.due() > now && !k.probing() {
			k.at = now
			sooner++
		}
	}
	b.changed()
	return sooner
}

// nextDue returns the able due bucket whose turn it is, or nil. While the valve's breaker is open,
// that is the one that has waited longest: a hanging one must not have each probe.
func (v *Valve) nextDue(able func(*bucket) bool) (longest *bucket) {
	if !v.breaker.open {
		return v.firstDue(0, able)
	}
	for _, b := range v.due {
		if able(b.bucket) && (longest == nil || b.nextAt < longest.nextAt ||
			b.nextAt == longest.nextAt && b.queue.Key < longest.queue.Key) {
			longest = b.bucket
		}
	}
	return longest
}

// firstDue returns the first able due bucket, in the heap below i, or nil.
func (a *agenda) firstDue(i int, able func(*bucket) bool) *bucket {
	switch {
	case i >= len(a.due):
		return nil
	case able(a.due[i].bucket):
		return a.due[i].bucket
	}
	x, y := a.firstDue(2*i+1, able), a.firstDue(2*i+2, able)
	if x == nil || y != nil && (dueBucket{y}).Before(dueBucket{x}) {
		return y
	}
	return x
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

// Down reports whether a breaker holds a key's jobs, and whether their attempts count all the same.
func (p *Part) Down(key job.Key) (open, counts bool) {
	b := p.look(key)
	return p.v.breaker.open || b.down(), p.v.othersAnswer(b)
}

func (v *Valve) Breakers() Breakers {
	return Breakers{v.broken, v.breaker.open && len(v.parts) > 0}
}
