//go:build unix

package main

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

func sequence(job string) uint64 {
	_, number, _ := strings.Cut(job, ":")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// order (law 4): jobs of a bucket with equal, known priority first start in the order of
// acceptance.
func (f *facts) order(v *verdict) {
	type line struct {
		bucket
		priority int
	}
	last, seen := map[line]start{}, map[string]bool{}
	for _, s := range f.h.starts {
		if s.lent || seen[s.job] {
			continue
		}
		seen[s.job] = true
		is, known := f.submissions[s.job]
		if !known {
			continue
		}
		l := line{s.bucket, is.priority}
		if before := last[l]; before.job != "" && sequence(before.job) > sequence(s.job) {
			v.violated("order", "%s: %s started at %v by %s, %s before it at %v by %s%s", s.bucket,
				s.job, s.at, s.by,
				before.job, before.at, before.by, f.h.story(s.job))
			continue
		}
		last[l] = s
	}
}

// until the target notices that its caller is gone
const hangUp = time.Second

// repeats (law 3): a job runs again only if its owner was killed, or declared dead because it was
// frozen, isolated or could not renew its lease; or if it was frozen when the attempt timed out, or
// could not report the outcome after a handover.
func (f *facts) repeats(v *verdict) {
	for job, runs := range f.runs {
		for i, r := range runs {
			again := slices.ContainsFunc(runs[:i], func(earlier run) bool {
				return earlier.status >= 200 && earlier.status < 300 || earlier.left > r.came+hangUp
			})
			if !again {
				continue
			}
			v.duplicates++
			if !f.explained(job, f.firstStart(job), r.came) {
				v.violated("no needless repeat",
					"%s (%s) ran again at %v, and nobody's end explains it%s", job, r.name, r.came,
					f.h.story(job))
			}
		}
	}
	for job, letters := range f.letters {
		if !f.succeeded(job) {
			continue
		}
		v.duplicates++
		from, until := f.firstStart(job), letters[0].buried
		if s, known := f.submissions[job]; known {
			from = s.sent
		}
		for _, r := range f.runs[job] {
			until = max(until, r.came)
		}
		if !f.explained(job, from, until) {
			v.violated("no needless repeat", "%s ran with success and has a letter%s", job,
				f.h.story(job))
		}
	}
}

func (f *facts) firstStart(job string) time.Duration {
	if starts := f.starts[job]; len(starts) > 0 {
		return starts[0].at
	}
	return 0
}

// explained reports whether an owner of the job was killed, frozen when an attempt timed out,
// declared dead, or unable to report.
func (f *facts) explained(job string, from, until time.Duration) bool {
	starts := f.starts[job]
	if len(starts) == 0 {
		return false
	}
	for _, s := range starts {
		if l := f.lives[s.by]; l.ending == killed && l.until >= from && l.until <= until {
			return true
		}
		process, _, _ := strings.Cut(s.by, ".")
		for _, x := range f.h.faults {
			if !x.overlaps(from, until) {
				continue
			}
			// the outcome of a lent run is a message, which a fault may lose
			between := func(name string) bool {
				return isServer(name) || slices.ContainsFunc(starts, func(s start) bool {
					return strings.HasPrefix(s.by, name+".")
				})
			}
			timeout := s.at + attemptTimeout
			if s.lent && x.struck(between) ||
				x.frozen(process) && x.from <= timeout && timeout <= min(x.until, until) {
				return true
			}
		}
	}
	partition := f.h.partition(starts[0].bucket)
	return f.unheard(starts, until) || slices.ContainsFunc(f.h.takeovers, func(t takeover) bool {
		return t.policy == starts[0].policy && t.partition == partition && t.at >= from &&
			t.at <= until
	})
}

// unheard reports whether the previous start's drainer could not report before the last start.
func (f *facts) unheard(starts []start, until time.Duration) bool {
	n := len(starts)
	for n > 0 && starts[n-1].at > until {
		n--
	}
	if n < 2 || starts[n-1].by == starts[n-2].by {
		return false
	}
	former, next := starts[n-2], starts[n-1]
	if next.at-former.at < attemptTimeout {
		return false
	}
	ended := former.at + attemptTimeout
	for _, r := range f.runs[next.job] {
		if r.came >= former.at && r.came < next.at {
			ended = min(ended, r.left)
		}
	}
	begun := max(ended, next.at-attemptTimeout+hangUp)
	process := func(s start) string { name, _, _ := strings.Cut(s.by, "."); return name }
	return slices.ContainsFunc(f.h.faults, func(x fault) bool {
		return x.from <= begun && x.until >= next.at-hangUp &&
			x.parts(process(former), process(next))
	})
}

// crashes before a job becomes a dead letter
const crashes = 3

// reasons: of letters, match the observations.
func (f *facts) reasons(v *verdict) {
	for job, letters := range f.letters {
		if len(letters) > 1 {
			v.violated("letters", "%s has %d letters%s", job, len(letters), f.h.story(job))
		}
		l := letters[0]
		failed, permanent := 0, false
		for _, r := range f.runs[job] {
			if r.status == 0 || r.status >= 500 {
				failed++
			}
			permanent = permanent || r.status == 422
		}
		s, known := f.submissions[job]
		switch l.reason {
		case "permanent":
			if !permanent {
				v.violated("letters", "%s is permanent, and the target never said so%s", job,
					f.h.story(job))
			}
		case "attempts":
			if failed < f.attempts(l.policy) {
				v.violated("letters", "%s has used up its attempts, and %d failed%s", job, failed,
					f.h.story(job))
			}
		case "deadline":
			if known && (s.deadline == 0 || l.buried < s.sent+s.deadline-clockError) {
				v.violated("letters", "%s died of a deadline that it did not have, or too early%s",
					job, f.h.story(job))
			}
		case "crashed":
			if n := f.takeoversOf(job, l.buried); n < crashes {
				v.violated("letters", "%s died of %d crashes%s", job, n, f.h.story(job))
			}
		default:
			v.violated("letters", "%s died of %q%s", job, l.reason, f.h.story(job))
		}
	}
	for job, starts := range f.starts {
		s := f.submissions[job]
		if last := starts[len(starts)-1]; s.deadline != 0 &&
			last.at > s.answered+s.deadline+clockError {
			v.violated("letters", "%s started at %v, after its deadline%s", job, last.at,
				f.h.story(job))
		}
	}
}

// between JetStream's clock and a drainer's
const clockError = 2 * time.Second

func (f *facts) attempts(policy string) int {
	for _, rule := range f.h.rules {
		if rule.name == policy {
			return rule.attempts
		}
	}
	return 0
}

func (f *facts) takeoversOf(job string, until time.Duration) (n int) {
	starts := f.starts[job]
	if len(starts) == 0 {
		return 0
	}
	partition := f.h.partition(starts[0].bucket)
	for _, t := range f.h.takeovers {
		if t.policy == starts[0].policy && t.partition == partition && t.at >= starts[0].at &&
			t.at <= until {
			n++
		}
	}
	return n
}

// witnesses: the observations are complete. A request without a start would escape the check of
// rates.
func (f *facts) witnesses(v *verdict) {
	if v.accepted == 0 || v.started == 0 || v.ran == 0 {
		v.violated("witnesses",
			"%d jobs accepted, %d starts told, %d requests: nothing can be judged", v.accepted,
			v.started, v.ran)
	}
	for job, runs := range f.runs {
		if len(runs) > len(f.starts[job]) {
			v.violated("witnesses", "%s: %d requests, and drainers tell of %d starts%s", job,
				len(runs), len(f.starts[job]), f.h.story(job))
		}
	}
	for _, t := range f.h.takeovers {
		// A lease is renewed every third of its duration.
		if !slices.ContainsFunc(f.h.faults, func(x fault) bool {
			return x.overlaps(t.at-3*f.h.lease, t.at) && (x.struck(isServer) || x.struck(isDrainer))
		}) {
			v.violated("no needless death",
				"%s took %s/%d over at %v, and for three leases nothing had happened to any owner",
				t.by, t.policy, t.partition, t.at)
		}
	}
}

func (f *facts) processes(v *verdict) {
	for _, l := range f.h.lives {
		if l.ending == fell {
			v.violated("processes", "%s ended by itself at %v", l.name, l.until)
		}
	}
}
