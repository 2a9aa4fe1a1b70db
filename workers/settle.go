package workers

import (
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// settled is what a run says of its job's costs, and of what the other side has left.
type settled struct {
	mu    sync.Mutex
	costs map[string]int64
	pause time.Duration
}

// CoolDown says that the other side has nothing left of what it allows, for d. The job's whole
// bucket then starts nothing for so long, or for the policy's max_cooldown if that is less, however
// the attempt ends: one that is done is done. Of several calls the longest counts, and 0 or less
// says nothing. [RetryAfter] is for a job that was refused.
func (j Job) CoolDown(d time.Duration) {
	if j.settled == nil {
		return // made by a test, and not by a drainer
	}
	j.settled.mu.Lock()
	defer j.settled.mu.Unlock()
	j.settled.pause = max(j.settled.pause, d)
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

// tell adds what was settled to how the run ended.
func (s *settled) tell(o *record.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.Used = maps.Clone(s.costs)
	o.RetryAfter = max(o.RetryAfter, s.pause)
}
