package admission

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

func TestAnOutcomePrintsAsASentence(t *testing.T) {
	for want, o := range map[string]Outcome{
		"job api:1 starts now":          {Verdict: Allowed, Job: "api:1", DelayKnown: true},
		"job api:2 waits for its turn":  {Verdict: Queued, Job: "api:2", Depth: 3},
		"job api:3 was accepted before": {Verdict: Queued, Job: "api:3", Duplicate: true},
		"job api:4 starts in 492ms, number 2 of its queue": {Verdict: Queued, Job: "api:4",
			Delay: 492100 * time.Microsecond, DelayKnown: true, Position: 1, Depth: 2},
		"job api:5 starts in 1m0s": {Verdict: Queued, Job: "api:5", Delay: time.Minute,
			DelayKnown: true},
		"job api:6 is done": {Verdict: Allowed, Job: "api:6",
			Result: &queue.Result{End: queue.EndDone}},
		"job api:7 is dead: 422: no": {Verdict: Allowed, Job: "api:7",
			Result: &queue.Result{End: queue.EndDead, Error: "422: no"}},
		"policy api: the queue is full: retry after 2s": {Verdict: Rejected, Refused: ErrQueueFull,
			RetryAfter: 2 * time.Second, Quota: Quota{Policy: "api/tokens"}},
		"no job was submitted": {},
	} {
		if got := fmt.Sprint(o); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
