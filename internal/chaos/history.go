//go:build unix

package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Instants are since the start of the world, by this process's clock.

type bucket struct{ policy, key string }

func (b bucket) String() string { return b.policy + "/" + b.key }

type answer int

const (
	unknown answer = iota // without an answer, or inconclusive: the job may run
	accepted
	refused
)

type submission struct {
	bucket
	name           string
	job            string
	answer         answer
	status         int
	sent, answered time.Duration
	priority       int
	deadline       time.Duration // after storage; 0 without a deadline
}

// start is the last check, reported by its drainer.
type start struct {
	bucket
	job     string
	attempt int
	at      time.Duration
	by      string
	lent    bool // by ran it for another, which reports the instant
}

type run struct {
	name, job  string
	attempt    int
	came, left time.Duration
	status     int
}

type letter struct {
	bucket
	job, reason string
	attempts    int
	buried      time.Duration
}

// request is one of a call, as its target counts it.
type request struct {
	bucket
	at time.Duration
}

type depth struct {
	bucket
	at   time.Duration
	jobs int
}

// takeover follows an expired lease.
type takeover struct {
	policy    string
	partition int
	at        time.Duration
	by        string
}

type life struct {
	name        string
	from, until time.Duration
	ending      ending
}

type ending string

const (
	running ending = "running"
	killed  ending = "killed"
	stopped ending = "stopped"
	fell    ending = "ended by itself"
)

type fault struct {
	kind, whom  string
	from, until time.Duration
	stale       bool // a stream's former leader may have still answered
}

func (f fault) overlaps(from, until time.Duration) bool {
	return f.from <= until && f.until >= from
}

// struck reports whether a process was struck, as opposed to its peers.
func (f fault) struck(meant func(name string) bool) bool {
	victims, _, _ := strings.Cut(f.whom, " to ")
	victims, _, _ = strings.Cut(victims, " by ")
	return slices.ContainsFunc(strings.Fields(victims), meant)
}

func isServer(name string) bool  { return strings.HasPrefix(name, "nats-") }
func isDrainer(name string) bool { return strings.HasPrefix(name, "drainer-") }

func (f fault) frozen(process string) bool {
	return strings.HasSuffix(f.kind, "frozen") && slices.Contains(strings.Fields(f.whom), process)
}

func (f fault) parts(a, b string) bool {
	switch f.kind {
	case "routes cut", "routes stalled", "server frozen", "two servers frozen":
		return true
	case "drainer frozen":
		return f.frozen(a) || f.frozen(b)
	case "link cut", "link stalled", "one link stalled":
		return slices.ContainsFunc(strings.Fields(f.whom), func(name string) bool {
			return name == a || name == b
		})
	}
	return false
}

type history struct {
	mu          sync.Mutex
	rules       []rule
	lease       time.Duration
	submissions []submission
	starts      []start
	runs        []run
	letters     []letter
	calls       []call
	requests    []request
	depths      []depth
	takeovers   []takeover
	lives       []life
	faults      []fault
	left        map[string]int // in JetStream at the end, by policy
}

func note[T any](h *history, list *[]T, seen T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*list = append(*list, seen)
}

func (h *history) submitted(s submission) { note(h, &h.submissions, s) }
func (h *history) ran(r run)              { note(h, &h.runs, r) }
func (h *history) held(d depth)           { note(h, &h.depths, d) }
func (h *history) lived(l life)           { note(h, &h.lives, l) }
func (h *history) struck(f fault)         { note(h, &h.faults, f) }

func (h *history) story(job string) string {
	type line struct {
		at   time.Duration
		text string
	}
	var lines []line
	tell := func(at time.Duration, format string, args ...any) {
		lines = append(lines, line{at, fmt.Sprintf(format, args...)})
	}
	var first, last time.Duration
	note := func(from, until time.Duration) {
		if len(lines) == 1 {
			first = from
		}
		first, last = min(first, from), max(last, until)
	}
	partition := -1
	for _, s := range h.submissions {
		if s.job == job {
			tell(s.answered, "answered %d: %s of %s, sent at %v", s.status, s.name, s.bucket,
				s.sent)
			note(s.sent, s.answered)
			partition = h.partition(s.bucket)
		}
	}
	for _, s := range h.starts {
		if s.job == job {
			tell(s.at, "started by %s, attempt %d, lent %v", s.by, s.attempt, s.lent)
			note(s.at, s.at)
			partition = h.partition(s.bucket)
		}
	}
	for _, r := range h.runs {
		if r.job == job {
			tell(r.came, "at the target: %s, attempt %d, answered %d at %v", r.name, r.attempt,
				r.status, r.left)
			note(r.came, r.left)
		}
	}
	for _, l := range h.letters {
		if l.job == job {
			tell(l.buried, "buried: %s after %d attempts", l.reason, l.attempts)
			note(l.buried, l.buried)
		}
	}
	policy, _, _ := strings.Cut(job, ":")
	for _, t := range h.takeovers {
		if t.policy == policy && t.partition == partition && t.at >= first && t.at <= last {
			tell(t.at, "%s took partition %d over", t.by, t.partition)
		}
	}
	for _, f := range h.faults {
		if f.overlaps(first, last) {
			tell(f.from, "fault until %v: %s, %s", f.until, f.kind, f.whom)
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return int(a.at - b.at) })
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "\n      %12v  %s", l.at, l.text)
	}
	return b.String()
}
