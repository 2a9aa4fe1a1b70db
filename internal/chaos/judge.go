//go:build unix

package main

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

type verdict struct {
	accepted, refused, unknown int
	started, ran               int
	lettered                   int
	duplicates                 int
	lost                       int
	begun, declined, failed    int
	granted                    int
	waited                     time.Duration
	// jobs that ran although a stale server refused them
	misled     int
	takeovers  int
	violations map[string][]string
}

// reported in full per law
const mostTold = 5

func (v *verdict) violated(law, format string, args ...any) {
	v.violations[law] = append(v.violations[law], fmt.Sprintf(format, args...))
}

type facts struct {
	h           *history
	submissions map[string]submission
	starts      map[string][]start
	runs        map[string][]run
	letters     map[string][]letter
	lives       map[string]life
}

// judge relies only on clients' answers, the target's requests, dead letters and the drainers' last
// checks.
func judge(h *history) verdict {
	v := verdict{violations: map[string][]string{}, takeovers: len(h.takeovers)}
	f := facts{h, map[string]submission{}, map[string][]start{}, map[string][]run{},
		map[string][]letter{}, map[string]life{}}
	slices.SortFunc(h.starts, func(a, b start) int { return cmp.Compare(a.at, b.at) })
	slices.SortFunc(h.runs, func(a, b run) int { return cmp.Compare(a.came, b.came) })
	for _, s := range h.starts {
		f.starts[s.job] = append(f.starts[s.job], s)
		if !s.lent {
			v.started++
		}
	}
	for _, r := range h.runs {
		f.runs[r.job] = append(f.runs[r.job], r)
		v.ran++
	}
	for _, l := range h.letters {
		f.letters[l.job] = append(f.letters[l.job], l)
		v.lettered++
	}
	for _, l := range h.lives {
		f.lives[l.name] = l
	}
	f.answers(&v)
	f.ends(&v)
	f.calls(&v)
	f.rates(&v)
	f.arrivals(&v)
	f.bounds(&v)
	f.depths(&v)
	f.order(&v)
	f.repeats(&v)
	f.reasons(&v)
	f.witnesses(&v)
	f.processes(&v)
	return v
}

// answers: refused jobs never run, and accepted jobs are the submitted ones.
func (f *facts) answers(v *verdict) {
	refusedNames := map[string]submission{}
	for _, s := range f.h.submissions {
		switch s.answer {
		case refused:
			v.refused++
			refusedNames[s.name] = s
		case unknown:
			v.unknown++
		case accepted:
			v.accepted++
			if first, twice := f.submissions[s.job]; twice {
				v.violated("no loss", "%s and %s were both accepted as %s", first.name, s.name,
					s.job)
			}
			f.submissions[s.job] = s
		}
	}
	for _, r := range f.h.runs {
		if s, is := refusedNames[r.name]; is && f.misled(s) {
			v.misled++
		} else if is {
			v.violated("a clear no", "%s ran as %s at %v after it was refused with %d at %v",
				r.name, r.job, r.came, s.status, s.answered)
		}
		if s, is := f.submissions[r.job]; is && s.name != r.name {
			v.violated("no loss", "%s was accepted as %s, and %s ran as that", s.name, r.job,
				r.name)
		}
	}
}

// falseLeader is the time that an isolated server may answer as leader.
const falseLeader = 5 * time.Second

// misled reports whether a refusal may come from a stale leader while the real one stored the job:
// both receive a publish, and a full bucket is refused without a vote. Clients cannot detect that.
func (f *facts) misled(s submission) bool {
	return (s.status == http.StatusTooManyRequests || s.status == codeFull) &&
		slices.ContainsFunc(f.h.faults, func(x fault) bool {
			return x.stale && x.overlaps(s.sent-falseLeader, s.answered)
		})
}

// ends (law 3): every accepted job has succeeded or has a letter.
func (f *facts) ends(v *verdict) {
	for policy, jobs := range f.h.left {
		v.violated("nothing stands still", "%s still holds %d jobs", policy, jobs)
	}
	for job, s := range f.submissions {
		if !f.succeeded(job) && len(f.letters[job]) == 0 {
			v.lost++
			if f.h.left[s.policy] == 0 {
				v.violated("no loss",
					"%s (%s) was accepted, and neither ran with success nor has a letter%s", job,
					s.name, f.h.story(job))
			}
		}
	}
}

