package main

import (
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/bench/paper"
)

// of the peer's p99
const mostP99 = 1

func peerOf(all []contestant, measured []turns) turns {
	for i, c := range all {
		if c.isPeer() {
			return measured[i]
		}
	}
	return nil
}

func speedTable(set redisKeySet, all []contestant, measured []turns) table {
	t := table{part: "redis", title: set.title}
	t.Add("limiter", "algorithm", "decisions/s", "ratio", "p50", "p99", "p99 ratio",
		"decisions per call", "")
	peer := peerOf(all, measured)
	for i, c := range all {
		m := measured[i]
		ratio, late := m.perSecond()/peer.perSecond(), m.p99()/peer.p99()
		var missed []string
		if ratio < set.least {
			missed = append(missed, "ratio")
		}
		if late > mostP99 {
			missed = append(missed, "p99")
		}
		t.Add(c.name, c.algorithm, paper.Grouped(int(m.perSecond())), fmt.Sprintf("%.1f", ratio),
			millis(m.p50()),
			millis(m.p99()), fmt.Sprintf("%.2f", late), fmt.Sprintf("%.1f", m.perCall()),
			c.verdict(missed))
	}
	return t
}

func ceilingTable(ceilings []*ceiling, all []contestant, measured []turns) table {
	t := table{part: "redis",
		title: "Keys that Redis decides on in a second, asked by redis-benchmark"}
	t.Add("algorithm", "1 key a call", "pipelined", "keys a call", "so many a call", "pipelined",
		"penstock", "of the most")
	for _, c := range ceilings {
		line, most := []string{c.algorithm}, 0.0
		for i, r := range c.replays {
			if i == len(pipelines) {
				line = append(line, fmt.Sprint(r.command.keys))
			}
			rate := paper.Median(r.perSecond)
			line, most = append(line, paper.Grouped(int(rate))), max(most, rate)
		}
		for i, other := range all {
			if other.ours && other.algorithm == c.algorithm {
				ours := measured[i].perSecond()
				line = append(line, paper.Grouped(int(ours)), fmt.Sprintf("%.0f %%", 100*ours/most))
			}
		}
		t.Add(line...)
	}
	return t
}

func floodTable(all []contestant, measured [][]flooding) table {
	t := table{part: "redis", title: "Refusing one key"}
	t.Add("limiter", "algorithm", "refusals/s", "calls per 10,000")
	for i, c := range all {
		rate := paper.MedianBy(measured[i], func(f flooding) float64 {
			return float64(f.refusals) / f.elapsed.Seconds()
		})
		calls := paper.MedianBy(measured[i], func(f flooding) float64 {
			return 10_000 * float64(f.calls) / float64(f.refusals)
		})
		t.Add(c.name, c.algorithm, paper.Grouped(int(rate)), fmt.Sprintf("%.2f", calls))
	}
	return t
}

func weightTable(all []weight) table {
	t := table{part: "redis", title: "Bytes of Redis per key"}
	t.Add("limiter", "algorithm", "keys", "a key's name", "MEMORY USAGE", "beyond the name",
		"used_memory", "beyond the name")
	for _, w := range all {
		t.Add(w.holder.name, w.holder.algorithm, paper.Grouped(w.holder.keys), "`"+w.example+"`",
			fmt.Sprintf("%.1f", w.usage), fmt.Sprintf("%.1f", w.usage-w.name),
			fmt.Sprintf("%.1f", w.used), fmt.Sprintf("%.1f", w.used-w.name))
	}
	return t
}

func millis(ns float64) string { return fmt.Sprintf("%.2f ms", ns/float64(time.Millisecond)) }
