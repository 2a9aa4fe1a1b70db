package core

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func sharedWorld(seed uint64, s sabotage) *world {
	rng := rand.New(rand.NewPCG(seed, 23))
	return newWorldWith(seed, s, func(w *world) {
		w.pickPolicies()
		policies := w.policies
		w.policies = nil
		account, second := w.sharedLimit("account", rng), w.sharedLimit("second", rng)
		for i, p := range policies {
			p.Partitions, p.Limits = 1, policy.Limits{account}
			if rng.IntN(3) == 0 {
				p.Limits = append(p.Limits, second)
			}
			if i > 0 && rng.IntN(3) == 0 {
				p.Limits = append(p.Limits, policy.Limit{Name: "own", Key: policy.KeyGlobal,
					Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 15,
						Window: policy.Duration(3 * time.Second)}})
			}
			p = p.WithDefaults()
			w.valid(p)
			w.add(p)
		}
	})
}

func (w *world) sharedLimit(name string, rng *rand.Rand) policy.Limit {
	l := policy.Limit{Shared: name}
	w.drawLimit(&l, rng, 15, 40, policy.TokenBucket, policy.SlidingLog)
	return l
}

func sharesLimit(p policy.Policy, limit string) bool {
	return slices.ContainsFunc(p.Limits, func(l policy.Limit) bool { return l.Shared == limit })
}

func (d *drainer) openShared(o Opening) {
	w := d.w
	w.after(w.between(time.Millisecond, 60*time.Millisecond), func() {
		if w.down || d.cut > w.now || o.Inherit && w.headless(attemptsName) || w.chance(0.02) {
			w.stands.failures[shareOf(o.Part)]++
			d.says("cannot open %s", shareOf(o.Part))
			w.to(d, w.latency(), func() { d.core.Handle(Unopened{o, false}, d.clock()) })
			return
		}
		found := Opened{Opening: o, Attempts: map[uint64]StoredAttempt{}}
		if o.Inherit {
			w.readLegacy(&found)
			w.inherits(d, &found)
			found.Read = d.hosted()
		}
		w.to(d, w.latency(), func() {
			d.says("has opened %s", shareOf(o.Part))
			d.opened(found)
		})
	})
}

type apart struct {
	with     map[string]*drainer
	since    map[string]time.Duration
	drainers int
}

// togetherWithin bounds that while the drainers are the same: they must be stable, and the
// partition taken long enough ago, with slow answers.
const togetherWithin = steadyFor + simulatedLease/2 + 2*answers + 3*tick

func (w *world) lookAtShared() {
	for _, limit := range w.sharedLimits() {
		name := record.SharedName(limit)
		w.stands.apart.with[limit], _ = w.lookAtShare(name, 0, w.lookAtDrainers(name))
	}
	if n := len(w.alive()); n != w.stands.apart.drainers {
		w.stands.apart.drainers = n
		clear(w.stands.apart.since)
	}
}

func (w *world) lookApart(p policy.Policy, d *drainer, quiet bool) {
	for _, l := range p.SharedLimits() {
		with, key := w.stands.apart.with[l.Shared], p.Name+"/"+l.Shared
		since := w.stands.apart.since[key]
		settled := d != nil && with != nil && quiet && !w.headless(p.Name) &&
			d.core.shares.all[record.ShareKey(p.Name, 0)].state == shareOwned
		switch {
		case !settled || d == with || since == 0 || w.has(differingOwn):
			w.stands.apart.since[key] = w.now
		case w.now-since > togetherWithin:
			w.fail("%s has been apart from %s for %v", p.Name, l.Shared, w.now-since)
		}
	}
}

func (w *world) sharedLimits() (names []string) {
	for _, p := range w.policies {
		for _, l := range p.SharedLimits() {
			if !slices.Contains(names, l.Shared) {
				names = append(names, l.Shared)
			}
		}
	}
	return names
}

func TestSimulationOfSharedLimits(t *testing.T) {
	playSeeds(t, func(seed uint64) *world {
		w := sharedWorld(seed, noSabotage)
		if seed%2 == 0 {
			w.calling()
		}
		w.operators(busy)
		w.targetsFail(busy)
		most := w.changeShared(seed)
		w.live()
		w.judgeShared(most)
		return w
	})
}

func (w *world) changeShared(seed uint64) map[string]policy.Limit {
	rng := rand.New(rand.NewPCG(seed, 24))
	most := map[string]policy.Limit{}
	for _, p := range w.policies {
		for _, l := range p.SharedLimits() {
			most[l.Shared] = l
		}
	}
	l := most["account"]
	if rng.IntN(2) == 0 || l.Limit == 0 {
		return most
	}
	to := l
	if to.Limit *= 2; rng.IntN(2) == 0 {
		to.Limit = l.Limit * 2 / 3
	} else {
		most["account"] = to
	}
	for _, limit := range []policy.Limit{to, l} {
		w.after(time.Duration(rng.Int64N(int64(busy))), func() {
			for i := range w.policies {
				p := &w.policies[i]
				p.Limits = slices.Clone(p.Limits)
				p.Limits[0] = limit
			}
			w.tellAll()
		})
	}
	return most
}

func (w *world) judgeShared(limits map[string]policy.Limit) {
	w.judgeLimits()
	_, totals := w.starts()
	for _, name := range w.sharedLimits() {
		var starts []slot
		for _, p := range w.policies {
			if sharesLimit(p, name) {
				starts = append(starts, totals[p.Name]...)
			}
		}
		slices.SortFunc(starts, func(a, b slot) int { return int(a.at - b.at) })
		if why := w.beyond(limits[name], starts); why != "" {
			w.fail("shared limit %+v: %s", limits[name], why)
		}
	}
}
