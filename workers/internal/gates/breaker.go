// Package gates has what may hold a bucket's next start back, each with its own state. It knows
// neither valves nor partitions.
package gates

import (
	"slices"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

const (
	// MostSuspectJobs different jobs open a bucket's breaker: a job that kills its target must use
	// up its attempts without stopping others. MostSuspectBuckets open that of all; with fewer, the
	// buckets may have separate targets.
	MostSuspectJobs, MostSuspectBuckets = 5, 3
	MostProbeWait                       = time.Minute
)

// A Breaker is a circuit breaker: while a target is down, attempts do not count, and one probe
// starts per backoff.
type Breaker struct {
	Open     bool
	Failures int
	At       pace.Instant // next probe
	since    pace.Instant // jobs that began later are probes
	last     pace.Instant // last failure
	probe    Run
	began    pace.Instant // of the probe
}

// Run is a started job.
type Run interface {
	// Probing reports whether the run will still report to this process.
	Probing() bool
	// Cleared says that the job's failures were its target's.
	Cleared()
}

// probing reports whether a probe runs. Probes of lost partitions never report.
func (k *Breaker) probing() bool { return k.Open && k.probe != nil && k.probe.Probing() }

// Due returns when the next probe may start. It waits for a running one up to MostProbeWait.
func (k *Breaker) Due() pace.Instant {
	if k.probing() {
		return max(k.At, k.began.Add(MostProbeWait))
	}
	return k.At
}

func (k *Breaker) asked(began pace.Instant) bool { return k.Open && began > k.since }

func (k *Breaker) start(r Run, now pace.Instant) {
	if k.Open {
		k.probe, k.began = r, now
	}
}

// wait keeps a breaker open for another jittered backoff.
func (k *Breaker) wait(retry policy.Retry, random float64, now pace.Instant) {
	backoff := pace.Doubled(time.Duration(retry.Backoff), k.Failures,
		min(time.Duration(retry.MaxBackoff), MostProbeWait))
	if !k.Open {
		k.since = now
	}
	*k = Breaker{Open: true, since: k.since, last: now, Failures: k.Failures + 1,
		At: now.Add(pace.Jittered(backoff, random))}
}

// Target is the breaker of a bucket whose jobs found its target down. Nil: none did.
type Target struct {
	Breaker
	jobs []Run
}

func (t *Target) Down() bool { return t != nil && t.Open }

// Hasten makes the next probe due.
func (t *Target) Hasten(now pace.Instant) {
	if t.Down() {
		t.At = min(t.At, now)
	}
}

// Health is the breaker of all buckets, and what it knows of those of each.
type Health struct {
	All      Breaker
	Broken   int          // open breakers of buckets
	answered pace.Instant // start of a successful job
	suspects []queue.Key
	random   func() float64
}

func NewHealth(random func() float64) Health { return Health{random: random} }

// Turned tells which breakers opened or closed.
type Turned struct{ Bucket, All bool }

// Failure is a run that found its target down.
type Failure struct {
	Key   queue.Key
	Run   Run
	Began pace.Instant
	First bool // of this job, since the target last was up
	Jobs  int  // this many different ones open the bucket's breaker
}

// Failed reports whether a failure counts as an attempt. It does until a breaker opens (law 6), and
// then only while other buckets succeed, because then the job itself fails.
func (h *Health) Failed(t *Target, f Failure, retry policy.Retry,
	now pace.Instant) (counts bool, opened Turned) {
	if f.First {
		t.jobs = append(t.jobs, f.Run)
	}
	if h.All.Open || t.Open {
		counts = h.OthersAnswer(t)
		probed := h.All.asked(f.Began)
		if probed {
			h.All.wait(retry, h.random(), now)
		}
		if probed || t.asked(f.Began) { // then the next probe is another bucket's
			opened.Bucket = h.trip(t, retry, now)
		}
		return counts, opened
	}
	if len(t.jobs) >= f.Jobs {
		opened.Bucket = h.trip(t, retry, now)
	}
	if !slices.Contains(h.suspects, f.Key) {
		h.suspects = append(h.suspects, f.Key)
	}
	if len(h.suspects) >= MostSuspectBuckets {
		opened.All = true
		h.All.wait(retry, h.random(), now)
	}
	return true, opened
}

// trip opens a bucket's breaker or keeps it open.
func (h *Health) trip(t *Target, retry policy.Retry, now pace.Instant) (opened bool) {
	if opened = !t.Open; opened {
		h.Broken++
	}
	t.wait(retry, h.random(), now)
	return opened
}

// Succeeded records that a run that began at an instant found its target up, and returns the
// breakers to be closed. Jobs that began before a breaker opened do not close it.
func (h *Health) Succeeded(t *Target, began pace.Instant) (clears bool, closed Turned) {
	h.answered = max(h.answered, began)
	closed = Turned{Bucket: t.Down() && t.asked(began), All: h.All.asked(began)}
	if closed.All || !h.All.Open {
		h.suspects = h.suspects[:0]
	}
	return t != nil && (!t.Open || closed.Bucket), closed
}

// Recovered closes the breaker of all, and returns since when it was open.
func (h *Health) Recovered() (since pace.Instant) {
	since = h.All.since
	h.All = Breaker{}
	return since
}

// Clear ends what is held against a bucket's target, and reports whether its breaker was open.
func (h *Health) Clear(t *Target) (closed bool) {
	h.Forget(t)
	for _, r := range t.jobs {
		r.Cleared()
	}
	return t.Open
}

// Forget is for a bucket that is gone.
func (h *Health) Forget(t *Target) {
	if t.Down() {
		h.Broken--
	}
}

// Anew forgets all, because information on the target is outdated.
func (h *Health) Anew() { h.All, h.suspects = Breaker{}, nil }

// Inherit returns an open breaker of a former owner. Jobs that begin from now on are probes.
func (h *Health) Inherit(failures int, probe, now pace.Instant) *Target {
	h.Broken++
	return &Target{Breaker: Breaker{Open: true, Failures: failures, since: now - 1,
		At: min(probe, now.Add(MostProbeWait))}}
}

// Started makes a run the probe of the open breakers that hold its bucket.
func (h *Health) Started(t *Target, r Run, now pace.Instant) {
	h.All.start(r, now)
	if t != nil {
		t.start(r, now)
	}
}

// OthersAnswer reports whether another bucket's job succeeded that began after this bucket's last
// failure.
func (h *Health) OthersAnswer(t *Target) bool {
	return !h.All.Open && t.Down() && h.answered > t.last
}

// Down returns whether a breaker holds the bucket, and when its next probe may start.
func (h *Health) Down(t *Target) (at pace.Instant, down bool) {
	if h.All.Open {
		at = h.All.Due()
	}
	if t.Down() {
		at = max(at, t.Due())
	}
	return at, h.All.Open || t.Down()
}

// Hold is what the breaker of all holds.
func (h *Health) Hold() (held Hold) {
	if h.All.Open {
		held = Hold{By: ByBreaker, Until: h.All.Due()}
	}
	return held
}

func (h *Health) Probing(t *Target) bool { return h.All.probing() || t.Down() && t.probing() }

// Troubled reports whether a failure or a success may turn a breaker.
func (h *Health) Troubled(t *Target) bool { return t != nil || h.All.Open || len(h.suspects) > 0 }

// ProbeSooner makes the next probes of the open breakers that hold a bucket due, for an operator
// who knows that the target is back, and returns their number.
func (h *Health) ProbeSooner(t *Target, now pace.Instant) (sooner int) {
	holding := []*Breaker{&h.All}
	if t != nil {
		holding = append(holding, &t.Breaker)
	}
	for _, k := range holding {
		if k.Open && k.Due() > now && !k.probing() {
			k.At = now
			sooner++
		}
	}
	return sooner
}
