package core

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// contest is the competition of a policy's buckets for turns under a total outflow, or limits of
// all keys, under one owner.
//
// Turns are start-time fair queueing (Goyal, Vin and Cheng, 1996), whose bound is the law: while
// two buckets can start jobs, their starts, by cost divided by weight, differ over any part of that
// time by at most one job of each, the costliest that they started in it or last before. The bucket
// that goes first has not taken more turns than the other, so each is ahead by at most its last
// job. A returned job used its turn.
type contest struct {
	part    *partition
	stream  *stream
	arrives int // stored at the opening and not delivered yet
	keys    map[queue.Key]*contender
	pairs   map[[2]queue.Key]*rivalry
}

type contender struct {
	jobs map[uint64]*fate // that were delivered to the owner
	// of them, not given to a worker, and not held back
	waiting map[uint64]bool
	before  map[uint64]*fate // given to a worker under an earlier owner
	running int
	held    bool
	last    float64
}

// rivalry is the lead of one key over another since both could start jobs.
type rivalry struct {
	lead, low, high float64
	most            [2]float64
}

// opens begins a contest with n stored jobs. Undelivered ones can hold buckets back.
func (w *world) opens(p *partition, s *stream, n int) {
	own := func(l policy.Limit) bool { return !l.Together() && l.Shared == "" }
	of := w.policyOf(p.Policy)
	if of.OutflowTotal.IsZero() && len(of.Limits) == 0 || slices.ContainsFunc(of.Limits, own) {
		return
	}
	c := w.contests[p]
	if c == nil {
		c = &contest{part: p, keys: map[queue.Key]*contender{}, pairs: map[[2]queue.Key]*rivalry{}}
		for _, key := range keys {
			c.keys[key] = &contender{jobs: map[uint64]*fate{}, waiting: map[uint64]bool{},
				before: map[uint64]*fate{}, held: true}
		}
		w.contests[p] = c
	}
	if c.stream != s {
		c.stream = s
		for _, k := range c.keys {
			clear(k.jobs)
			clear(k.waiting)
			clear(k.before)
			k.held = true
		}
	}
	c.arrives = n
	clear(c.pairs)
}

func (w *world) delivered(p *partition, jobs []job.Arrived) {
	w.arrives(p, jobs)
	c := w.contests[p]
	if c == nil {
		return
	}
	c.arrives -= len(jobs)
	for i := range jobs {
		f := w.fateOf(p.Policy, &jobs[i])
		k := c.keys[f.key]
		switch {
		case k.jobs[f.seq] != nil:
		case f.given:
			k.before[f.seq] = f
			k.held = true
		case !f.excepted && !f.final():
			k.waiting[f.seq] = true
		}
		k.jobs[f.seq] = f
	}
}

func (w *world) takeTurn(s *stint) {
	c := w.contests[s.part]
	if c == nil || w.callSlots != nil {
		return
	}
	f, k := s.fate, c.keys[s.fate.key]
	if s.d.core.valves.all[f.policy].Breakers().All {
		clear(c.pairs)
	}
	if k.held { // until now, so others' turns since its last one say nothing
		maps.DeleteFunc(c.pairs,
			func(pair [2]queue.Key, _ *rivalry) bool { return slices.Contains(pair[:], f.key) })
	}
	if s.worker != nil { // others precede those that it passed over until they start a job
		for _, key := range s.worker.except {
			c.keys[key].held = true
		}
	}
	taken := float64(f.cost) / float64(s.d.told[f.policy].weight(f.key))
	for i, a := range keys {
		for _, b := range keys[i+1:] {
			winner := a == f.key || b == f.key
			switch {
			case winner && s.worker != nil && s.worker.notFor(a, b):
				delete(c.pairs, [2]queue.Key{a, b})
			case w.rivals(s, c, a) && w.rivals(s, c, b):
				w.compete(c, [2]queue.Key{a, b}, f.key, taken)
			default:
				delete(c.pairs, [2]queue.Key{a, b})
			}
		}
	}
	delete(k.waiting, f.seq)
	delete(k.before, f.seq)
	k.running++
	k.held, _ = s.breaks()
	k.last = taken
}

// notFor reports whether one of some keys has no right to a worker.
func (o *promise) notFor(some ...queue.Key) bool {
	return slices.ContainsFunc(some,
		func(key queue.Key) bool { return slices.Contains(o.except, key) })
}

// compete counts a turn for one of two keys that could have it.
func (w *world) compete(c *contest, pair [2]queue.Key, winner queue.Key, taken float64) {
	r := c.pairs[pair]
	if r == nil {
		r = &rivalry{most: [2]float64{c.keys[pair[0]].last, c.keys[pair[1]].last}}
		c.pairs[pair] = r
	}
	switch winner {
	case pair[0]:
		r.lead += taken
		r.most[0] = max(r.most[0], taken)
	case pair[1]:
		r.lead -= taken
		r.most[1] = max(r.most[1], taken)
	}
	r.low, r.high = min(r.low, r.lead), max(r.high, r.lead)
	if r.high-r.low > r.most[0]+r.most[1]+1e-6 {
		w.fail("fairness: %s: %s and %s are %.2f turns apart, by jobs of at most %.2f and %.2f",
			c.part.Policy, pair[0], pair[1],
			r.high-r.low, r.most[0], r.most[1])
	}
}

