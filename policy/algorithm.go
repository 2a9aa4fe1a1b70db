package policy

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// Algorithm names one of the five rate-limiting algorithms.
type Algorithm string

// The five algorithms.
const (
	TokenBucket    Algorithm = "token_bucket"
	LeakingBucket  Algorithm = "leaking_bucket"
	FixedWindow    Algorithm = "fixed_window"
	SlidingLog     Algorithm = "sliding_log"
	SlidingCounter Algorithm = "sliding_counter"
)

// algorithm is what an [Algorithm] stands for. To add one, add its row, its rule and state in a
// file of package algorithms, and its stores: in package limiter, and in redisstore its script.
type algorithm struct {
	name Algorithm
	// demands and allows are its fields in documents, without its queue's.
	demands, allows []string
	largest         int64 // limit
	// most returns the largest cost of a start.
	most func(Rule) int64
	// complete sets defaults; ofSeveral is for one of a policy's limits.
	complete func(r *Rule, ofSeveral bool)
	// rule returns the rule of a limit at the door.
	rule func(Rule) algorithms.Parametrized
	// paced changes the numbers for a limit on starts, whose work waits in a queue.
	paced func(*Rule)
}

var allAlgorithms = []algorithm{{
	name: TokenBucket, demands: []string{"capacity", "refill"},
	most: func(r Rule) int64 { return r.Capacity },
	rule: func(r Rule) algorithms.Parametrized {
		return algorithms.TokenBucket{Capacity: r.Capacity, Refill: r.Refill}
	},
}, {
	name: LeakingBucket, demands: []string{"outflow", "capacity"},
	allows:   []string{"outflow_total", "peak", "peak_total", "burst"},
	most:     func(r Rule) int64 { return max(r.Burst, 1) },
	complete: func(r *Rule, _ bool) { r.Burst = cmp.Or(r.Burst, 1) },
	rule: func(r Rule) algorithms.Parametrized {
		return algorithms.LeakingBucket{Capacity: r.Capacity, Outflow: r.Outflow, Burst: r.Burst}
	},
	paced: func(r *Rule) { r.Burst = max(r.Burst, 1); r.Capacity = r.Burst },
}, {
	name: FixedWindow, demands: []string{"limit", "window"}, allows: []string{"zone"},
	most: limitOf,
	rule: func(r Rule) algorithms.Parametrized { return r.Fixed() },
}, {
	name: SlidingLog, demands: []string{"limit", "window"}, allows: []string{"count"},
	largest: MaxLogLimit, most: limitOf,
	complete: func(r *Rule, ofSeveral bool) {
		if r.Count == "" {
			r.Count = CountAll
			if ofSeveral {
				r.Count = CountAccepted
			}
		}
	},
	rule: func(r Rule) algorithms.Parametrized {
		return algorithms.SlidingLog{Limit: r.Limit, Window: time.Duration(r.Window),
			CountAccepted: r.Count == CountAccepted}
	},
	paced: func(r *Rule) { r.Count = CountAccepted },
}, {
	name: SlidingCounter, demands: []string{"limit", "window"},
	most: limitOf,
	rule: func(r Rule) algorithms.Parametrized {
		return algorithms.SlidingCounter{Limit: r.Limit, Window: time.Duration(r.Window)}
	},
}}

func limitOf(r Rule) int64 { return r.Limit }

// Algorithms returns the names of all algorithms.
func Algorithms() (names []Algorithm) {
	for _, a := range allAlgorithms {
		names = append(names, a.name)
	}
	return names
}

// known returns the row of an algorithm, or nil.
func (a Algorithm) known() *algorithm {
	i := slices.IndexFunc(allAlgorithms, func(row algorithm) bool { return row.name == a })
	if i < 0 {
		return nil
	}
	return &allAlgorithms[i]
}

// AtDoor returns the rule that decides at the door; nil if the algorithm is not known.
func (r Rule) AtDoor() algorithms.Parametrized {
	if a := r.Algorithm.known(); a != nil {
		return a.rule(r)
	}
	return nil
}

// OnStarts returns the rule of a limit on starts; nil if the algorithm is not known. That of a
// leaking bucket is its way out, since its contents wait in the queue.
func (r Rule) OnStarts() algorithms.Parametrized {
	a := r.Algorithm.known()
	if a == nil {
		return nil
	}
	if a.paced != nil {
		a.paced(&r)
	}
	return a.rule(r)
}

func (r Rule) withDefaults(ofSeveral bool) Rule {
	if a := r.Algorithm.known(); a != nil && a.complete != nil {
		a.complete(&r, ofSeveral)
	}
	return r
}
