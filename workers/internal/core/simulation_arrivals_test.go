package core

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// The target counts requests by a clock of its own. An adversary places the arrival of each
// between its start and its answer, in each window as suits it best; without an answer, up to the
// longest delay after the end of the attempt, or of the takeover from its owner.

// Premises of law 2 that are broken on purpose, and errors of those that report answers.
const (
	fromStart      sabotage = "limits count from the start"
	earlyClock     sabotage = "an answer is dated by a clock that was read before it"
	informational  sabotage = "an informational answer counts as one"
	countedTwice   sabotage = "the target counts a request again after its answer"
	noLinger       sabotage = "an end without an answer counts at once"
	lostGivenBack  sabotage = "an end without an answer counts as not sent"
	arrivesLater   sabotage = "a request arrives later than the longest delay"
	outlivesOwner  sabotage = "a request arrives later than the longest delay after a takeover"
	fastTarget     sabotage = "the target's clock runs too slowly"
	steppingTarget sabotage = "the target's clock steps"
	lateCaller     sabotage = "a caller begins after its go has expired"
	underestimated sabotage = "a job costs more than it says"
)

// arrivals are what a target may count.
type arrivals struct {
	all    map[string][]*request // by bucket
	drift  float64               // of the target's clock
	offset time.Duration         // of its windows of the clock
	rng    *rand.Rand            // not the world's, whose history stays the same
}

type request struct {
	by           *drainer // the owner
	lease        string   // by which it was the owner
	from, to     time.Duration
	cost, tokens int64
	unsent       bool
	answered     bool
	replaced     bool    // its owner, so that a later crash of it delays no arrival
	caller       *caller // nil: a job's
	job          *fate
}

const never = time.Duration(math.MaxInt64)

func (r *request) takes(l policy.Limit) int64 {
	switch {
	case r.unsent:
		return 0
	case l.Cost != "" && r.tokens > 0:
		return r.tokens
	}
	return r.cost
}

// arrivalWorld is another world, whose limits count from the answer.
func arrivalWorld(worldOf func(uint64, sabotage) *world) func(seed uint64, s sabotage) *world {
	return func(seed uint64, s sabotage) *world {
		w := worldOf(seed, s)
		rng := rand.New(rand.NewPCG(seed, 31))
		w.arrivals = &arrivals{all: map[string][]*request{}, rng: rng,
			drift: (2*rng.Float64() - 1) * 8e-4}
		from := map[string]policy.CountFrom{} // limits of one name are shared
		delay := policy.Duration(200+rng.Int64N(1500)) * policy.Duration(time.Millisecond)
		for i := range w.policies {
			p := &w.policies[i]
			p.Limits = slices.Clone(p.Limits)
			for i := range p.Limits {
				l := &p.Limits[i]
				if l.Algorithm == policy.SlidingCounter {
					l.Algorithm = policy.SlidingLog
				}
				name := cmp.Or(l.Shared, p.Name+"/"+l.Name)
				if from[name] == "" {
					from[name] = policy.CountFromAnswer
					if l.Cost != "" && rng.IntN(2) == 0 {
						from[name] = policy.CountFromEnd
					}
				}
				if s != fromStart {
					l.CountFrom = from[name]
				}
			}
			p.WindowMargin, p.MaxDelay = 0, 0
			if s != fromStart {
				p.MaxDelay = delay
			}
			*p = p.WithDefaults()
			w.valid(*p)
			w.arrivals.offset = time.Duration(p.WindowMargin)
		}
		if w.arrivals.offset = min(w.arrivals.offset, time.Millisecond); rng.IntN(2) == 0 {
			w.arrivals.offset *= -1
		}
		switch s {
		case fastTarget:
			w.arrivals.drift = -0.03
		case steppingTarget:
			w.arrivals.offset = 300 * time.Millisecond
		}
		return w
	}
}

func (w *world) maxDelay(name string) time.Duration {
	return time.Duration(w.policyOf(name).MaxDelay)
}

// requests notes a start.
func (w *world) requests(bucket string, by *drainer, cost, tokens int64) *request {
	if w.arrivals == nil {
		return nil
	}
	r := &request{
		by:     by,
		lease:  by.core.Lease.Id,
		from:   w.now,
		to:     never,
		cost:   cost,
		tokens: tokens,
	}
	if w.sabotage == underestimated {
		r.cost, r.tokens = r.cost+1, 2*r.tokens
	}
	w.arrivals.all[bucket] = append(w.arrivals.all[bucket], r)
	return r
}

