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

// Window is a window of a limit.
type Window struct {
	// Limit is outflow, outflow_total, or a limit's name.
	Limit string `json:"limit"`
	// Length is the window's; for windows of any length the fullest one's.
	Length policy.Duration `json:"window"`
	Units  int64           `json:"units"` // started
	Most   float64         `json:"most"`
	From   time.Time       `json:"from"` // first and last start; of open runs only if broken
	To     time.Time       `json:"to"`
}

// Share returns the used part of the limit; above 1 it was broken.
func (w Window) Share() float64 { return float64(w.Units) / w.Most }

// Breach is a broken limit.
type Breach struct {
	Policy string
	Key    job.Key // of the last start
	Window Window
	// Starts are ids of jobs started in the window: the first, if known, and the last ones.
	Starts []string
}

// String implements [fmt.Stringer].
func (b Breach) String() string {
	return fmt.Sprintf("%s: %d units counted within %s, of at most %.1f, the last ones %s",
		b.Window.Limit, b.Window.Units, time.Duration(b.Window.Length), b.Window.Most,
		strings.Join(b.Starts, " "))
}

// Standing is the observations of a bucket.
type Standing struct {
	Since time.Time `json:"since"`
	// Worst are the fullest windows of the last hour or two, by limit and length.
	Worst []Window `json:"worst"`
	// Broken counts the breaches of a limit since then.
	Broken uint64 `json:"broken"`
	// Incomplete means that lost events could have added starts.
	Incomplete bool `json:"incomplete,omitempty"`
}

// Figure is the observations of one limit, over all buckets.
type Figure struct {
	Policy, Limit string
	Worst         float64 // largest [Window.Share] of the last hour or two
	Broken        uint64
	Incomplete    bool
}

// missing reports whether lost events could count in the windows.
func missing(lost time.Time, specs []spec, now time.Time) bool {
	longest := period
	for _, s := range specs {
		longest = max(longest, period+2*s.window)
	}
	return !lost.IsZero() && now.Sub(lost) < period+longest
}

// Bucket returns the observations of a bucket, and of its limits on all keys and shared ones.
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
		w := b.worst[i].largest(now, fuller)
		same := slices.IndexFunc(s.Worst, func(other Window) bool {
			return other.Limit == w.Limit && other.Length == w.Length
		})
		switch {
		case w.Most == 0:
		case same < 0:
			s.Worst = append(s.Worst, w)
		case fuller(w, s.Worst[same]):
			s.Worst[same] = w
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
