package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/penstock-mq/penstock/bench/paper"
)

type report struct {
	stream   stream
	outcomes []outcome
	worst    []worstCase
}

func (r *report) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of the report: %w", err)
	}
	page, err := r.page()
	if err != nil {
		return err
	}
	name := func(ending string) string { return filepath.Join(dir, "accuracy"+ending) }
	err = errors.Join(os.WriteFile(name(".md"), page, 0o644), r.draw(name(".svg")))
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// numbers has lines of three kinds by their part; each leaves the others' columns empty.
func (r *report) numbers() paper.Table {
	head := []string{"part", "subject", "limit", "offered_from", "interval_us"}
	counted := len(head)
	for _, c := range tallyColumns {
		head = append(head, c.name)
	}
	lines := paper.Table{append(head, "constructed", "found", "stated")}
	line := func(cells []string, at int, numbers ...int64) {
		cells = append(cells, make([]string, len(lines[0])-len(cells))...)
		for i, n := range numbers {
			cells[at+i] = strconv.FormatInt(n, 10)
		}
		lines = append(lines, cells)
	}
	for _, o := range r.outcomes {
		for i, limit := range limits {
			line([]string{"limit", o.traffic.name, fmt.Sprint(limit)}, counted,
				o.byLimit[i].columns()...)
			for part, t := range o.byLoad[i] {
				from := ratio(loadEdges[part], 100, 2)
				line([]string{"load", o.traffic.name, fmt.Sprint(limit), from}, counted,
					t.columns()...)
			}
		}
	}
	for _, w := range r.worst {
		cells := []string{"worst", w.subject.name, fmt.Sprint(w.limit), "", fmt.Sprint(w.length)}
		line(cells, len(head), w.constructed, w.found, w.bound)
	}
	return lines
}

var tallyColumns = []struct {
	name  string
	value func(tally) int64
}{
	{"keys", func(t tally) int64 { return t.keys }},
	{"near_keys", func(t tally) int64 { return t.nearKeys }},
	{"requests", func(t tally) int64 { return t.requests }},
	{"requests_of_near_keys", func(t tally) int64 { return t.ofNearKeys }},
	{"requests_near", func(t tally) int64 { return t.near }},
	{"requests_close", func(t tally) int64 { return t.close }},
	{"same_past_wrongly_allowed", func(t tally) int64 { return t.wrong[samePast].allowed }},
	{"same_past_wrongly_refused", func(t tally) int64 { return t.wrong[samePast].refused }},
	{"two_systems_wrongly_allowed", func(t tally) int64 { return t.wrong[twoSystems].allowed }},
	{"two_systems_wrongly_refused", func(t tally) int64 { return t.wrong[twoSystems].refused }},
	{"counting_all_wrongly_allowed", func(t tally) int64 { return t.wrong[countingAll].allowed }},
	{"counting_all_wrongly_refused", func(t tally) int64 { return t.wrong[countingAll].refused }},
	{"keys_above", func(t tally) int64 { return t.aboveKeys }},
	{"keys_missed", func(t tally) int64 { return t.missed }},
	{"keys_accused", func(t tally) int64 { return t.accused }},
	{"most_of_a_missed_key", func(t tally) int64 { return t.mostMissed }},
	{"accepted", func(t tally) int64 { return t.accepted }},
	{"accepted_by_log", func(t tally) int64 { return t.logAccepted }},
	{"most_in_a_window", func(t tally) int64 { return t.most }},
}

func (t tally) columns() (numbers []int64) {
	for _, c := range tallyColumns {
		numbers = append(numbers, c.value(t))
	}
	return numbers
}
