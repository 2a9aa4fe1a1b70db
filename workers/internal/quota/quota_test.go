package quota_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	_ "time/tzdata" // tests must not depend on installed zones

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/quota"
)

type arrival struct {
	at    time.Duration
	units map[string]int64
}

// wall is the windows' clock when a process's own shows 0.
var wall = time.Date(2026, 3, 28, 23, 59, 0, 0, time.UTC)

func at(t time.Duration) quota.Now { return quota.Now{Own: t, Wall: wall.Add(t)} }

type reading struct{ off, by time.Duration }

func (r reading) at(t time.Duration) quota.Now {
	return quota.Now{Own: t, Wall: wall.Add(t + r.by), Off: r.off}
}

func drawReading(rng *rand.Rand) reading {
	off := 1 + rand64(rng, []time.Duration{2, 2, 100}[rng.IntN(3)]*time.Millisecond)
	return reading{off, rand64(rng, 2*off) - off}
}

// overfull counts arrivals independently, in every window, by the definition of each rule's bound.
func overfull(p policy.Policy, all []arrival) string {
	slices.SortFunc(all, func(a, b arrival) int { return int(a.at - b.at) })
	for _, l := range p.Limits {
		w := time.Duration(l.Window)
		before := wall.Truncate(max(w, 1)).Sub(wall)
		perWindow := map[time.Duration]int64{}
		first, held := 0, int64(0)
		owed := 0.0 // of a token bucket, as of the previous arrival
		for i, a := range all {
			n := a.units[l.Name]
			switch l.Algorithm {
			case policy.SlidingLog:
				for held += n; a.at-all[first].at >= w; first++ {
					held -= all[first].units[l.Name]
				}
				if held > l.Limit {
					return fmt.Sprintf("%s: %d from %v to %v", l.Name, held, all[first].at, a.at)
				}
			case policy.TokenBucket, policy.LeakingBucket:
				rate, most := l.Refill, l.Capacity
				if l.Algorithm == policy.LeakingBucket {
					rate, most = l.Outflow, max(l.Burst, 1)
				}
				if i > 0 {
					owed = max(0, owed-(a.at-all[i-1].at).Seconds()*rate.PerSecond())
				}
				if owed += float64(n); owed > float64(most)+1e-6 {
					return fmt.Sprintf("%s: %.6f tokens too many at %v", l.Name,
						owed-float64(most), a.at)
				}
			case policy.FixedWindow, policy.SlidingCounter:
				window := (a.at - before) / w
				if l.Zone != "" {
					zone, err := time.LoadLocation(l.Zone)
					if err != nil {
						return err.Error()
					}
					day := wall.Add(a.at).In(zone)
					window = time.Duration(day.Year()*1000 + day.YearDay())
				}
				perWindow[window] += n
				most := float64(perWindow[window])
				if l.Algorithm == policy.SlidingCounter {
					elapsed := float64(a.at-before-window*w) / float64(w)
					most += math.Floor(float64(perWindow[window-1])*(1-elapsed) + 1e-9)
				}
				if most > float64(l.Limit) {
					return fmt.Sprintf("%s: %v in the window of %v", l.Name, most, a.at)
				}
			}
		}
	}
	return ""
}

func drawn(rng *rand.Rand) policy.Policy {
	p := policy.Policy{Name: "p", Rule: policy.Rule{Algorithm: policy.LeakingBucket,
		Capacity: 1000}}
	for i := range 1 + rng.IntN(4) {
		l := policy.Limit{Name: fmt.Sprint("l", i)}
		if rng.IntN(3) == 0 {
			l.Cost = "tokens"
		}
		window := policy.Duration([]time.Duration{time.Second, 3 * time.Second,
			time.Minute}[rng.IntN(3)])
		rate := algorithms.Rate{Count: 1 + rng.Int64N(50), Per: time.Second}
		switch rng.IntN(5) {
		case 0:
			l.Rule = policy.Rule{Algorithm: policy.TokenBucket, Capacity: 8 + rng.Int64N(50),
				Refill: rate}
		case 1:
			l.Rule = policy.Rule{Algorithm: policy.LeakingBucket, Outflow: rate,
				Burst: 8 + rng.Int64N(5)}
		case 2:
			l.Rule = policy.Rule{Algorithm: policy.FixedWindow, Window: window}
		case 3:
			l.Rule = policy.Rule{Algorithm: policy.SlidingLog, Window: window}
		case 4:
			l.Rule = policy.Rule{Algorithm: policy.SlidingCounter, Window: window}
		}
		if l.Algorithm == policy.FixedWindow && rng.IntN(2) == 0 {
			l.Window, l.Zone = policy.Duration(24*time.Hour), "Europe/London"
		}
		if l.Window != 0 {
			l.Limit = 8 + rng.Int64N(100)
		}
		p.Limits = append(p.Limits, l)
	}
	return p.WithDefaults()
}

