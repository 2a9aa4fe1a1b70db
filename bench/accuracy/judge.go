package main

import (
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// view is a way to compare the counter's decisions with exact ones.
type view int

// The views.
const (
	// samePast asks of each decision whether an exact log of what the counter itself accepted had
	// decided alike.
	samePast view = iota
	// twoSystems lets a sliding log of accepted requests decide the same stream, with a past of its
	// own.
	twoSystems
	// countingAll counts refused requests too, in the counter and in the log.
	countingAll
	views
)

func (v view) String() string {
	return [...]string{"same past", "two systems", "counting all"}[v]
}

// wrong counts the requests that were decided differently from an exact log.
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

// exactLog is every instant that was recorded, ascending. The last window's are those after t −
// window.
type exactLog struct {
	times []int64
	first int // of those that count
}

func (l *exactLog) clear() { l.times, l.first = l.times[:0], 0 }

func (l *exactLog) record(t int64) { l.times = append(l.times, t) }

// count returns the number of requests in the window that ends at t. t must not go back.
func (l *exactLog) count(t int64) int64 {
	for l.first < len(l.times) && l.times[l.first] <= t-windowMicros {
		l.first++
	}
	return int64(len(l.times) - l.first)
}

// isNear says that n of the limit is close to it or above.
func isNear(n, limit int64) bool { return 5*n >= 4*limit }

// keyResult is what came of one key under one limit.
type keyResult struct {
	rank     int
	requests int64
	// near counts the requests at which either count, exact or estimated, reached 80 % of the
	// limit.
	near int64
	// close counts the requests at which the exact count of all offered requests was within 20 % of
	// the limit.
	close int64
	wrong [views]wrong
	// accepted and logAccepted count the requests that the counter and the sliding log let pass.
	accepted, logAccepted int64
	// most is the most that the counter let pass in any window, wherever it begins.
	most int64
	// offered is the most that came in any window, and estimated the largest estimate of it;
	// refused requests count.
	offered, estimated int64
}

// missed says that a key offered more than the limit in some window, and a counter of all of it did
// not see it.
func (r keyResult) missed(limit int64) bool { return r.offered > limit && r.estimated <= limit }

// accused says that a counter of all that a key offers saw more than the limit, and it never was.
func (r keyResult) accused(limit int64) bool { return r.offered <= limit && r.estimated > limit }

// judge decides keys' requests under every limit. It keeps its memory from key to key.
type judge struct {
	accepted exactLog
	offered  exactLog
	// For each request of the key: the number offered in the last window, including itself, and the
	// counter's estimate of it, rounded down.
	counts, estimates []int64
}

// load reads a key's requests and counts the offered ones, which are the same under every limit.
func (j *judge) load(times []int64) {
	j.offered.clear()
	j.counts, j.estimates = j.counts[:0], j.estimates[:0]
	rule := algorithms.SlidingCounter{Limit: algorithms.MaxLimit, Window: window} // refuses nothing
	var state algorithms.SlidingCounterState
	var d algorithms.Decision
	for _, t := range times {
		state, d = rule.Take(state, instant(t), 1)
		j.offered.record(t)
		j.counts = append(j.counts, j.offered.count(t))
		j.estimates = append(j.estimates, rule.Limit-d.Remaining)
	}
}

// decide plays the loaded key's requests under a limit.
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

// difference is the sum over the loaded key's requests of |estimate − count| ÷ count, in
// millionths.
func (j *judge) difference() (millionths int64) {
	for i, count := range j.counts {
		millionths += mulDiv(max(j.estimates[i]-count, count-j.estimates[i]), 1e6, count)
	}
	return millionths
}

// instant is a time of the stream.
func instant(t int64) time.Time { return time.UnixMicro(begin + t) }
