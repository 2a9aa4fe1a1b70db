package workers_test

import (
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/workerstest"
)

func TestALimitInShadowHoldsNothingBack(t *testing.T) {
	p := workerstest.Policy("mail", "200/s")
	p.Limits = policy.Limits{{Name: "slow", Shadow: true, Rule: policy.Rule{
		Algorithm: policy.TokenBucket, Capacity: 10,
		Refill: algorithms.Rate{Count: 1, Per: time.Minute}}}}
	kit := workerstest.New(t, p)
	kit.Handle("mail", nil)
	var mu sync.Mutex
	over, longest := 0, int64(0)
	stop, err := kit.Broker().Events().Listen("mail", ">", func(_ string, e queue.Event) {
		if by := e.Shadow["slow"]; e.Type == queue.EventStarted && by > 0 {
			mu.Lock()
			defer mu.Unlock()
			over, longest = over+1, max(longest, by)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	kit.Publish("mail", "k", nil, 100)
	kit.Wait("mail", 100)
	waittest.Until(t, "all would-be delays are told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return over >= 90 && longest > 80*60_000
	})
}
