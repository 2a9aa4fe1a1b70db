package audit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
)

// Window describes the starts in a window of a limit.
type Window struct {
	// Limit is outflow, outflow_total, or the name of one of the policy's limits.
	Limit string `json:"limit"`
	// Length is the window's length, for limits on windows of any length the fullest one's.
	Length policy.Duration `json:"window"`
	Units  int64           `json:"units"` // that started in it
	Most   float64         `json:"most"`  // permitted
	From   time.Time       `json:"from"`  // its first and its last start
	To     time.Time       `json:"to"`
}

// Share returns the used part of the limit; more than 1 means that it was broken.
func (w Window) Share() float64 { return float64(w.Units) / w.Most }

// Breach is a broken limit.
type Breach struct {
	Policy string
	Key    job.Key // of the last start
	Window Window
	// Starts are the ids of jobs started in the window: the first, if known, and the last ones.
	Starts []string
}

// String describes the limit and the starts that broke it.
func (b Breach) String() string {
	return fmt.Sprintf("%s: %d units started within %s, of at most %.1f, the last ones %s",
		b.Window.Limit, b.Window.Units, time.Duration(b.Window.Length), b.Window.Most,
		strings.Join(b.Starts, " "))
}

// Standing holds the observations of a bucket.
type Standing struct {
	Since time.Time `json:"since"` // start of the observation
	// Worst are the fullest windows of the last hour or two, one per limit and length.
	Worst []Window `json:"worst"`
	// Broken is how often a limit was broken since then.
	Broken uint64 `json:"broken"`
	// Incomplete means that lost events could have added starts to these windows.
	Incomplete bool `json:"incomplete,omitempty"`
}

// Figure holds the observations of one limit of a policy, over all its buckets.
type Figure struct {
	Policy, Limit string
	Worst         float64 // the largest [Window.Share] of the last hour or two
	Broken        uint64
	Incomplete    bool
}

// missing reports whether events lost at an instant could count in the reported windows.
func missing(lost time.Time, specs []spec, now time.Time) bool {
	longest := period
	for _, s := range specs {
		longest = max(longest, period+2*s.window)
	}
	return !lost.IsZero() && now.Sub(lost) < period+longest
}

// Bucket returns the observations of a bucket, including limits that count all keys or are shared,
// if there are any.
func (j *Judge) Bucket(name string, key job.Key, now time.Time) (s Standing, known bool) {
	a := j.policies[name]
	if a == nil || a.buckets[key] == nil {
		return Standing{}, false
	}
	s = a.buckets[key].standing(now)
	s.add(a.all.standing(now))
	for _, l := range a.shared {
		s.add(l.starts.standing(now))
	}
	return s, true
}

func (s *Standing) add(other Standing) {
	s.Worst, s.Broken = append(s.Worst, other.Worst...), s.Broken+other.Broken
	s.Incomplete = s.Incomplete || other.Incomplete
}

func (b *bucket) standing(now time.Time) Standing {
	s := Standing{Since: b.since.UTC(), Worst: []Window{}, Broken: b.breaks,
		Incomplete: missing(b.lostAt, b.specs, now) ||
			b.of != nil && missing(b.of.lostAt, b.specs, now)}
	for i := range b.worst {
		if w := b.worst[i].largest(now, fuller); w.Most > 0 {
			s.Worst = append(s.Worst, w)
		}
	}
	return s
}

// Figures returns the observations of all limits of all policies.
func (j *Judge) Figures(now time.Time) (all []Figure) {
	for _, name := range slices.Sorted(maps.Keys(j.policies)) {
		a := j.policies[name]
		incomplete := missing(a.lostAt, j.specs(a.policy, ""), now)
		for _, limit := range slices.Sorted(maps.Keys(a.figures)) {
			f := a.figures[limit]
			lost := slices.ContainsFunc(a.shared, func(s shared) bool {
				return s.specs[0].limit == limit && missing(s.starts.lostAt, s.specs, now)
			})
			all = append(all, Figure{name, limit, f.worst.largest(now, larger), f.broken,
				incomplete || lost})
		}
	}
	return all
}
