package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/penstock-mq/penstock/bench/paper"
)

const (
	mostRatio  = 0.6 // of the fastest peer's time, with many keys
	mostAllocs = 0.005
	mostBytes  = 96 // of heap per key
)

// timing is by number of cores; empty: not measured.
type timing struct{ cores [2]series }

// fastestPeer is a median in nanoseconds.
func fastestPeer(all []contestant, measured []timing, core int) float64 {
	fastest := math.NaN()
	for i, c := range all {
		if ns := measured[i].cores[core].ns(); c.isPeer() && !(ns >= fastest) {
			fastest = ns
		}
	}
	return fastest
}

func timeTable(set keySet, all []contestant, measured []timing) table {
	t := table{part: "memory", title: set.title}
	head := []string{"limiter", "algorithm"}
	for _, n := range coreCounts {
		head = append(head, fmt.Sprintf("ns, %s", paper.Plural(n, "core")), "ratio")
	}
	t.Add(append(head, "allocations", "")...)
	for i, c := range all {
		if len(measured[i].cores[0]) == 0 {
			continue
		}
		line, missed, most := []string{c.name, c.algorithm}, []string(nil), 0.0
		for core, n := range coreCounts {
			s := measured[i].cores[core]
			ratio := s.ns() / fastestPeer(all, measured, core)
			line = append(line, fmt.Sprintf("%.0f", s.ns()), fmt.Sprintf("%.2f", ratio))
			if ratio > mostRatio && set.goal {
				missed = append(missed, fmt.Sprintf("ratio, %s", paper.Plural(n, "core")))
			}
			most = max(most, s.allocs())
		}
		if most > mostAllocs {
			missed = append(missed, "allocations")
		}
		t.Add(append(line, fmt.Sprintf("%.2f", most), c.verdict(missed))...)
	}
	return t
}

func heapTable(all []contestant, held [][]float64) table {
	t := table{part: "memory", title: "Bytes of heap per key beyond the key itself"}
	head := []string{"limiter", "algorithm"}
	for _, n := range heapKeys {
		head = append(head, fmt.Sprintf("%s keys", paper.Grouped(n)))
	}
	t.Add(append(head, "")...)
	for i, c := range all {
		if len(held[i]) == 0 {
			continue
		}
		line, missed := []string{c.name, c.algorithm}, []string(nil)
		for j, bytes := range held[i] {
			line = append(line, fmt.Sprintf("%.1f", bytes))
			if bytes > mostBytes {
				missed = append(missed, fmt.Sprintf("%s keys", paper.Grouped(heapKeys[j])))
			}
		}
		t.Add(append(line, c.verdict(missed))...)
	}
	return t
}

func (c contestant) verdict(missed []string) string {
	switch {
	case !c.ours:
		return ""
	case len(missed) == 0:
		return "ok"
	}
	return "MISSED: " + strings.Join(missed, ", ")
}