func cost(rng *rand.Rand) quota.Cost {
	c := quota.Cost{Job: 1}
	if rng.IntN(4) == 0 {
		c.Job = 1 + rng.Int64N(5)
	}
	if rng.IntN(2) == 0 {
		c.Named = map[string]int64{"tokens": 1 + rng.Int64N(8)}
	}
	return c
}

func unitsOf(p policy.Policy, c quota.Cost) map[string]int64 {
	units := map[string]int64{}
	for _, l := range p.Limits {
		units[l.Name] = c.Job
		if n, ok := c.Named[l.Cost]; ok && l.Cost != "" {
			units[l.Name] = n
		}
	}
	return units
}

// A bucket with a backlog and pauses has limits of all kinds. Starts arrive up to a guard after the
// decision, some are undone, some use less than estimated, and owners hand over and crash at any
// moment.
func TestNoLimitIsEverBroken(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		p := drawn(rng)
		l, guard := quota.New(p), time.Duration(p.WindowMargin)
		var all []arrival
		var set *quota.Set
		type underWay struct {
			charge *quota.Charge
			of     int // −1: canceled
			cost   quota.Cost
		}
		var running []underWay
		now, clock := time.Duration(0), drawReading(rng)
		noted, notedAt, since := "", time.Duration(0), quota.Units{}
		for range 400 {
			c := cost(rng)
			if rng.IntN(20) == 0 {
				clock = drawReading(rng)
			}
			wait, _ := l.Next(set, clock.at(now), c)
			now += wait
			if again, by := l.Next(set, clock.at(now), c); again != 0 {
				t.Fatalf("seed %d: after %v %v more for %s", seed, wait, again, by)
			}
			if wait > time.Microsecond {
				if early, _ := l.Next(set, clock.at(now-2*time.Microsecond), c); early == 0 {
					t.Fatalf("seed %d: it could have started before %v", seed, wait)
				}
			}
			var charge *quota.Charge
			set, charge = l.Take(set, clock.at(now), c)
			since[""] += c.Job
			since["tokens"] += c.Of("tokens")
			u := underWay{charge, -1, c}
			if rng.IntN(10) > 0 {
				u.of = len(all)
				all = append(all, arrival{now + rand64(rng, guard), unitsOf(p, c)})
			}
			running = append(running, u)
			if rng.IntN(5) == 0 {
				now += rand64(rng, 5*time.Second)
			}
			for len(running) > 0 && rng.IntN(2) == 0 {
				i := rng.IntN(len(running))
				u := running[i]
				running = slices.Delete(running, i, i+1)
				switch est := u.cost.Named["tokens"]; {
				case u.charge == nil:
				case u.of < 0:
					u.charge.Return(clock.at(now))
				case est <= 1 || rng.IntN(2) == 0:
					u.charge.Done(clock.at(now), quota.End{}, quota.Noted{})
				default:
					used := rng.Int64N(est)
					u.charge.Done(clock.at(now),
						quota.End{Used: map[string]int64{"tokens": used}}, quota.Noted{})
					for _, limit := range p.Limits {
						if limit.Cost == "tokens" {
							all[u.of].units[limit.Name] = used
						}
					}
				}
			}
			switch rng.IntN(40) {
			case 0:
				noted, notedAt, since = l.Encode(set, clock.at(now)), now, quota.Units{}
			case 1: // a handover to an owner with another clock
				text := l.Encode(set, clock.at(now))
				clock = drawReading(rng)
				set, running = l.Decode(text, l.Names(), clock.at(now)), nil
			case 2:
				clock = drawReading(rng)
				units := maps.Clone(since)
				for _, cost := range []string{"", "tokens"} {
					if rng.IntN(2) == 0 {
						delete(units, cost)
					}
				}
				fence := now + rand64(rng, 2*time.Second)
				slack := time.Duration(0)
				if rng.IntN(2) == 0 {
					slack = rand64(rng, fence-notedAt)
				}
				set = l.Decode(noted, l.Names(), clock.at(notedAt+slack))
				set = l.Crashed(set, quota.Crash{From: clock.at(notedAt), To: clock.at(fence),
					Slack: slack}, units)
				now, running = fence+rand64(rng, time.Second), nil
			}
		}
		if why := overfull(p, slices.Clone(all)); why != "" {
			t.Errorf("seed %d: %+v: %s", seed, p.Limits, why)
		}
	}
}