// exchange draws when a run that ends has its answer, and whether.
func (s *stint) exchange(took time.Duration,
	o record.Outcome) (time.Duration, record.Outcome) {
	r, w := s.request, s.d.w
	if r == nil {
		return took, o
	}
	rng := w.arrivals.rng
	if rng.IntN(5) == 0 {
		took += time.Duration(rng.Int64N(int64(4 * time.Second)))
	}
	failed := o.Kind == record.OutcomeFailed || o.Kind == record.OutcomeUncounted
	answered := w.now + time.Duration(rng.Int64N(int64(took)+1))
	switch {
	case failed && rng.IntN(4) == 0:
		o.Answer, r.unsent = record.AnswerUnsent, true
	case failed && rng.IntN(2) == 0:
		o.Answer = record.AnswerNone
		if w.sabotage == lostGivenBack {
			o.Answer = record.AnswerUnsent
		}
	case rng.IntN(4) == 0: // its end says so
		r.to, r.answered = min(r.to, w.now+took), true
	default:
		if r.to, r.answered = min(r.to, answered), true; w.sabotage == countedTwice {
			r.to += 300 * time.Millisecond
		}
		if w.sabotage == informational {
			answered = w.now
		}
		w.after(answered-w.now, func() { s.hasAnswer() })
	}
	return took, o
}

// hasAnswer reads the clock, and tells the loop.
func (s *stint) hasAnswer() {
	w, d := s.d.w, s.d
	switch {
	case !d.alive:
		return
	case d.frozen > w.now:
		w.after(d.frozen-w.now, s.hasAnswer)
		return
	}
	at := d.clock()
	if w.sabotage == earlyClock {
		at = d.before
	}
	w.to(d, time.Duration(w.arrivals.rng.Int64N(int64(time.Millisecond))), func() {
		if !s.over {
			d.core.Handle(Answered{Policy: s.fate.policy, Run: s.Number, At: at}, d.clock())
		}
	})
}

// lingers ends a run whose request has no answer a longest delay later, as the pool does.
func (s *stint) lingers(o record.Outcome, end func(record.Outcome)) {
	r, w := s.request, s.d.w
	if r == nil || !s.d.alive || r.unsent || r.answered && r.to <= w.now {
		end(o)
		return
	}
	delay := w.maxDelay(s.fate.policy)
	latest := w.now + delay
	if w.sabotage == arrivesLater {
		latest += 2 * time.Second
	}
	r.to = min(r.to, latest)
	switch {
	case w.sabotage == noLinger:
	case w.sabotage == lostGivenBack:
		o.Answer = record.AnswerUnsent
	case w.arrivals.rng.IntN(10) == 0: // it is interrupted
		o.Answer = record.AnswerNone
	default:
		w.after(delay+delay/1000, func() { end(o) })
		return
	}
	end(o)
}

func (w *world) declaredDead(lease string) bool {
	r := w.records[TableDrainers][lease]
	return r == nil || !r.Exists || strings.Contains(string(r.Value), `"tombstone":true`)
}

// replaced bounds the arrival of former owners' requests: they were declared dead, and a partition
// of theirs is taken over. Callers of it may find no owner that knows them.
func (w *world) replaced(part handle.Partition) {
	if w.arrivals == nil {
		return
	}
	for _, p := range w.policies {
		latest := w.now + w.maxDelay(p.Name)
		if w.sabotage == outlivesOwner {
			latest += 5 * time.Second
		}
		for _, key := range keys {
			for _, r := range w.arrivals.all[bucketOf(p.Name, key)] {
				called := r.caller != nil && p.Name == part.Policy &&
					partitionOf(key, p.Partitions) == part.Number
				if called || w.declaredDead(r.lease) {
					r.to, r.replaced = min(r.to, latest), true
				}
			}
		}
	}
}

// isDeclaredDead bounds the arrival of a process's requests in partitions that it has handed over:
// their owner counts them from here.
func (w *world) isDeclaredDead(d *drainer) {
	if w.arrivals == nil {
		return
	}
	for _, p := range w.policies {
		latest := w.now + w.maxDelay(p.Name)
		if w.sabotage == outlivesOwner {
			latest += 5 * time.Second
		}
		for _, key := range keys {
			if d.hasPart(p.Name, partitionOf(key, p.Partitions)) {
				continue
			}
			for _, r := range w.arrivals.all[bucketOf(p.Name, key)] {
				if r.by == d {
					r.to, r.replaced = min(r.to, latest), true
				}
			}
		}
	}
}

