package main

import (
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

type view int

const (
	// samePast: an exact log of the counter's accepted requests decides.
	samePast view = iota
	// twoSystems: an independent sliding log decides the same stream.
	twoSystems
	// countingAll counts refused requests, too.
	countingAll
	views
)

func (v view) String() string {
	return [...]string{"same past", "two systems", "counting all"}[v]
}

type wrong struct{ allowed, refused int64 }

func (w *wrong) compare(counter, exact bool) {
	switch {
	case counter && !exact:
		w.allowed++
	case exact && !counter:
		w.refused++
	}
}

func (w *wrong) add(o wrong) { w.allowed, w.refused = w.allowed+o.allowed, w.refused+o.refused }

func (w wrong) sum() int64 { return w.allowed + w.refused }

// exactLog holds recorded instants, ascending.
type exactLog struct {
	times []int64
	first int
}

func (l *exactLog) clear() { l.times, l.first = l.times[:0], 0 }

func (l *exactLog) record(t int64) { l.times = append(l.times, t) }

// count returns the requests in the window that ends at t, which must not go back.
func (l *exactLog) count(t int64) int64 {
	for l.first < len(l.times) && l.times[l.first] <= t-windowMicros {
		l.first++
	}
	return int64(len(l.times) - l.first)
}

func isNear(n, limit int64) bool { return 5*n >= 4*limit }

type keyResult struct {
	rank     int
	requests int64
	// near counts requests whose exact or estimated count was at least 80 % of the limit.
	near int64
	// close counts requests whose exact count of offered requests was within 20 % of the limit.
	close int64
	wrong [views]wrong
	// passed by the counter, and by the log
	accepted, logAccepted int64
	// most is the most passed in any window.
	most int64
	// of all requests in any window: offered, and the largest estimate
	offered, estimated int64
}

// missed: the key offered more than the limit, and a counter of all did not see it.
func (r keyResult) missed(limit int64) bool { return r.offered > limit && r.estimated <= limit }

// accused: a counter of all saw more than the limit, wrongly.
func (r keyResult) accused(limit int64) bool { return r.offered <= limit && r.estimated > limit }

type judge struct {
	accepted exactLog
	offered  exactLog
	// for each request: offered in the last window, and the estimate of it, rounded down
	counts, estimates []int64
}

func (j *judge) load(times []int64) {
	j.offered.clear()
	j.counts, j.estimates = j.counts[:0], j.estimates[:0]
	rule := algorithms.SlidingCounter{Limit: algorithms.MaxLimit, Window: window}
	var state algorithms.SlidingCounterState
	var d algorithms.Decision
	for _, t := range times {
		state, d = rule.Take(state, instant(t), 1)
		j.offered.record(t)
		j.counts = append(j.counts, j.offered.count(t))
		j.estimates = append(j.estimates, rule.Limit-d.Remaining)
	}
}

func (j *judge) decide(limit int64, rank int) keyResult {
	counter := algorithms.SlidingCounter{Limit: limit, Window: window}
	log := algorithms.SlidingLog{Limit: limit, Window: window, CountAccepted: true}
	var counterState algorithms.SlidingCounterState
	var logState algorithms.SlidingLogState
	var decision, logDecision algorithms.Decision
	r := keyResult{rank: rank, requests: int64(len(j.offered.times))}
	j.accepted.clear()
	for i, t := range j.offered.times {
		now := instant(t)
		counterState, decision = counter.Take(counterState, now, 1)
		logState, logDecision = log.Take(logState, now, 1)
		count := j.accepted.count(t)
		estimate := limit - decision.Remaining - decision.Granted
		if isNear(max(count, estimate)+1, limit) {
			r.near++
		}
		if 5*max(j.counts[i]-limit, limit-j.counts[i]) <= limit {
			r.close++
		}
		r.wrong[samePast].compare(decision.Allowed, count < limit)
		r.wrong[twoSystems].compare(decision.Allowed, logDecision.Allowed)
		r.wrong[countingAll].compare(j.estimates[i] <= limit, j.counts[i] <= limit)
		r.offered, r.estimated = max(r.offered, j.counts[i]), max(r.estimated, j.estimates[i])
		r.logAccepted += logDecision.Granted
		if decision.Allowed {
			j.accepted.record(t)
			r.accepted++
			r.most = max(r.most, count+1)
		}
	}
	return r
}

// difference is the sum of |estimate − count| ÷ count, in millionths.
func (j *judge) difference() (millionths int64) {
	for i, count := range j.counts {
		millionths += mulDiv(max(j.estimates[i]-count, count-j.estimates[i]), 1e6, count)
	}
	return millionths
}

func instant(t int64) time.Time { return time.UnixMicro(begin + t) }