func rand64(rng *rand.Rand, below time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(below)))
}

func TestABacklogUsesTheTightestLimit(t *testing.T) {
	for name, limits := range map[string]policy.Limits{
		"log": {{Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 500,
			Window: policy.Duration(time.Minute)}}},
		"tokens": {{Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: 500,
			Refill: algorithms.Rate{Count: 500, Per: time.Minute}}}},
		"leaking": {{Rule: policy.Rule{Algorithm: policy.LeakingBucket, Burst: 3,
			Outflow: algorithms.Rate{Count: 500, Per: time.Minute}}}},
		"fixed": {{Rule: policy.Rule{Algorithm: policy.FixedWindow, Limit: 500,
			Window: policy.Duration(time.Minute)}}},
		"counter": {{Rule: policy.Rule{Algorithm: policy.SlidingCounter, Limit: 500,
			Window: policy.Duration(time.Minute)}}},
		"two": {{Name: "tight", Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 500,
			Window: policy.Duration(time.Minute)}}, {Name: "wide",
			Rule: policy.Rule{Algorithm: policy.FixedWindow, Limit: 40_000,
				Window: policy.Duration(time.Hour)}}},
		"three, and costs": {{Name: "tokens", Cost: "tokens", Rule: policy.Rule{
			Algorithm: policy.SlidingLog, Limit: 3500, Window: policy.Duration(time.Minute)}},
			{Name: "requests", Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: 100,
				Refill: algorithms.Rate{Count: 600, Per: time.Minute}}},
			{Name: "hour", Rule: policy.Rule{Algorithm: policy.SlidingCounter, Limit: 40_000,
				Window: policy.Duration(time.Hour)}}},
	} {
		p := policy.Policy{Name: name, Limits: limits, Rule: policy.Rule{
			Algorithm: policy.LeakingBucket, Capacity: 1}}.WithDefaults()
		l := quota.New(p)
		var set *quota.Set
		started, c := 0, quota.Cost{Job: 1, Named: map[string]int64{"tokens": 7}}
		for now := time.Duration(0); ; started++ {
			wait, _ := l.Next(set, at(now), c)
			if now += wait; now > 10*time.Minute {
				break
			}
			set, _ = l.Take(set, at(now), c)
		}
		if started < 4850 {
			t.Errorf("%s: %d of 5000", name, started)
		}
	}
}

// A record built just after the edge of a window may seem older. After a crash, the window before
// that edge still holds its usage.
func TestACrashForgetsNoWindowBeforeTheRecord(t *testing.T) {
	l := quota.New(policy.Policy{Name: "p", Limits: policy.Limits{{Rule: policy.Rule{
		Algorithm: policy.SlidingCounter, Limit: 10, Window: policy.Duration(time.Minute)}}},
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 100}}.WithDefaults())
	edge := wall.Truncate(time.Minute).Add(time.Minute).Sub(wall)
	noted := edge + time.Second
	set, charge := l.Take(nil, at(edge-30*time.Second), quota.Cost{Job: 8})
	charge.Done(at(noted), quota.End{}, quota.Noted{})
	set, charge = l.Take(set, at(noted), quota.Cost{Job: 1})
	charge.Done(at(noted), quota.End{}, quota.Noted{})
	set = l.Decode(l.Encode(set, at(noted)), l.Names(), at(noted))
	now := at(edge + 10*time.Second)
	set = l.Crashed(set, quota.Crash{From: at(noted - 3*time.Second), To: now,
		Slack: 3 * time.Second}, quota.Units{"": 1})
	l.Left(set, now, func(_ string, left, _, _ int64) {
		if left != 2 { // 8·50/60 of the window before, and 2 of this one
			t.Errorf("%d may start, want 2", left)
		}
	})
}

