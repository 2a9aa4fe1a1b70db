package httptarget_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/httptarget"
	"github.com/penstock-mq/penstock/workers/workerstest"
)

const limit, window, jobs = 20, time.Second, 60

// slow is a network that delivers every other set of requests late.
type slow struct {
	http.RoundTripper
	n atomic.Int64
}

func (s *slow) RoundTrip(r *http.Request) (*http.Response, error) {
	if (s.n.Add(1)-1)/limit%2 == 0 {
		<-time.After(window * 9 / 10)
	}
	return s.RoundTripper.RoundTrip(r)
}

// Requests are late, and some get no answer. By the target's clock no window holds
// more than the limit if it counts from the answer, and some do if it counts from the start.
func TestNoWindowAtTheTargetHoldsMoreThanTheLimit(t *testing.T) {
	for from, over := range map[policy.CountFrom]bool{policy.CountFromAnswer: false,
		policy.CountFromStart: true} {
		t.Run(string(from), func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var arrived []time.Time
			target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
				_ *http.Request) {
				mu.Lock()
				arrived = append(arrived, time.Now())
				n := len(arrived)
				mu.Unlock()
				switch {
				case n%10 == 0:
					panic(http.ErrAbortHandler)
				case n%10 == 5:
					w.WriteHeader(http.StatusGatewayTimeout)
				}
			}))
			defer target.Close()
			p := workerstest.Policy("api", "1000/s")
			p.Workers, p.Burst = 100, 100
			p.Retry.MaxAttempts = 1
			p.Limits = policy.Limits{{Name: "arrivals", CountFrom: from, Rule: policy.Rule{
				Algorithm: policy.SlidingLog, Limit: limit, Window: policy.Duration(window)}}}
			kit := workerstest.New(t, p)
			client := httptarget.Client()
			client.Transport = &slow{RoundTripper: client.Transport}
			p = p.WithDefaults()
			p.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: target.URL}}
			handle, err := httptarget.New(httptarget.Options{Client: client})(
				inforce.Entry{Policy: p})
			if err != nil {
				t.Fatal(err)
			}
			kit.Handle("api", handle)
			kit.Publish("api", "a", nil, jobs)
			for _, e := range kit.Wait("api", jobs) {
				if e.Type != queue.EventDone && e.Type != queue.EventDead {
					t.Errorf("%+v", e)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			worst := 0
			for i, at := range arrived {
				n := 0
				for ; i+n < len(arrived) && arrived[i+n].Before(at.Add(window)); n++ {
				}
				worst = max(worst, n)
			}
			t.Logf("%d arrivals in %v, at most %d in a window", len(arrived),
				arrived[len(arrived)-1].Sub(arrived[0]), worst)
			if worst > limit != over {
				t.Errorf("%d of %d arrived in a window", worst, limit)
			}
		})
	}
}
