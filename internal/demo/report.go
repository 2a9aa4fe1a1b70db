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
		fact("takeover after kill -9", "%.1f s (lease %v)", s.takeover().Seconds(), lease)
	}
	fact("most starts in any second", "%d (the API allows %d)", f.busiest, s.api.limit)
	fact("  requests at the API", "%d; %d came after that of a job accepted later", f.arrived,
		f.overtaken)
	fact("429s from the API", "%d%s", len(f.throttled), s.together(f))
	now := time.Now()
	stalls, slower := "none over "+stalled.String(), ""
	if longest := s.machine.longest(out.started, now); longest > 0 {
		stalls = fmt.Sprintf("%v in all, the longest %v: other programs had the processors",
			s.machine.total(out.started, now).
				Round(time.Millisecond), longest.Round(time.Millisecond))
		if f.rate < outflow {
			slower = fmt.Sprintf("; stalls of this machine explain up to %.2f %% less", f.stalled())
		}
	}
	fact("measured rate", "%.2f/s for %.1f s of backlog (configured %d/s, %+.2f %%%s)", f.rate,
		f.measured.Seconds(),
		outflow, 100*(f.rate-outflow)/outflow, slower)
	fact("stalls of this machine", "%s", stalls)
	return s.broken(f)
}

// together explains refusals of requests that were started apart.
func (s *scene) together(f findings) string {
	if len(f.throttled) == 0 {
		return ""
	}
	text := ": requests that started apart arrived together"
	at := f.throttled[0].at
	if stall := s.machine.longest(at.Add(-s.api.window), at); stall > 0 {
		text += fmt.Sprintf(", as this machine stood still for %v just then",
			stall.Round(time.Millisecond))
	}
	return text + "; the jobs waited and were sent again"
}

const nameWidth = 36

func number(n int) string {
	if n >= 1000 {
		return strconv.Itoa(n/1000) + fmt.Sprintf(",%03d", n%1000)
	}
	return strconv.Itoa(n)
}
