package workers

import (
	"maps"
	"strings"
	"sync"

	"github.com/penstock-mq/penstock/policy"
)

// settled is what a run says of its job's costs.
type settled struct {
	mu    sync.Mutex
	costs map[string]int64
}

// Settle says what the job turned out to cost, of the limits that count a cost of this name; the
// last word before the handler returns counts, however the attempt ends. What was estimated too
// high is given back to those limits. What was too low is taken, also beyond a limit, so that the
// next job waits for it. Without it the estimate stands: the job's Penstock-Cost-<Name>, or else
// its Penstock-Cost.
func (j Job) Settle(cost string, used int64) {
	if j.settled == nil {
		return // made by a test, and not by a drainer
	}
	j.settled.mu.Lock()
	defer j.settled.mu.Unlock()
	name := strings.ToLower(cost)
	if _, known := j.settled.costs[name]; !known && len(j.settled.costs) == policy.MaxLimits {
		return // no policy counts more
	}
	if j.settled.costs == nil {
		j.settled.costs = map[string]int64{}
	}
	j.settled.costs[name] = min(max(used, 0), policy.MaxLimit)
}

// used returns what was settled; nil: nothing.
func (j Job) used() map[string]int64 {
	j.settled.mu.Lock()
	defer j.settled.mu.Unlock()
	return maps.Clone(j.settled.costs)
}