// rivals reports whether a bucket certainly had the right to another's start: it and its next job
// may start by all limits.
//
// Its jobs take one unit of these each. A costlier job that does not fit lets others pass for a
// time that depends on the limit, so their order is undefined. It must not wait for a checkpoint
// with its cost either.
func (w *world) rivals(s *stint, c *contest, key queue.Key) bool {
	if key == s.fate.key {
		return true
	}
	limits := s.d.told[c.part.Policy].Limits
	if len(limits) > 0 && (w.has(lateCheckpoints) || w.has(noLeader) ||
		w.now-max(s.d.cut, s.d.frozen, s.d.hindered) < time.Second) {
		return false
	}
	for _, g := range c.keys[key].jobs {
		for _, l := range limits {
			if (!g.final() || g.removed) && max(g.cost, g.takes(l)) > 1 {
				return false
			}
		}
	}
	return w.able(s.d, c, key)
}

func (f *fate) takes(l policy.Limit) int64 {
	if n, named := f.message.Costs[l.Cost]; named {
		return n
	}
	return f.cost
}

func (w *world) able(d *drainer, c *contest, key queue.Key) bool {
	t, k := d.told[c.part.Policy], c.keys[key]
	for seq, f := range k.before {
		if f.stream.messages[seq] == nil && !f.removed {
			delete(k.before, seq)
		}
	}
	if w.has(leanBodies) || w.has(shortMemory) {
		return false
	}
	if c.arrives > 0 || len(k.waiting) == 0 || k.held || len(k.before) > 0 || t.paused ||
		t.overrides[key].Paused || t.own(key) != unpaced {
		return false
	}
	if most := t.concurrency(key); most > 0 && k.running >= most {
		return false
	}
	if w.set.elsewhere[t.Name] {
		return true
	}
	free := t.Workers - d.local[t.Name]
	if o := d.lends[t.Name]; o != nil {
		free -= o.busy
	}
	return k.running <= 3*(free-1)
}

func (w *world) finished(s *stint, o record.Outcome) {
	if c := w.contests[s.part]; c != nil {
		c.keys[s.fate.key].running--
	}
	w.holdsBack(s.part, s.fate.key, o)
}

// holdsBack is called when an owner gets a run's end or progress, which may hold the bucket back.
func (w *world) holdsBack(p *partition, key queue.Key, o record.Outcome) {
	harmless := o.Kind == record.OutcomeDone || o.Kind == record.OutcomeFailed || o.Again > 0 ||
		o.Kind == record.OutcomeProgress
	if c := w.contests[p]; c != nil && (!harmless || o.Unavailable || o.RetryAfter > 0) {
		c.keys[key].held = true
	}
}

func (w *world) cancelled(f *fate, p *partition) {
	f.cancelled = true
	if c := w.contests[p]; c != nil {
		delete(c.keys[f.key].waiting, f.seq)
	}
}

func (w *world) hold(d *drainer) {
	for _, f := range w.accepted {
		f.rests = 0
	}
	for _, c := range w.contests {
		share := d.core.shares.all[shareOf(c.part.Partition)]
		if share != nil && share.part == c.part {
			for _, k := range c.keys {
				k.held = true
			}
		}
	}
}

func turnsWorld(seed uint64, s sabotage) *world {
	rng := rand.New(rand.NewPCG(seed, 25))
	return newWorldWith(seed, s, func(w *world) {
		w.policies = w.policies[:1]
		p := &w.policies[0]
		p.Partitions, p.Burst, p.AdaptiveRate = 1, 0, nil
		p.Outflow, p.Peak = algorithms.Rate{}, algorithms.Rate{}
		for _, name := range []string{"l0", "l1"}[:1+rng.IntN(2)] {
			l := policy.Limit{Name: name, Key: policy.KeyGlobal}
			w.drawLimit(&l, rng, 10, 20, policy.TokenBucket, policy.LeakingBucket,
				policy.SlidingLog)
			l.Cost = ""
			p.Limits = append(p.Limits, l)
		}
		for _, key := range keys {
			weight := 1 + rng.Int64N(4)
			w.overridesOf(p.Name)[key] = inforce.Override{Weight: &weight}
		}
		w.set.cheap = true
		*p = p.WithDefaults()
		w.valid(*p)
		w.publishers(busy)
	})
}

func TestSimulationOfTurnsUnderLimits(t *testing.T) { testLimits(t, turnsWorld) }
