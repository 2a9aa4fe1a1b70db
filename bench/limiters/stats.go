package main

import (
	"github.com/penstock-mq/penstock/bench/paper"
)

// sample is one measurement of a limiter.
type sample struct {
	ns     float64 // wall time divided by the decisions of all cores together
	allocs float64 // per decision
}

// series is what the rounds measured of one limiter in one setting.
type series []sample

func (s series) ns() float64 { return paper.MedianBy(s, func(x sample) float64 { return x.ns }) }
func (s series) allocs() float64 {
	return paper.MedianBy(s, func(x sample) float64 { return x.allocs })
}