func (f *facts) succeeded(job string) bool {
	return slices.ContainsFunc(f.runs[job], func(r run) bool {
		return r.status >= 200 && r.status < 300
	})
}

const (
	shortestWindow = time.Second
	longestWindow  = time.Minute
)

// rates (law 2): in every window of 1 to 60 s that begins at a start.
func (f *facts) rates(v *verdict) {
	for _, rule := range f.h.rules {
		if rule.rate == 0 {
			continue
		}
		byBucket := map[string][]start{}
		for _, s := range f.h.starts {
			if s.policy == rule.name && !s.lent {
				key := s.key
				if rule.total {
					key = ""
				}
				byBucket[key] = append(byBucket[key], s)
			}
		}
		for key, starts := range byBucket {
			if from, until, most := rule.exceeded(starts); until > 0 {
				v.violated("rate", "%s/%s: %d starts in %v from %v on (%s to %s), %.1f are allowed",
					rule.name, key,
					until-from, starts[until-1].at-starts[from].at, starts[from].at,
					starts[from].by, starts[until-1].by, most)
			}
		}
	}
}

// arrivals (law 2): as the target counts jobs and calls together.
func (f *facts) arrivals(v *verdict) {
	for _, rule := range f.h.rules {
		if rule.arrivals == 0 {
			continue
		}
		var came []time.Duration
		for _, r := range f.h.runs {
			if policy, _, _ := strings.Cut(r.job, ":"); policy == rule.name {
				came = append(came, r.came)
			}
		}
		for _, r := range f.h.requests {
			if r.policy == rule.name {
				came = append(came, r.at)
			}
		}
		slices.Sort(came)
		for i := rule.arrivals; i < len(came); i++ {
			if within := came[i] - came[i-rule.arrivals]; within < time.Second {
				v.violated("rate", "%s: the target counted %d requests in %v up to %v, and allows "+
					"%d in a second", rule.name, rule.arrivals+1, within, came[i], rule.arrivals)
			}
		}
	}
}

// exceeded returns the first window [from, until) with too many starts, and their maximum; until is
// 0 if there is no such window.
func (r rule) exceeded(starts []start) (from, until int, most float64) {
	for from = range starts {
		for until = from + 1; until < len(starts); until++ {
			window := starts[until].at - starts[from].at
			if window > longestWindow {
				break
			}
			most = r.peak*(max(window, shortestWindow).Seconds()+0.002) + r.burst
			if float64(until-from+1) > most {
				return from, until + 1, most
			}
		}
	}
	return 0, 0, 0
}

// bounds (law 1): by JetStream's depths.
func (f *facts) bounds(v *verdict) {
	for _, d := range f.h.depths {
		for _, rule := range f.h.rules {
			if rule.name == d.policy && d.jobs > rule.capacity {
				v.violated("bound", "%s held %d jobs at %v, its capacity is %d", d.bucket, d.jobs,
					d.at, rule.capacity)
			}
		}
	}
}

// depths (law 1): accepted jobs that had not ended, by the clients' answers.
func (f *facts) depths(v *verdict) {
	type step struct {
		at time.Duration
		by int
	}
	steps := map[bucket][]step{}
	for job, s := range f.submissions {
		end := time.Duration(-1)
		for _, r := range f.runs[job] {
			if r.status != 0 && (end < 0 || r.came < end) {
				end = r.came
			}
		}
		if len(f.letters[job]) > 0 && end < 0 {
			continue
		}
		steps[s.bucket] = append(steps[s.bucket], step{s.answered, 1})
		if end >= 0 {
			steps[s.bucket] = append(steps[s.bucket], step{max(end, s.answered), -1})
		}
	}
	for _, rule := range f.h.rules {
		for b, steps := range steps {
			if b.policy != rule.name {
				continue
			}
			slices.SortFunc(steps, func(a, b step) int {
				return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by))
			})
			held := 0
			for _, s := range steps {
				if held += s.by; held > rule.capacity {
					v.violated("bound",
						"%s: %d accepted jobs had not ended at %v, its capacity is %d", b, held,
						s.at, rule.capacity)
					break
				}
			}
		}
	}
}
