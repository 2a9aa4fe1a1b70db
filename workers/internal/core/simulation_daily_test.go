package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func mail(daily int64) policy.Policy {
	return policy.Policy{Name: "mail", Rule: policy.Rule{Algorithm: policy.LeakingBucket,
		Outflow: algorithms.Rate{Count: 1, Per: time.Second}, Capacity: 1000},
		Partitions: 1, Workers: 16,
		Limits: policy.Limits{{Name: "daily", Key: policy.KeyGlobal, Rule: policy.Rule{
			Algorithm: policy.FixedWindow, Limit: daily,
			Window: policy.Duration(24 * time.Hour), Zone: "Europe/Berlin"}}}}
}

// A day's starts are counted through an owner's crash: before, during and after a checkpoint. The
// crash costs at most the bound of docs/guide.md, a sixteenth of the limit, and no starts of the
// next day.
func TestACrashDoesNotForgetTheDay(t *testing.T) {
	perSecond := algorithms.Rate{Count: 3, Per: time.Second}
	total, second, alone, each := mail(480), mail(480), mail(96), mail(96)
	total.OutflowTotal = perSecond
	second.Limits = append(second.Limits, policy.Limit{Name: "second", Key: policy.KeyGlobal,
		Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: 9, Refill: perSecond}})
	alone.Outflow, alone.Workers = algorithms.Rate{}, 64
	each.Outflow, each.Workers, each.Limits[0].Key = algorithms.Rate{}, 64, ""
	tokens := each
	tokens.Limits = policy.Limits{each.Limits[0]}
	tokens.Limits[0].Cost = "tokens"
	for name, c := range map[string]struct {
		policy policy.Policy
		keys   int
		costs  int
	}{"tokens": {tokens, len(keys), 96 / 16},
		"total": {total, 1, 480 / 16}, "second": {second, 1, 480 / 16},
		"alone": {alone, 1, 96 / 16},
		"each":  {each, len(keys), 96 / 16}} {
		t.Run(name, func(t *testing.T) {
			for early := range 8 {
				crashOnADay(t, c.policy.WithDefaults(), c.keys, c.costs,
					7*time.Second+time.Duration(early)*137*time.Millisecond)
			}
		})
	}
}

func crashOnADay(t *testing.T, p policy.Policy, days, costs int, after time.Duration) {
	const midnight = 23 * time.Hour // in Berlin, by the world's clock, which shows UTC
	s, most := newStory(t), days*int(p.Limits[0].Limit)
	s.valid(p)
	s.add(p)
	s.until(midnight - 5*time.Minute)
	s.join()
	publish := func(jobs int) {
		for _, key := range keys {
			for range jobs {
				s.publish(p.Name, key, 0)
			}
		}
	}
	paced, crash := !p.Outflow.IsZero(), s.now+after
	if paced {
		publish(600)
	}
	s.until(crash - 20*time.Millisecond)
	if !paced {
		publish(200)
	}
	s.until(crash)
	s.join()
	s.named("d1").crash()
	before := s.startedFrom(0)
	s.until(midnight)
	least, day := max(before, most-days*costs), s.startedFrom(0)
	if before < min(15, costs) || before > most*2/3 || day < least || day > most {
		t.Errorf("%d started until the crash after %v, and %d in the day, want %d to %d", before,
			after, day, least, most)
	}
	s.until(midnight + 5*time.Minute)
	if next := s.startedFrom(midnight); next != most {
		t.Errorf("%d started on the day after the crash after %v, want %d", next, after, most)
	}
}

func TestACrashBeforeTheFirstCheckpoint(t *testing.T) {
	for _, cost := range []string{"", "tokens"} {
		p := mail(96)
		p.Outflow, p.Workers = algorithms.Rate{}, 64
		p.Limits[0].Key, p.Limits[0].Cost = "", cost
		p = p.WithDefaults()
		const step = 53 * time.Millisecond
		for after := time.Duration(0); after < 600*time.Millisecond; after += step {
			for _, owners := range []int{1, 2} {
				s := newStory(t)
				s.valid(p)
				s.add(p)
				for _, key := range keys {
					for range 200 {
						s.publish(p.Name, key, 0)
					}
				}
				s.until(time.Hour)
				for n := range owners {
					s.join()
					d := s.named(fmt.Sprint("d", n+1))
					for !d.owns(p.Name, 0) {
						s.until(s.now + time.Millisecond)
					}
					s.until(s.now + after + time.Duration(owners-1-n)*time.Second)
					d.crash()
				}
				s.join()
				s.until(s.now + 5*time.Minute)
				most := len(keys) * 96
				if n := s.startedFrom(0); n > most || n < most-owners*len(keys)*96/16 {
					t.Errorf("cost %q: %d of %d start on the day of a crash %v after owner %d came",
						cost, n, most, after, owners)
				}
			}
		}
	}
}

func (d *drainer) owns(policy string, number int) bool {
	share := d.core.shares.all[record.ShareKey(policy, number)]
	return share != nil && share.part != nil
}

func (s *story) startedFrom(begin time.Duration) (n int) {
	for _, f := range s.accepted {
		for _, slot := range f.slots {
			if slot.at >= begin {
				n++
			}
		}
	}
	return n
}
