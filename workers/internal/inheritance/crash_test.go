package inheritance

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func clock(at pace.Instant) quota.Now {
	return quota.Now{Own: time.Duration(at), Wall: time.Unix(0, int64(at))}
}

func perDay(t *testing.T) *quota.Limits {
	t.Helper()
	var p policy.Policy
	p.Name, p.Algorithm, p.Capacity = "api", policy.LeakingBucket, 100
	day := policy.Limit{Name: "day"}
	day.Algorithm, day.Limit, day.Window = policy.FixedWindow, 1600, policy.Duration(24*time.Hour)
	p.Limits = policy.Limits{day}
	return quota.New(p.WithDefaults())
}

// left returns the units that a set leaves.
func left(l *quota.Limits, used *quota.Set, at pace.Instant) (units int64) {
	l.Left(used, clock(at), func(_ string, left, _, _ int64) { units = left })
	return units
}

// After a crash a bucket counts as having used its budget since the record, which is a sixteenth.
// Without a checkpoint that bounds it, all units are used up; without starts, none is.
func TestACrashCostsWhatNoRecordHas(t *testing.T) {
	l := perDay(t)
	later := origin.Add(10 * time.Second)
	bounds := map[string]record.Bounds{"": {Cost: 1, Budget: 100}}
	for _, c := range []struct {
		name string
		s    State
		want int64
	}{
		{"with a budget", State{Crashed: true, Fence: time.Second,
			Handover: record.Handover{ByCost: bounds}}, 1500},
		{"without a checkpoint", State{Crashed: true, Fence: time.Second}, 0},
		{"without any start", State{Crashed: true, Unstarted: true}, 1600},
		{"in order", State{Handover: record.Handover{ByCost: bounds}}, 1600},
	} {
		legacy := New()
		legacy.Inherit(c.s, l, time.Minute, origin)
		if got := left(l, legacy.Unlisted(l, clock, later), later); got != c.want {
			t.Errorf("%s: %d units are left to a bucket in no record, want %d", c.name, got, c.want)
		}
		used := c.s.Restore(l, "", "", legacy.Listed(), clock, origin)
		if got := left(l, used, later); got != c.want {
			t.Errorf("%s: %d units are left to a listed bucket, want %d", c.name, got, c.want)
		}
		if used := legacy.Unlisted(l, clock, origin.Add(96*time.Hour)); used != nil {
			t.Errorf("%s: a crash counts for days", c.name)
		}
	}
}
