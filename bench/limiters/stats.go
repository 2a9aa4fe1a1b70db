package main

import (
	"github.com/penstock-mq/penstock/bench/paper"
)

type sample struct {
	ns     float64 // wall time per decision of all cores
	allocs float64
}

type series []sample

func (s series) ns() float64 { return paper.MedianBy(s, func(x sample) float64 { return x.ns }) }
func (s series) allocs() float64 {
	return paper.MedianBy(s, func(x sample) float64 { return x.allocs })
}