func TestACrashCountsByTheLatestPossibleClock(t *testing.T) {
	l := quota.New(policy.Policy{Name: "p", Limits: policy.Limits{{Rule: policy.Rule{
		Algorithm: policy.FixedWindow, Limit: 10, Window: policy.Duration(time.Minute)}}},
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 100}}.WithDefaults())
	clock := reading{off: 80 * time.Millisecond, by: -60 * time.Millisecond}
	to := time.Minute + 100*time.Millisecond
	set := l.Crashed(nil, quota.Crash{From: clock.at(time.Second), To: clock.at(to)},
		quota.Units{"": 4})
	l.Left(set, at(to+time.Second), func(_ string, left, _, _ int64) {
		if left != 6 {
			t.Errorf("%d may start, want 6", left)
		}
	})
}

func TestDebtDelaysTheNextStart(t *testing.T) {
	p := policy.Policy{Name: "p", Rule: policy.Rule{Algorithm: policy.LeakingBucket,
		Capacity: 100}, Limits: policy.Limits{{Name: "tokens", Cost: "tokens",
		Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: 100,
			Refill: algorithms.Rate{Count: 1, Per: time.Second}}}}}.WithDefaults()
	l, c := quota.New(p), quota.Cost{Job: 1, Named: map[string]int64{"tokens": 60}}
	set, charge := l.Take(nil, at(0), c)
	charge.Done(at(0), quota.End{Used: map[string]int64{"tokens": 290}}, quota.Noted{})
	set = l.Decode(l.Encode(set, at(0)), l.Names(), at(0))
	now := time.Duration(0)
	for {
		wait, by := l.Next(set, at(now), c)
		if wait == 0 {
			break
		}
		if by != "tokens" {
			t.Fatal("held by", by)
		}
		now += wait
	}
	// 290 and 60 units are 250 more than the bucket has held, and each takes a second
	if want := 250 * time.Second; now < want || now > want+time.Second {
		t.Errorf("the next job of 60 waits for %v", now)
	}
	if in := l.FreshIn(set, at(now)); in < 40*time.Second {
		t.Errorf("as good as new in %v", in)
	}
}

// A broken target may report any usage.
func TestDebtEndsWithinAnHourOrTheWholeLimit(t *testing.T) {
	rate := algorithms.Rate{Count: 1, Per: time.Second}
	for most, rule := range map[time.Duration]policy.Rule{
		time.Hour: {Algorithm: policy.TokenBucket, Capacity: 100, Refill: rate},
		2 * time.Hour: {Algorithm: policy.SlidingLog, Limit: 100,
			Window: policy.Duration(2 * time.Hour)},
	} {
		p := policy.Policy{Name: "p", Rule: policy.Rule{Algorithm: policy.LeakingBucket,
			Capacity: 100}, Limits: policy.Limits{{Name: "tokens", Cost: "tokens",
			Rule: rule}}}.WithDefaults()
		l, c := quota.New(p), quota.Cost{Job: 1, Named: map[string]int64{"tokens": 60}}
		used := map[string]int64{"tokens": policy.MaxLimit}
		set, charge := l.Take(nil, at(0), c)
		charge.Done(at(0), quota.End{Used: used}, quota.Noted{})
		set, charge = l.Adopt(l.Decode(l.Encode(set, at(0)), l.Names(), at(0)), c, true, true)
		charge.Done(at(0), quota.End{Used: used}, quota.Noted{})
		now := time.Duration(0)
		for again := true; again; {
			wait, _ := l.Next(set, at(now), c)
			now, again = now+wait, wait > 0 && now < 3*most
		}
		// the units of the hour, and those of the next job and of the latest window
		if least := most - 2*time.Minute; now < least || now > 2*most+time.Minute {
			t.Errorf("%s: the next job of 60 waits for %v, want about %v", rule.Algorithm, now,
				most)
		}
	}
}

