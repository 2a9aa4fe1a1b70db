package main

import (
	"fmt"
	"strconv"

	"github.com/penstock-mq/penstock/bench/paper"
)

func (r *report) byLimitTable() paper.Table {
	table := paper.Table{{"traffic", "limit", "wrongly allowed", "wrongly refused",
		"requests of keys that come near",
		"of these wrong", "worst key", "offers ÷ limit", "passed in all ÷ log's",
		"most in any window ÷ limit"}}
	for _, o := range r.outcomes {
		for i, limit := range limits {
			t := o.byLimit[i]
			w := t.wrong[samePast]
			table = append(table,
				[]string{o.traffic.name, paper.Grouped(limit), percent(w.allowed, t.requests),
					percent(w.refused, t.requests), percent(t.ofNearKeys, t.requests),
					percent(w.sum(), t.ofNearKeys),
					percent(t.worst.wrong[samePast].sum(), t.worst.requests),
					ratio(t.worst.requests, r.stream.windows*limit, 1),
					ratio(t.accepted, t.logAccepted, 3),
					ratio(t.most, limit, 3)})
		}
	}
	return table
}

func (r *report) viewTable() paper.Table {
	table := paper.Table{{"traffic", "limit", "same past: allowed", "refused",
		"two systems: allowed", "refused",
		"counting all: allowed", "refused", "offered within 20 % of the limit"}}
	for _, o := range r.outcomes {
		for i, limit := range limits {
			t := o.byLimit[i]
			line := []string{o.traffic.name, paper.Grouped(limit)}
			for _, w := range t.wrong {
				line = append(line, percent(w.allowed, t.requests), percent(w.refused, t.requests))
			}
			table = append(table, append(line, percent(t.close, t.requests)))
		}
	}
	return table
}

// sourceTable tells, per key, whether a counter of all requests classifies it correctly.
func (r *report) sourceTable() paper.Table {
	table := paper.Table{{"traffic", "limit", "keys above the limit in some window",
		"never refused", "the most these offered ÷ limit",
		"keys never above it", "refused"}}
	for _, o := range r.outcomes {
		for i, limit := range limits {
			t := o.byLimit[i]
			most := "–"
			if t.missed > 0 {
				most = ratio(t.mostMissed, limit, 3)
			}
			table = append(table,
				[]string{o.traffic.name, paper.Grouped(limit), paper.Grouped(t.aboveKeys),
					paper.Grouped(t.missed), most,
					paper.Grouped(t.keys - t.aboveKeys), paper.Grouped(t.accused)})
		}
	}
	return table
}

func (r *report) byLoadTable() paper.Table {
	head := []string{"offered ÷ limit", "keys", "requests"}
	for _, v := range []view{samePast, countingAll} {
		for _, t := range allTraffic {
			head = append(head, v.String()+": "+t.name)
		}
	}
	table := paper.Table{head}
	shown := shownIndex()
	for part := range loadEdges {
		t := r.outcomes[0].byLoad[shown][part]
		line := []string{loadName(part), paper.Grouped(t.keys),
			percent(t.requests, r.stream.requests)}
		for _, v := range []view{samePast, countingAll} {
			for _, o := range r.outcomes {
				t := o.byLoad[shown][part]
				line = append(line, percent(t.wrong[v].sum(), t.requests))
			}
		}
		table = append(table, line)
	}
	return table
}

func shownIndex() int {
	for i, limit := range limits {
		if limit == shownLimit {
			return i
		}
	}
	panic("the limit that is shown is none of those that are tried")
}

func loadName(part int) string {
	from := ratio(loadEdges[part], 100, 2)
	if part+1 == len(loadEdges) {
		return "from " + from
	}
	return from + " to " + ratio(loadEdges[part+1], 100, 2)
}

func (r *report) worstTable() paper.Table {
	head := []string{"algorithm", "documented: most in any time T"}
	for _, limit := range limits {
		head = append(head, "limit "+paper.Grouped(limit))
	}
	table := paper.Table{head}
	for i, s := range subjects {
		line := []string{s.name, s.stated}
		for k := range limits {
			w := r.worstOf(i, k, len(lengths)-1)
			line = append(line, fmt.Sprintf("%.5g", w.ratio()))
		}
		table = append(table, line)
	}
	return table
}

func (r *report) worstIntervals() paper.Table {
	head := []string{"algorithm"}
	for _, length := range lengths {
		head = append(head, lengthName(length))
	}
	table := paper.Table{append(head, "documented in a window", "found by search")}
	for i, s := range subjects {
		line := []string{s.name}
		for n := range lengths {
			line = append(line, fmt.Sprintf("%.5g", r.worstOf(i, shownIndex(), n).ratio()))
		}
		w := r.worstOf(i, shownIndex(), len(lengths)-1)
		table = append(table, append(line, ratio(w.bound, w.limit, 2), ratio(w.found, w.limit, 2)))
	}
	return table
}

func (r *report) worstOf(subject, limit, length int) worstCase {
	return r.worst[(subject*len(limits)+limit)*len(lengths)+length]
}

func lengthName(length int64) string {
	switch {
	case length == 1:
		return "an instant"
	case length == windowMicros:
		return "a window"
	}
	return fmt.Sprintf("1/%d window", windowMicros/length)
}

func quotient(a, b int64) float64 { return float64(a) / float64(max(b, 1)) }

func ratio(a, b int64, digits int) string {
	if b == 0 {
		return "–"
	}
	return strconv.FormatFloat(quotient(a, b), 'f', digits, 64)
}

func percent(part, whole int64) string {
	share := 100 * quotient(part, whole)
	switch {
	case whole == 0:
		return "–"
	case part == 0:
		return "0"
	case share >= 10:
		return strconv.FormatFloat(share, 'f', 1, 64) + " %"
	case share >= 0.1:
		return strconv.FormatFloat(share, 'f', 2, 64) + " %"
	}
	return strconv.FormatFloat(share, 'g', 2, 64) + " %"
}
