package inforce_test

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
)

func TestDefaultsThatFollowTheLimitsFollowTheirPatch(t *testing.T) {
	const fromStart = `"limits":[{"algorithm":"sliding_log","limit":5,"window":"1s"}]`
	const fromAnswer = `"limits":[{"algorithm":"sliding_log","limit":5,"window":"1s",` +
		`"count_from":"answer"}]`
	ms := func(n int) policy.Duration {
		return policy.Duration(time.Duration(n) * time.Millisecond)
	}
	for _, c := range []struct {
		fields, patch    string
		margin, maxDelay policy.Duration
	}{
		{fromStart, fromAnswer, 0, ms(1000)},
		{fromAnswer, fromStart, ms(50), 0},
		{fromStart, `"limits":[{"algorithm":"sliding_log","limit":5,"window":"80ms"}]`, ms(10), 0},
		{fromStart, `"limits":null,"outflow":"5/s"`, 0, 0},
		{`"window_margin":"20ms",` + fromStart, fromAnswer, ms(20), ms(1000)},
		{`"max_delay":"3s",` + fromAnswer, `"max_delay":"4s"`, 0, ms(4000)},
		{`"max_delay":"3s",` + fromAnswer, `"max_delay":null`, 0, ms(1000)},
		{`"max_delay":"3s",` + fromAnswer, `"capacity":7`, 0, ms(3000)},
	} {
		p, err := policy.Read([]byte(`{"name":"p","algorithm":"leaking_bucket","capacity":9,` +
			c.fields + `}`))
		if err != nil {
			t.Fatal(err)
		}
		patched, err := inforce.Patch(p, []byte("{"+c.patch+"}"))
		if err == nil {
			err = policy.Invalid(patched.Validate())
		}
		patched = patched.WithDefaults()
		if err != nil || patched.WindowMargin != c.margin || patched.MaxDelay != c.maxDelay {
			t.Errorf("%s with %s: window_margin %v, max_delay %v, %v", c.fields, c.patch,
				patched.WindowMargin, patched.MaxDelay, err)
		}
	}
}