// isRemoved ends the arrival of a job that others have removed from its stream: no owner hears of
// it once its partition is handed over.
func (w *world) isRemoved(f *fate) {
	if w.arrivals == nil {
		return
	}
	for _, r := range w.arrivals.all[f.bucket] {
		if r.job == f {
			r.to = min(r.to, w.now)
		}
	}
}

func (d *drainer) hasPart(policy string, partition int) bool {
	s := d.core.shares.all[record.ShareKey(policy, partition)]
	return s != nil && s.part != nil && s.part.Owned()
}

// dies leaves a dead process's requests without an answer: their attempts end now, or its
// partitions will be taken over.
func (w *world) dies(d *drainer) {
	if w.arrivals == nil {
		return
	}
	for _, p := range w.policies {
		for _, key := range keys {
			owned := d.hasPart(p.Name, partitionOf(key, p.Partitions))
			for _, r := range w.arrivals.all[bucketOf(p.Name, key)] {
				switch {
				case r.by != d || r.to <= w.now || r.replaced:
				case owned:
					r.to = never
				case r.caller == nil: // callers go on, and report to the next owner
					r.to = w.now + w.maxDelay(p.Name)
				}
			}
		}
	}
}

// judgeArrivals finds the fullest windows of each limit.
func (w *world) judgeArrivals() {
	shared := map[string][]*request{}
	limits := map[string]policy.Limit{}
	for _, p := range w.policies {
		var all []*request
		for _, key := range keys {
			of := w.arrivals.all[bucketOf(p.Name, key)]
			all = append(all, of...)
			for _, l := range p.Limits {
				if !l.Together() && l.Shared == "" {
					w.judgeTarget(p.Name+"/"+string(key), l, of)
				}
			}
		}
		for _, l := range p.Limits {
			switch {
			case l.Shared != "":
				limits[l.Shared] = l
				shared[l.Shared] = append(shared[l.Shared], all...)
			case l.Together():
				w.judgeTarget(p.Name, l, all)
			}
		}
	}
	for name, l := range limits {
		w.judgeTarget(name, l, shared[name])
	}
}

func (w *world) judgeTarget(of string, l policy.Limit, all []*request) {
	b := l.OnStarts().Bound()
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b *request) int { return int(a.from - b.from) })
	for _, r := range all {
		r.to = min(r.to, w.now)
	}
	if b.Aligned {
		w.judgeWindows(of, l, all)
		return
	}
	for i, first := range all {
		units := int64(0)
		for _, last := range all {
			to := max(first.to, last.from)
			spent := time.Duration(float64(to-first.to) * (1 + w.arrivals.drift))
			if b.Window > 0 && spent >= b.Window {
				break
			}
			if last.to < first.to {
				continue
			}
			most := b.Units
			if b.Window == 0 {
				most += int64(spent.Seconds()*b.Rate.PerSecond() + 1e-6)
			}
			if units += last.takes(l); units > most {
				w.fail(
					"limit %s %+v: %d units may arrive in %v from %v, the %d. of %d",
					of,
					l,
					units,
					spent,
					first.to,
					i,
					len(all),
				)
				return
			}
		}
	}
}

func (w *world) judgeWindows(of string, l policy.Limit, all []*request) {
	window := policy.Rule{Limit: 1, Window: l.Window, Zone: l.Zone}.Fixed()
	epoch := w.wall().Add(-w.now)
	begins := epoch.Add(w.arrivals.offset)
	units := map[time.Time]int64{}
	for _, r := range all {
		from, end := window.Bounds(begins.Add(r.from))
		for ; !from.After(begins.Add(r.to)); from, end = window.Bounds(end) {
			if units[from] += r.takes(l); units[from] > l.Limit {
				w.fail(
					"limit %s %+v: %d units may arrive in the window from %v",
					of,
					l,
					units[from],
					from.Sub(epoch),
				)
				return
			}
		}
	}
}

