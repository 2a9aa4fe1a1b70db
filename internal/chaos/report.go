//go:build unix

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// standstill exceeds the target's own pauses.
const standstill = 3 * time.Second

type recovery struct {
	times int
	stood int
	from  []time.Duration // from the fault to the last bucket's start
	after []time.Duration
}

// recoveries measures how long busy buckets stood still. Overlapping faults share it.
func recoveries(h *history, policy string) map[string]*recovery {
	byKey := map[string][]time.Duration{}
	for _, s := range h.starts {
		if s.policy == policy && !s.lent {
			byKey[s.key] = append(byKey[s.key], s.at)
		}
	}
	kinds := map[string]*recovery{}
	for _, f := range h.faults {
		r := kinds[f.kind]
		if r == nil {
			r = &recovery{}
			kinds[f.kind] = r
		}
		r.times++
		again := time.Duration(-1)
		for _, starts := range byKey {
			for i := 1; i < len(starts); i++ {
				from, until := starts[i-1], starts[i]
				if until-from > standstill && until > f.from && from < f.until+time.Second {
					again = max(again, until)
				}
			}
		}
		if again >= 0 {
			r.stood++
			r.from = append(r.from, again-f.from)
			r.after = append(r.after, max(0, again-f.until))
		}
	}
	return kinds
}

func report(h *history, v verdict, policy string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-20s %5s %6s   %-21s   %s\n", "fault", "times", "stood",
		"still for: median max", "after its end: median max")
	kinds := recoveries(h, policy)
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		r := kinds[kind]
		total += r.times
		fmt.Fprintf(&b, "%-20s %5d %6d   %s   %s\n", kind, r.times, r.stood, spread(r.from),
			spread(r.after))
	}
	fmt.Fprintf(&b, "%d faults; %d takeovers of partitions whose owner was declared dead\n", total,
		v.takeovers)
	fmt.Fprintf(&b,
		"%d jobs accepted, %d refused, %d without a clear answer; %d starts, %d requests, %d dead "+
			"letters\n",
		v.accepted, v.refused, v.unknown, v.started, v.ran, v.lettered)
	fmt.Fprintf(&b, "%d calls began, after %v at most, and had %d starts; %d were refused, "+
		"%d failed by faults\n", v.begun, v.waited.Round(time.Millisecond), v.granted,
		v.declined, v.failed)
	fmt.Fprintf(&b, "%d duplicates (%.0f per million runs), %d lost\n", v.duplicates,
		1e6*float64(v.duplicates)/float64(max(v.ran, 1)), v.lost)
	if v.misled > 0 {
		fmt.Fprintf(&b,
			"%d jobs ran that a server had refused which still took itself for the leader\n",
			v.misled)
	}
	return b.String()
}

func spread(d []time.Duration) string {
	if len(d) == 0 {
		return fmt.Sprintf("%11s %9s", "-", "-")
	}
	slices.Sort(d)
	return fmt.Sprintf("%10.1fs %8.1fs", d[len(d)/2].Seconds(), d[len(d)-1].Seconds())
}

func complaints(v verdict) string {
	var b strings.Builder
	for _, law := range slices.Sorted(maps.Keys(v.violations)) {
		list := v.violations[law]
		fmt.Fprintf(&b, "VIOLATED: %s, %d times\n", law, len(list))
		for _, text := range list[:min(mostTold, len(list))] {
			fmt.Fprintf(&b, "    %s\n", text)
		}
	}
	return b.String()
}
