package main

import (
	"fmt"
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

// short is the part of a setting that tells it from others.
func short(setting string) string {
	switch {
	case strings.Contains(setting, "answer"):
		return "counted from the answer"
	case strings.Contains(setting, "sliding_log"):
		return "counted from the start"
	case strings.Contains(setting, "rate."):
		return fmt.Sprintf("%d/s in each worker", limit/crew)
	}
	return strings.TrimPrefix(plain(setting), "limiter: ")
}
