package penstock_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/permits"
	"github.com/penstock-mq/penstock/policy"
)

func TestCallsStartAtTheRateOfTheirBucket(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("api", 50, 100)}})
	run(t, p)
	var first, last time.Time
	const calls = 20
	for i := range calls {
		permit, err := p.Acquire(t.Context(), penstock.Call{Policy: "api", Key: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if last = time.Now(); i == 0 {
			first = last
		}
		permit.Settle(permits.Result{Status: permits.Done})
	}
	const rate = 20 * time.Millisecond
	if took := last.Sub(first); took < (calls-2)*rate {
		t.Errorf("%d calls began within %v", calls, took)
	}
}

func TestACallThatWouldStartTooLateIsRefusedAtOnce(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("api", 1, 100)}})
	run(t, p)
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if _, err := p.Acquire(ctx, penstock.Call{Policy: "api", Key: "a"}); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	_, err := p.Acquire(t.Context(),
		penstock.Call{Policy: "api", Key: "a", Wait: 100 * time.Millisecond})
	refused, ok := errors.AsType[*penstock.RefusedError](err)
	if !ok || !errors.Is(err, penstock.ErrTooLate) || refused.RetryAfter < 100*time.Millisecond {
		t.Errorf("%v", err)
	}
	if _, err := p.Acquire(t.Context(), penstock.Call{Policy: "none", Key: "a"}); !errors.Is(err,
		penstock.ErrUnknownPolicy) {
		t.Errorf("an unknown policy: %v", err)
	}
	eventually(t, "the refused call is counted", func() bool {
		_, stats := ask(t, p, "GET", "/v1/stats", "")
		return strings.Contains(stats, `"refused":1,`)
	})
}

func TestACallThatALimitNeverLetsPassIsAnError(t *testing.T) {
	api := paced("api", 50, 100)
	api.Limits = []policy.Limit{{Name: "tokens", Cost: "tokens", Rule: policy.Rule{
		Algorithm: policy.SlidingLog, Limit: 100, Window: policy.Duration(time.Minute)}}}
	p := open(t, penstock.Options{Policies: []policy.Policy{api}})
	run(t, p)
	_, err := p.Acquire(t.Context(), penstock.Call{Policy: "api", Key: "a",
		Costs: map[string]int64{"tokens": 101}})
	if bad, ok := errors.AsType[*admission.RequestError](err); !ok {
		t.Errorf("%v, want a %T", err, bad)
	}
}

// Its target requested a pause while it waited.
func TestACallThatWaitedInVainIsRefused(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("api", 1, 100)}})
	run(t, p)
	call := penstock.Call{Policy: "api", Key: "a", Wait: 3 * time.Second}
	first, err := p.Acquire(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := p.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	asked, err := nc.SubscribeSync("penstock.>")
	if err != nil || nc.Flush() != nil {
		t.Fatal(err, nc.LastError())
	}
	second := make(chan error)
	go func() {
		_, err := p.Acquire(t.Context(), call)
		second <- err
	}()
	for { // the second question comes before the first settlement
		m, err := asked.NextMsgWithContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(m.Data, []byte(`"op":"claim"`)) {
			break
		}
	}
	first.Settle(permits.Result{Status: permits.Throttled, RetryAfter: time.Hour})
	refused, ok := errors.AsType[*penstock.RefusedError](<-second)
	if !ok || !errors.Is(refused, penstock.ErrTooLate) || refused.RetryAfter < 30*time.Minute {
		t.Errorf("%v", refused)
	}
}
