package core

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

// mail is a policy whose keys share what may start in a day of Berlin.
func mail() policy.Policy {
	return policy.Policy{Name: "mail", Rule: policy.Rule{Algorithm: policy.LeakingBucket,
		Outflow: algorithms.Rate{Count: 1, Per: time.Second}, Capacity: 1000},
		Partitions: 1, Workers: 16,
		Limits: policy.Limits{{Name: "daily", Key: policy.KeyGlobal, Rule: policy.Rule{
			Algorithm: policy.FixedWindow, Limit: 100,
			Window: policy.Duration(24 * time.Hour), Zone: "Europe/Berlin"}}}}
}

// TestACrashDoesNotForgetTheDay: what all keys may start in a day is counted through the crash of
// who counts it, before and after a checkpoint and while it is written: never more start in the
// day. The crash costs what docs/recipes.md says: eight seconds of an outflow of all keys, three of
// another limit, and else the rest of the day, but nothing of the next one.
func TestACrashDoesNotForgetTheDay(t *testing.T) {
	const midnight = 23 * time.Hour // in Berlin, by the world's clock, which shows UTC
	perSecond := algorithms.Rate{Count: 3, Per: time.Second}
	total, second, alone := mail(), mail(), mail()
	total.OutflowTotal = perSecond
	second.Limits = append(second.Limits, policy.Limit{Name: "second", Key: policy.KeyGlobal,
		Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: 9, Refill: perSecond}})
	for _, c := range []struct {
		policy policy.Policy
		costs  int
	}{{total, 8 * 3}, {second, 9 + 3*3}, {alone, 100}} {
		for early := range 8 {
			s := newStory(t)
			p := c.policy.WithDefaults()
			s.valid(p)
			s.add(p)
			s.until(midnight - 5*time.Minute)
			s.join()
			for _, key := range keys {
				for range 200 {
					s.publish(p.Name, key, 0)
				}
			}
			crash := s.now + 7*time.Second + time.Duration(early)*137*time.Millisecond
			s.until(crash)
			s.join()
			s.named("d1").crash()
			before := s.startedFrom(0)
			s.until(midnight)
			least, day := max(before, 100-c.costs), s.startedFrom(0)
			if before < 15 || before > 60 || day < least || day > 100 {
				t.Errorf("%d started until the crash at %v, and %d in the day, want %d to 100",
					before, crash, day, least)
			}
			s.until(midnight + 5*time.Minute)
			if next := s.startedFrom(midnight); next != 100 {
				t.Errorf("%d started on the day after the crash at %v", next, crash)
			}
		}
	}
}

// startedFrom is how many runs began from an instant on.
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
