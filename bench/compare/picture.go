package main

import (
	"strings"
	"time"

	"gonum.org/v1/plot"

	"github.com/penstock-mq/penstock/bench/paper"
)

// drawAll makes the picture: the starts of each system and setting, and the limit.
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

// times returns the instants of arrivals.
func times(all []arrival) []time.Duration {
	at := make([]time.Duration, len(all))
	for i, a := range all {
		at[i] = a.at
	}
	return at
}

// plain is a text without the marks of Markdown.
func plain(text string) string { return strings.ReplaceAll(text, "`", "") }
