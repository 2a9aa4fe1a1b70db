package main

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
)

// per window
var limits = []int64{5, 10, 50, 100, 1000, 10000}

// loadEdges divides keys by offered requests per window ÷ limit, in hundredths.
var loadEdges = []int64{0, 25, 50, 75, 90, 110, 150, 250, 500, 1000}

func loadOf(requests, windows, limit int64) int {
	part := 0
	for part+1 < len(loadEdges) && 100*requests >= loadEdges[part+1]*windows*limit {
		part++
	}
	return part
}

// worthRanking is the least mean number of requests per window of the worst key, because with fewer
// a wrong decision means little.
const worthRanking = 4

type tally struct {
	keys, nearKeys int64
	requests       int64
	ofNearKeys     int64
	near, close    int64
	wrong          [views]wrong
	accepted       int64
	logAccepted    int64
	most           int64
	// aboveKeys offered more than the limit; for missed and accused see keyResult. mostMissed is
	// the most offered by a missed key.
	aboveKeys, missed, accused, mostMissed int64

	// the key with the largest share wrong given the same past
	worst keyResult
}

func (t *tally) addKey(r keyResult, limit, windows int64) {
	sum := tally{keys: 1, requests: r.requests, near: r.near, close: r.close, wrong: r.wrong,
		accepted:    r.accepted,
		logAccepted: r.logAccepted, most: r.most}
	if r.near > 0 {
		sum.nearKeys, sum.ofNearKeys = 1, r.requests
	}
	if r.offered > limit {
		sum.aboveKeys = 1
	}
	if r.missed(limit) {
		sum.missed, sum.mostMissed = 1, r.offered
	}
	if r.accused(limit) {
		sum.accused = 1
	}
	if r.requests >= worthRanking*windows && r.wrong[samePast].sum() > 0 {
		sum.worst = r
	}
	t.add(sum)
}

func (t *tally) add(o tally) {
	t.keys, t.nearKeys = t.keys+o.keys, t.nearKeys+o.nearKeys
	t.requests, t.ofNearKeys = t.requests+o.requests, t.ofNearKeys+o.ofNearKeys
	t.near, t.close = t.near+o.near, t.close+o.close
	for v := range t.wrong {
		t.wrong[v].add(o.wrong[v])
	}
	t.accepted, t.logAccepted = t.accepted+o.accepted, t.logAccepted+o.logAccepted
	t.most = max(t.most, o.most)
	t.aboveKeys, t.missed, t.accused = t.aboveKeys+o.aboveKeys, t.missed+o.missed, t.accused+
		o.accused
	t.mostMissed = max(t.mostMissed, o.mostMissed)
	if worse(o.worst, t.worst) {
		t.worst = o.worst
	}
}

// worse compares the shares wrong given the same past.
func worse(a, b keyResult) bool {
	left, right := a.wrong[samePast].sum()*b.requests, b.wrong[samePast].sum()*a.requests
	if b.requests == 0 || left == right {
		return a.requests > 0 && (b.requests == 0 || a.rank < b.rank)
	}
	return left > right
}

type outcome struct {
	traffic traffic
	// per limit, and per limit and load
	byLimit []tally
	byLoad  [][]tally
	// sum of |estimate − count| ÷ count, in millionths
	difference, requests int64
}

func newOutcome(t traffic) outcome {
	o := outcome{traffic: t, byLimit: make([]tally, len(limits)),
		byLoad: make([][]tally, len(limits))}
	for i := range o.byLoad {
		o.byLoad[i] = make([]tally, len(loadEdges))
	}
	return o
}

func (o *outcome) add(other outcome) {
	for i := range o.byLimit {
		o.byLimit[i].add(other.byLimit[i])
		for part := range o.byLoad[i] {
			o.byLoad[i][part].add(other.byLoad[i][part])
		}
	}
	o.difference, o.requests = o.difference+other.difference, o.requests+other.requests
}

// measure judges a stream under all limits. Keys share no state, so they are played one by one.
func (s stream) measure(t traffic) outcome {
	shares := s.shares()
	outcomes := make([]outcome, runtime.GOMAXPROCS(0))
	var next atomic.Int64
	var group sync.WaitGroup
	for i := range outcomes {
		group.Go(func() {
			o := newOutcome(t)
			var j judge
			var times []int64
			for {
				rank := int(next.Add(1)) - 1
				if rank >= len(shares) {
					break
				}
				times = s.arrivals(times[:0], t, rank, shares[rank])
				j.load(times)
				o.requests += shares[rank]
				o.difference += j.difference()
				for k, limit := range limits {
					r := j.decide(limit, rank)
					o.byLimit[k].addKey(r, limit, s.windows)
					o.byLoad[k][loadOf(r.requests, s.windows, limit)].addKey(r, limit, s.windows)
				}
			}
			outcomes[i] = o
		})
	}
	group.Wait()
	whole := newOutcome(t)
	for _, o := range outcomes {
		whole.add(o)
	}
	return whole
}

// mulDiv is a·b/c rounded down, for non-negative numbers.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}
