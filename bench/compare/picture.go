package main

import (
	"strings"
	"time"

	"gonum.org/v1/plot"

	"github.com/penstock-mq/penstock/bench/paper"
)

func drawAll(file string, results []result) error {
	var plots []*plot.Plot
	for _, r := range results {
		p, err := paper.Starts(r.name+", "+plain(r.setting), times(r.paced), limit)
		if err != nil {
			return err
		}
		plots = append(plots, p)
	}
	return paper.WriteStarts(file, plots)
}

func times(all []arrival) []time.Duration {
	at := make([]time.Duration, len(all))
	for i, a := range all {
		at[i] = a.at
	}
	return at
}

func plain(text string) string { return strings.ReplaceAll(text, "`", "") }

// short is the part of a setting that tells it from others of its system.
func short(setting string) string {
	switch {
	case strings.Contains(setting, "answer"):
		return "counted from the answer"
	case strings.Contains(setting, "sliding_log"):
		return "counted from the start"
	}
	return plain(setting)
}