// crowdedWorld has more jobs than its only limit lets start.
func crowdedWorld(seed uint64, s sabotage) *world {
	rng := rand.New(rand.NewPCG(seed, 32))
	return newWorldWith(seed, s, func(w *world) {
		for i := range w.policies {
			p := &w.policies[i]
			p.Outflow, p.Peak = algorithms.Rate{}, algorithms.Rate{}
			p.Burst, p.AdaptiveRate = 0, nil
			p.OutflowTotal, p.PeakTotal, p.Concurrency = algorithms.Rate{}, algorithms.Rate{}, 0
			window := time.Second + time.Duration(rng.Int64N(1500))*time.Millisecond
			l := policy.Limit{Name: "l0", Rule: policy.Rule{Algorithm: policy.SlidingLog,
				Limit: 4 + rng.Int64N(5), Window: policy.Duration(window)}}
			if rng.IntN(3) == 0 {
				l.Rule = policy.Rule{Algorithm: policy.TokenBucket, Capacity: 4,
					Refill: algorithms.Rate{Count: 4 + rng.Int64N(5), Per: window}}
			}
			p.Limits = policy.Limits{l}
			clear(w.overridesOf(p.Name))
			*p = p.WithDefaults()
			w.valid(*p)
		}
		w.set.cheap = true
		w.publishers(busy)
		w.publishers(busy)
	})
}

var arrivalWorlds = map[string]func(uint64, sabotage) *world{
	"limits": arrivalWorld(limitWorld), "turns": arrivalWorld(turnsWorld),
	"calls": arrivalWorld(callWorld), "shared": arrivalWorld(sharedWorld),
	"crowded": arrivalWorld(crowdedWorld)}

func playArrivals(worldOf func(uint64, sabotage) *world, seed uint64, s sabotage) *world {
	w := worldOf(seed, s)
	w.operators(busy)
	w.targetsFail(busy)
	w.live()
	w.judgeArrivals()
	return w
}

// A window of the target holds no more requests than a limit that counts from the answer, however
// requests, answers and drainers are delayed. The worlds share the number of seeds.
func TestSimulationOfArrivals(t *testing.T) {
	for name, worldOf := range arrivalWorlds {
		t.Run(name, func(t *testing.T) {
			playShare(t, len(arrivalWorlds), func(seed uint64) *world {
				return playArrivals(worldOf, seed, noSabotage)
			})
		})
	}
}

func TestSimulationOfArrivalsNoticesSabotage(t *testing.T) {
	const enough = uint64(200)
	for _, s := range []sabotage{fromStart, earlyClock, informational, countedTwice, noLinger,
		lostGivenBack, arrivesLater, outlivesOwner, fastTarget, steppingTarget, lateCaller,
		underestimated} {
		t.Run(string(s), func(t *testing.T) {
			t.Parallel()
			worldOf := arrivalWorlds["limits"]
			if s == lateCaller {
				worldOf = arrivalWorlds["calls"]
			}
			for seed := uint64(1); seed <= enough; seed++ {
				if broken := playArrivals(worldOf, seed, s).broken; len(broken) > 0 {
					t.Logf("seed %d: %s", seed, broken[0])
					return
				}
			}
			t.Errorf("%d seeds did not notice", enough)
		})
	}
}

// Counted from the start, the same worlds put too many requests into a window: they are no tame
// ones.
func TestArrivalsAreTooManyIfCountedFromTheStart(t *testing.T) {
	over := 0
	const all = 20
	for seed := uint64(1); seed <= all; seed++ {
		if len(playArrivals(arrivalWorlds["crowded"], seed, fromStart).broken) > 0 {
			over++
		}
	}
	if over < all*3/4 {
		t.Errorf("only %d of %d seeds are over", over, all)
	}
}

// beginsRequest notes a caller's request, which has an answer by its settlement at the latest.
func (c *caller) beginsRequest(began *slot) {
	c.request = c.w.requests(bucketOf(c.policy, c.key), began.by, c.cost, c.tokens)
	if c.request != nil {
		c.request.to, c.request.caller = c.w.now, c // until it is known
	}
}

func (c *caller) answers(took time.Duration) {
	r, w := c.request, c.w
	if r == nil {
		return
	}
	r.to = w.now + time.Duration(w.arrivals.rng.Int64N(int64(took)+1))
	at := r.to
	if r.answered = w.arrivals.rng.IntN(2) == 0; !r.answered {
		r.to = w.now + took
		return
	}
	w.after(at-w.now, func() { c.report(job.OpAnswered, job.Settlement{}) })
}
