package quota_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/quota"
)

// counted returns limits of all kinds that count from the answer, or some from the end.
func counted(rng *rand.Rand, from policy.CountFrom) policy.Policy {
	p := drawn(rng)
	for i := range p.Limits {
		l := &p.Limits[i]
		if l.Algorithm == policy.SlidingCounter {
			l.Algorithm = policy.SlidingLog
		}
		if l.CountFrom = from; l.Cost != "" && from == policy.CountFromAnswer && rng.IntN(2) == 0 {
			l.CountFrom = policy.CountFromEnd
		}
	}
	p.WindowMargin = 0
	return p.WithDefaults()
}

type request struct {
	from, to time.Duration // it arrives in between
	units    map[string]int64
}

// beyond returns the most units that an adversary can make arrive in a window, less those that the
// limit allows.
func beyond(l policy.Limit, all []request) (most int64) {
	b := l.OnStarts().Bound()
	slices.SortFunc(all, func(a, b request) int { return int(a.from - b.from) })
	if b.Aligned {
		fixed, windows := policy.Rule{Limit: 1, Window: l.Window, Zone: l.Zone}.Fixed(),
			map[time.Time]int64{}
		for _, r := range all {
			from, end := fixed.Bounds(wall.Add(r.from))
			for ; !from.After(wall.Add(r.to)); from, end = fixed.Bounds(end) {
				windows[from] += r.units[l.Name]
				most = max(most, windows[from]-b.Units)
			}
		}
		return most
	}
	for _, first := range all { // a window begins with its answer, and ends with a start
		units := int64(0)
		for _, last := range all {
			to := max(first.to, last.from)
			if b.Window > 0 && to-first.to >= b.Window {
				break
			}
			allowed := b.Units
			if b.Window == 0 {
				allowed += int64((to-first.to).Seconds()*b.Rate.PerSecond() + 1e-6)
			}
			if last.to >= first.to {
				units += last.units[l.Name]
				most = max(most, units-allowed)
			}
		}
	}
	return most
}

// play starts requests under limits, whose answers come late, or never. Owners freeze between the
// reading of the clock and the decision, read an answer late, hand over and crash.
func play(seed uint64, from policy.CountFrom) (p policy.Policy, all []request) {
	rng := rand.New(rand.NewPCG(seed, 7))
	p = counted(rng, from)
	l := quota.New(p)
	delay := time.Duration(p.MaxDelay)
	latency := 1 + rand64(rng, 2*time.Second)
	clock := reading{off: 1 + rand64(rng, 5*time.Millisecond)}
	var set *quota.Set
	type open struct {
		of     int
		at     time.Duration // of the answer
		charge *quota.Charge // nil: another owner's
		cost   quota.Cost
		lost   bool // without an answer, so its attempt ends then
	}
	var running []open
	now := 10 * time.Second
	units := quota.Units{}
	noted, notedAt := "", now
	end := func(o open, now time.Duration) {
		e := quota.End{Used: map[string]int64{}}
		if o.lost { // its worker waits
			all[o.of].to = now
		}
		if n := o.cost.Named["tokens"]; n > 1 && rng.IntN(2) == 0 {
			e.Used["tokens"] = n
		}
		if o.charge == nil {
			set, o.charge = l.Adopt(set, o.cost, true, true)
		} else if !o.lost && rng.IntN(2) == 0 {
			o.charge.Answered(clock.at(now), clock.at(now))
		}
		o.charge.Done(clock.at(now), e, quota.Noted{})
	}
	for range 250 {
		c := cost(rng)
		wait, _, _ := l.Ask(set, clock.at(now), c)
		next := now + wait
		if wait == algorithms.UntilAnswered {
			next = 1<<63 - 1
		}
		for i := 0; i < len(running); {
			if o := running[i]; o.at <= next {
				running = slices.Delete(running, i, i+1)
				if o.at > now {
					now = o.at
				}
				end(o, max(now, o.at))
				wait, _, _ = l.Ask(set, clock.at(now), c)
				next, i = now+wait, 0
				if wait == algorithms.UntilAnswered {
					next = 1<<63 - 1
				}
				continue
			}
			i++
		}
		if wait > 0 {
			now = min(next, now+10*time.Second)
			continue
		}
		read := clock.at(now)
		if rng.IntN(10) == 0 {
			now += rand64(rng, 300*time.Millisecond)
		}
		var charge *quota.Charge
		set, charge = l.Take(set, read, c)
		units[""] += c.Job
		units["tokens"] += c.Of("tokens")
		begun := now + rand64(rng, latency)
		o := open{of: len(all), at: begun + rand64(rng, latency), charge: charge, cost: c}
		if rng.IntN(50) == 0 {
			o.at += rand64(rng, 4*time.Second)
		}
		if rng.IntN(20) == 0 { // it never started
			charge.Return(clock.at(now))
			continue
		}
		if rng.IntN(20) == 0 { // no answer: it arrives up to the longest delay after the end
			o.lost, o.at = true, o.at+delay
		}
		all = append(all, request{begun, o.at, unitsOf(p, c)})
		running = append(running, o)
		switch rng.IntN(60) {
		case 0:
			noted, notedAt, units = l.Encode(set, clock.at(now)), now, quota.Units{}
		case 1: // a handover; runs report to the next owner
			text := l.Encode(set, clock.at(now))
			set = l.Decode(text, l.Names(), clock.at(now))
			for i := range running {
				running[i].charge = nil
			}
		case 2: // a crash: what is open arrives within the longest delay from the takeover
			now += rand64(rng, 2*time.Second)
			for _, o := range running {
				all[o.of].to = min(all[o.of].to, now+delay)
			}
			running = nil
			set = l.Decode(noted, l.Names(), clock.at(notedAt))
			set = l.Crashed(set, quota.Crash{From: clock.at(notedAt), To: clock.at(now)}, units)
			noted, notedAt, units = l.Encode(set, clock.at(now)), now, quota.Units{}
		}
	}
	return p, all
}

func TestNoTargetGetsMoreThanALimitThatCountsFromTheAnswer(t *testing.T) {
	const seeds = uint64(150)
	started, over := 0, uint64(0)
	for seed := range seeds {
		p, all := play(seed, policy.CountFromAnswer)
		started += len(all)
		for _, l := range p.Limits {
			if n := beyond(l, all); n > 0 {
				t.Errorf("seed %d: %d too many of %+v", seed, n, l)
			}
		}
		p, all = play(seed, policy.CountFromStart)
		if slices.ContainsFunc(p.Limits, func(l policy.Limit) bool { return beyond(l, all) > 0 }) {
			over++
		}
	}
	if started < 10_000 || over < seeds/2 {
		t.Errorf("%d requests; counted from the start, %d seeds are over", started, over)
	}
}
