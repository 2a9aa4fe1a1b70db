package penstock_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers"
)

// TestATargetThatHasNothingLeftPausesItsBucket: the job that heard so is done, the next one waits,
// and neither has failed.
func TestATargetThatHasNothingLeftPausesItsBucket(t *testing.T) {
	var calls atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("X-RateLimit-Remaining", "0")
		w.Header().Set("X-RateLimit-Reset", "3600")
	}))
	defer target.Close()
	pay := paced("pay", 1000, 10)
	pay.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: target.URL}}
	hints, outcomes := make(chan time.Duration, 10), make(chan string, 10)
	p := open(t, penstock.Options{Policies: []policy.Policy{pay},
		AllowTargets: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Observer: penstock.Observer{Drain: workers.Observer{
			Hinted:   func(_ string, pause time.Duration) { hints <- pause },
			Finished: func(_, outcome string) { outcomes <- outcome },
		}}})
	run(t, p)

	var first struct {
		End      job.End
		Attempts int
	}
	status, body := ask(t, p, "POST", "/v1/jobs/pay/a?wait=1m", "")
	if err := json.Unmarshal([]byte(body), &first); err != nil || status != 200 ||
		first.End != job.EndDone || first.Attempts != 0 {
		t.Fatalf("%d %s, %v", status, body, err)
	}
	if pause, outcome := receive(t, hints), receive(t, outcomes); pause < 50*time.Minute ||
		pause > time.Hour || outcome != "done" {
		t.Errorf("it is %s, with a pause of %v", outcome, pause)
	}
	if status, body := ask(t, p, "POST", "/v1/jobs/pay/a", ""); status != 202 {
		t.Fatalf("%d %s", status, body)
	}
	for _, path := range []string{"/v1/buckets/pay/a", "/v1/jobs/pay:2"} {
		var state struct {
			HeldBy   string `json:"held_by"`
			Attempts int
		}
		eventually(t, path+" shows the pause", func() bool {
			status, body := ask(t, p, "GET", path, "")
			if status == 200 {
				if err := json.Unmarshal([]byte(body), &state); err != nil {
					t.Fatalf("%s: %v", body, err)
				}
			}
			return state.HeldBy == job.HeldByCooling
		})
		if state.Attempts != 0 {
			t.Errorf("%s: %d attempts", path, state.Attempts)
		}
	}
	if n := calls.Load(); n != 1 || len(hints) != 0 || len(outcomes) != 0 {
		t.Errorf("the target was called %d times", n)
	}
}
