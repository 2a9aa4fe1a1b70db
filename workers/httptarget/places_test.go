package httptarget_test

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/overlaptest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/workerstest"
)

// Jobs time out before the answer and in it. The target says whether it worked on one at a time.
func TestAJobThatTimesOutEndsWhenTheTargetHasEndedIt(t *testing.T) {
	const jobs = 60
	target := &overlaptest.Target{After: time.Millisecond}
	p := workerstest.Policy("api", "1000/s")
	p.Concurrency, p.Timeout = 1, policy.Duration(5*time.Millisecond)
	p.Retry.MaxAttempts, p.Retry.Backoff = 1, policy.Duration(time.Millisecond)
	p.Retry.MaxBackoff = p.Retry.Backoff
	kit := workerstest.New(t, p)
	kit.Handle("api", handlerOf(t, policy.HTTPTarget{}, target.ServeHTTP))
	kit.Publish("api", "a", nil, jobs)
	for ended, n := 0, 1; ended < jobs; n++ {
		switch kit.Wait("api", n)[n-1].Type {
		case queue.EventDone, queue.EventDead:
			ended++
		}
	}
	target.Check(t)
}