func TestStatesOfRemovedLimitsAreSkipped(t *testing.T) {
	limit := func(name string, algorithm policy.Algorithm) policy.Limit {
		return policy.Limit{Name: name, Rule: policy.Rule{Algorithm: algorithm, Limit: 3,
			Window: policy.Duration(time.Minute)}}
	}
	of := func(limits ...policy.Limit) *quota.Limits {
		return quota.New(policy.Policy{Name: "p", Rule: policy.Rule{
			Algorithm: policy.LeakingBucket, Capacity: 9}, Limits: limits}.WithDefaults())
	}
	a, b := limit("a", policy.SlidingLog), limit("b", policy.SlidingLog)
	before, after := of(a, b, limit("c", policy.SlidingLog)), of(limit("c", policy.FixedWindow), b)
	c := quota.Cost{Job: 3}
	set, _ := before.Take(nil, at(0), c)
	told := after.Decode(before.Encode(set, at(0)), before.Names(), at(0))
	set.Adapt(after)
	for name, fitted := range map[string]*quota.Set{
		"told":  told,
		"lived": set,
	} {
		wait, by := after.Next(fitted, at(0), c)
		if by != "b" || wait < time.Minute {
			t.Errorf("%s: waits %v for %s", name, wait, by)
		}
	}
	garbled := after.Decode("AAAA", before.Names(), at(0))
	if wait, _ := after.Next(garbled, at(0), quota.Cost{Job: 1}); wait < 59*time.Second {
		t.Errorf("what cannot be read is waited for only %v", wait)
	}
}

func TestTheRemainderMayStart(t *testing.T) {
	at := quota.Now{Own: time.Hour, Wall: time.Date(2030, 1, 1, 12, 0, 1, 0, time.UTC)}
	minute := policy.Duration(time.Minute)
	perMinute := algorithms.Rate{Count: 10, Per: time.Minute}
	for _, rule := range []policy.Rule{
		{Algorithm: policy.TokenBucket, Capacity: 10, Refill: perMinute},
		{Algorithm: policy.LeakingBucket, Burst: 10, Outflow: perMinute},
		{Algorithm: policy.SlidingLog, Limit: 10, Window: minute},
		{Algorithm: policy.FixedWindow, Limit: 10, Window: minute},
		{Algorithm: policy.SlidingCounter, Limit: 10, Window: minute},
	} {
		l := quota.New(policy.Policy{WindowMargin: policy.Duration(time.Millisecond),
			Limits: policy.Limits{{Name: "l", Cost: "tokens", Rule: rule}}})
		left := func(s *quota.Set, at quota.Now) (n int64) {
			l.Left(s, at, func(name string, left, most, _ int64) {
				if n = left; name != "l" || most != 10 {
					t.Errorf("%s: %s of at most %d", rule.Algorithm, name, most)
				}
			})
			return n
		}
		before := left(nil, at)
		s, charge := l.Take(nil, at, quota.Cost{Job: 3})
		at := quota.Now{Own: at.Own + time.Second, Wall: at.Wall.Add(time.Second)}
		n := left(s, at)
		if before != 10 || n != 7 {
			t.Errorf("%s: %d were left, and after 3 of them %d", rule.Algorithm, before, n)
		}
		if now, _ := l.Next(s, at, quota.Cost{Job: n}); now != 0 {
			t.Errorf("%s: what is left waits for %v", rule.Algorithm, now)
		}
		if more, _ := l.Next(s, at, quota.Cost{Job: n + 1}); more == 0 {
			t.Errorf("%s: more may start than is left", rule.Algorithm)
		}
		charge.Done(at, quota.End{Used: map[string]int64{"tokens": 100}}, quota.Noted{})
		if n := left(s, at); n != 0 {
			t.Errorf("%s: %d are left though more was used than is there", rule.Algorithm, n)
		}
	}
}
