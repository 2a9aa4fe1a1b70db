package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

func (s *scene) report(out *screen) (broken []string) {
	f := s.findings()
	h, n := s.traffic.http, s.traffic.nats
	all := h.plus(n)

	fmt.Fprintln(out)
	row := func(name string, http, nats, all string) {
		fmt.Fprintln(out,
			strings.TrimRight(fmt.Sprintf("%-*s%8s%8s%8s", nameWidth, name, http, nats, all), " "))
	}
	counts := func(name string, of func(tally) int) {
		row(name, number(of(h)), number(of(n)), number(of(all)))
	}
	row("", "HTTP", "NATS", "all")
	counts("jobs submitted", func(t tally) int { return t.submitted })
	row("  allowed (started at once)", number(h.allowed), "", number(h.allowed))
	row("  queued", number(h.queued), "", number(h.queued))
	row("  stored (JetStream's word)", "", number(n.stored), number(n.stored))
	row("  rejected, not sent again", "", number(n.gaveUp), number(n.gaveUp))
	counts("rejections", func(t tally) int { return t.refused })
	row("  of jobs that came back and got in", number(h.cameBack), "", number(h.cameBack))

	fmt.Fprintln(out)
	fact := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%-*s %s\n", nameWidth, name, fmt.Sprintf(format, args...))
	}
	if h.refused > 0 {
		fact("rejected with retry-after", "%v to %v (header: rounded up to seconds)",
			s.traffic.soonest, s.traffic.latest)
	}
	fact("longest wait that was told", "%.1f s", s.traffic.wait.Seconds())
	fact("most jobs in the bucket", "%d of %d", s.mostHeld, capacity)
	fact("started", "%s", number(f.starts))
	fact("done", "%s", number(f.done))
	fact("lost", "%d", len(f.lost))
	if f.unknown > 0 {
		fact("done without a known acceptance", "%d", f.unknown)
	}
	if s.killed != nil {
		fact("ran twice after kill -9", "%d (at least once, so they may)", f.repeated)
		fact("takeover after kill -9", "%.1f s (lease %v, max_delay %v, window %v)",
			s.takeover().Seconds(), lease, maxDelay, apiWindow)
	}
	fact("most requests in any second", "%d (the API allows %d); %d overtook another", f.arrived,
		s.api.limit, f.overtaken)
	fact("429s from the API", "%d", f.throttled)
	fact("  the same, counted from the start", "%s", s.counted())
	now := time.Now()
	stalls, slower := "none over "+stalled.String(), ""
	if longest := s.machine.longest(out.started, now); longest > 0 {
		stalls = fmt.Sprintf("%v in all, the longest %v: other programs had the processors",
			s.machine.total(out.started, now).
				Round(time.Millisecond), longest.Round(time.Millisecond))
		slower = fmt.Sprintf("; stalls explain up to %.2f %% less", f.stalled())
	}
	formula := f.least / leastShare
	fact("measured rate", "%.2f/s for %.1f s of backlog (N ÷ (T + latency) is %.2f/s, %+.2f %%%s)",
		f.rate, f.measured.Seconds(), formula, 100*(f.rate-formula)/formula, slower)
	fact("stalls of this machine", "%s", stalls)
	return s.broken(f)
}

// counted says what the API got from the bucket that counts from the start.
func (s *scene) counted() string {
	seen, refused := s.second.seen(), 0
	longest := time.Duration(0)
	for _, r := range seen {
		if !r.allowed {
			refused++
			longest = max(longest, s.machine.longest(r.at.Add(-s.second.window), r.at))
		}
	}
	text := fmt.Sprintf("%d; most requests in any second %d", refused,
		busiest(seen, s.second.window))
	if longest > 0 {
		text += fmt.Sprintf(": this machine stood still for up to %v just then",
			longest.Round(time.Millisecond))
	}
	return text
}

const nameWidth = 36

func number(n int) string {
	if n >= 1000 {
		return strconv.Itoa(n/1000) + fmt.Sprintf(",%03d", n%1000)
	}
	return strconv.Itoa(n)
}
