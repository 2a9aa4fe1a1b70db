package answer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
)

func spelled(a Answer) string {
	var b strings.Builder
	fmt.Fprintln(&b, a.Status)
	for _, f := range a.Header {
		fmt.Fprintf(&b, "%s: %s\n", f.Name, f.Value)
	}
	return b.String() + string(a.Body)
}

func expect(t *testing.T, a Answer, want string) {
	t.Helper()
	if got := spelled(a); got != strings.TrimSpace(want) {
		t.Errorf("got\n%s\nwant\n%s", got, strings.TrimSpace(want))
	}
}

func TestSubmitted(t *testing.T) {
	quota := admission.Quota{Policy: "stripe", Units: 5000, Window: 52084 * time.Millisecond}
	for _, c := range []struct {
		name    string
		outcome admission.Outcome
		want    string
	}{
		{"allowed",
			admission.Outcome{Verdict: admission.Allowed, Job: "stripe:42", DelayKnown: true,
				Quota:     quota,
				Remaining: -1}, `
202
Content-Type: application/json
X-Ratelimit-Limit: 5000
RateLimit-Policy: "stripe";q=5000;w=53
{"verdict":"allowed","job":"stripe:42","delay_ms":0}`},
		{"queued, nobody can tell for how long",
			admission.Outcome{Verdict: admission.Queued, Job: "stripe:44", Depth: 7, Position: 0,
				Quota: quota, Remaining: -1}, `
202
Content-Type: application/json
X-Ratelimit-Limit: 5000
RateLimit-Policy: "stripe";q=5000;w=53
{"verdict":"queued","job":"stripe:44","position":0,"depth":7}`},
		{"queued",
			admission.Outcome{Verdict: admission.Queued, Job: "stripe:43",
				Delay:      119001 * time.Microsecond,
				DelayKnown: true, Quota: quota, Remaining: -1}, `
202
Content-Type: application/json
X-Ratelimit-Limit: 5000
RateLimit-Policy: "stripe";q=5000;w=53
{"verdict":"queued","job":"stripe:43","delay_ms":120}`},
		{"a repeat",
			admission.Outcome{Verdict: admission.Queued, Job: "stripe:43", Duplicate: true,
				Quota: quota, Remaining: -1}, `
202
Content-Type: application/json
X-Ratelimit-Limit: 5000
RateLimit-Policy: "stripe";q=5000;w=53
Idempotent-Replayed: true
{"verdict":"queued","job":"stripe:43","duplicate":true}`},
		{"queued without a valve, by a door",
			admission.Outcome{Verdict: admission.Queued, Job: "search:1",
				Quota:     admission.Quota{Policy: "search", Units: 100, Window: time.Minute},
				Remaining: 99, ResetAfter: 600 * time.Millisecond}, `
202
Content-Type: application/json
X-Ratelimit-Limit: 100
X-Ratelimit-Remaining: 99
RateLimit-Policy: "search";q=100;w=60
RateLimit: "search";r=99;t=1
{"verdict":"queued","job":"search:1"}`},
		{"rejected",
			admission.Outcome{Verdict: admission.Rejected, Refused: admission.ErrQueueFull,
				Quota: quota, ResetAfter: time.Minute,
				RetryAfter: 20834 * time.Microsecond}, `
429
Content-Type: application/problem+json
X-Ratelimit-Limit: 5000
X-Ratelimit-Remaining: 0
X-Ratelimit-Retry-After: 1
Retry-After: 1
RateLimit-Policy: "stripe";q=5000;w=53
RateLimit: "stripe";r=0;t=1
{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,` +
				`"detail":"come back after the time in Retry-After","reason":"queue-full",` +
				`"violated-policies":["stripe"],` +
				`"verdict":"rejected","retry_after_ms":21}`},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, Submitted(c.outcome), c.want) })
	}
}

func TestChecked(t *testing.T) {
	quota := admission.Quota{Policy: "signup", Units: 10, Window: 24 * time.Hour}
	allowed := admission.Checked{Quota: quota,
		Decision: algorithms.Decision{Allowed: true, Granted: 1, Limit: 10,
			Remaining: 3, ResetAfter: 59001 * time.Millisecond, Delay: 1500 * time.Microsecond}}
	expect(t, Checked(allowed), `
200
Content-Type: application/json
X-Ratelimit-Limit: 10
X-Ratelimit-Remaining: 3
RateLimit-Policy: "signup";q=10;w=86400
RateLimit: "signup";r=3;t=60
{"allowed":true,"limit":10,"remaining":3,"delay_ms":2,"retry_after_ms":0,"reset_after_ms":59001}`)

	refused := admission.Checked{Quota: quota,
		Decision: algorithms.Decision{Limit: 10, Remaining: 2,
			RetryAfter: 61 * time.Second, ResetAfter: 2 * time.Minute}}
	expect(t, Checked(refused), `
429
Content-Type: application/problem+json
X-Ratelimit-Limit: 10
X-Ratelimit-Remaining: 2
X-Ratelimit-Retry-After: 61
Retry-After: 61
RateLimit-Policy: "signup";q=10;w=86400
RateLimit: "signup";r=2;t=61
{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,`+
		`"detail":"come back after the time in Retry-After","violated-policies":["signup"],`+
		`"allowed":false,"limit":10,"remaining":2,"delay_ms":0,"retry_after_ms":61000,"reset_after_ms":120000}`)
}

func TestStructuredFieldsStayWithinTheirIntegers(t *testing.T) {
	c := admission.Checked{Quota: admission.Quota{Policy: "p", Units: 1 << 62, Window: time.Second},
		Decision: algorithms.Decision{Allowed: true, Remaining: 1<<62 - 1}}
	for _, f := range Checked(c).Header {
		if strings.HasPrefix(f.Name, "RateLimit") &&
			!strings.Contains(f.Value, "=999999999999999;") {
			t.Errorf("%s: %s", f.Name, f.Value)
		}
	}
}

func TestErrors(t *testing.T) {
	var log bytes.Buffer
	e := NewErrors(slog.New(slog.NewTextHandler(&log, nil)))
	for _, c := range []struct {
		name   string
		err    error
		want   string
		logged string
	}{
		{"bad request",
			fmt.Errorf("wrapped: %w", &admission.RequestError{Field: "cost", Reason: "is odd"}), `
400
Content-Type: application/problem+json
{"type":"about:blank","title":"Bad Request","status":400,"detail":"cost: is odd",` +
				`"field":"cost","reason":"is odd"}`, ""},
		{"unknown policy", fmt.Errorf("%w: %q", admission.ErrUnknownPolicy, "x"), `
404
Content-Type: application/problem+json
{"type":"about:blank","title":"Not Found","status":404,"detail":"unknown policy: \"x\""}`, ""},
		{"conflict", admission.ErrConflict, `
409
Content-Type: application/problem+json
{"type":"about:blank","title":"Conflict","status":409,"detail":"conflict with the policy"}`, ""},
		{"another payload", fmt.Errorf("%w: give a job of its own key", admission.ErrOtherPayload),
			`
422
Content-Type: application/problem+json
{"type":"about:blank","title":"Unprocessable Entity","status":422,` +
				`"detail":"this Idempotency-Key was used for a job with a different body, method or path: give a job of its own key"}`, ""},
		{"the repeat of a dead job",
			&admission.EndedError{Job: "stripe:42", How: "dead", Letter: 7}, `
409
Content-Type: application/problem+json
{"type":"about:blank","title":"Conflict","status":409,"detail":"the job with this Idempotency-Key, stripe:42, is dead letter 7: ` +
				`replay it, or use another key","job":"stripe:42","ended":"dead","letter":7}`, ""},
		{"the repeat of a cancelled job", &admission.EndedError{Job: "stripe:42", How: "cancelled"},
			`
409
Content-Type: application/problem+json
{"type":"about:blank","title":"Conflict","status":409,"detail":"the job with this Idempotency-Key, stripe:42, was cancelled: ` +
				`use another key","job":"stripe:42","ended":"cancelled"}`, ""},
		{"no drainer", fmt.Errorf("%w for partition 3", admission.ErrNoDrainer), `
503
Content-Type: application/problem+json
Retry-After: 1
{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
			`"title":"Temporarily reduced capacity","status":503,"detail":"no drainer answered for partition 3","reason":"drainer"}`, ""},
		{"a policy that cannot be", invalid, `
400
Content-Type: application/problem+json
{"type":"about:blank","title":"Bad Request","status":400,"detail":"retry: is odd; as a whole",` +
			`"field":"retry","reason":"is odd","problems":[{"field":"retry","reason":"is odd"},{"reason":"as a whole"}]}`, ""},
		{"a change that cannot be", fmt.Errorf("%w: %w", admission.ErrConflict, invalid), `
409
Content-Type: application/problem+json
{"type":"about:blank","title":"Conflict","status":409,"detail":"retry: is odd; as a whole",` +
			`"field":"retry","reason":"is odd","problems":[{"field":"retry","reason":"is odd"},{"reason":"as a whole"}]}`, ""},
		{"too large", admission.ErrTooLarge, `
413
Content-Type: application/problem+json
{"type":"about:blank","title":"Request Entity Too Large","status":413,"detail":"too large"}`, ""},
		{"unavailable", fmt.Errorf("%w: secret host", admission.ErrUnavailable), `
503
Content-Type: application/problem+json
Retry-After: 1
{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
			`"title":"Temporarily reduced capacity","status":503,"detail":"temporarily unavailable","reason":"nats"}`, "reason=nats"},
		{"unavailable again", fmt.Errorf("%w: secret host", admission.ErrUnavailable), `
503
Content-Type: application/problem+json
Retry-After: 1
{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
			`"title":"Temporarily reduced capacity","status":503,"detail":"temporarily unavailable","reason":"nats"}`, ""},
		{"no room", fmt.Errorf("%w: %w", admission.ErrUnavailable, jet.ErrStorage), `
507
Content-Type: application/problem+json
Retry-After: 1
{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
			`"title":"Temporarily reduced capacity","status":507,"detail":"unavailable: no room in JetStream's store","reason":"storage"}`, "reason=storage"},
		{"store", fmt.Errorf("%w: %w", admission.ErrUnavailable, admit.ErrStore), `
503
Content-Type: application/problem+json
Retry-After: 1
{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
			`"title":"Temporarily reduced capacity","status":503,"detail":"temporarily unavailable","reason":"store"}`, ""},
		{"busy", admit.NewBudget(0).Reserve(admit.Client{}, 1), `
503
Content-Type: application/problem+json
Retry-After: 1
{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
			`"title":"Temporarily reduced capacity","status":503,"detail":"temporarily unavailable","reason":"busy"}`, "reason=busy"},
		{"starting", notStarted(), `
503
Content-Type: application/problem+json
Retry-After: 1
{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
			`"title":"Temporarily reduced capacity","status":503,"detail":"temporarily unavailable","reason":"starting"}`, "reason=starting"},
		{"gone client", context.Canceled, `
503
Content-Type: application/problem+json
Retry-After: 1
{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
			`"title":"Temporarily reduced capacity","status":503,"reason":"stopping"}`, ""},
		{"gone publisher", fmt.Errorf("%w: %w", admission.ErrUnavailable, context.Canceled), `
503
Content-Type: application/problem+json
Retry-After: 1
{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
			`"title":"Temporarily reduced capacity","status":503,"detail":"temporarily unavailable","reason":"stopping"}`, ""},
		{"anything else", errors.New("a secret"), `
500
Content-Type: application/problem+json
{"type":"about:blank","title":"Internal Server Error","status":500}`, "a secret"},
	} {
		t.Run(c.name, func(t *testing.T) {
			log.Reset()
			expect(t, e.Answer(c.err), c.want)
			if got := log.String(); c.logged == "" && got != "" ||
				!strings.Contains(got, c.logged) {
				t.Errorf("logged %q, want %q", got, c.logged)
			}
		})
	}
}

func notStarted() error {
	_, err := admit.New(jet.Names{}, nil, nil, nil,
		admit.Options{}).Check(context.Background(),
		admit.CheckRequest{Policy: "p", Cost: 1})
	return err
}

var invalid = policy.Invalid([]policy.Problem{{Field: "retry", Reason: "is odd"},
	{Reason: "as a whole"}})

func TestBodiesAreJSON(t *testing.T) {
	for _, a := range []Answer{
		Submitted(admission.Outcome{Verdict: admission.Rejected, RetryAfter: time.Second,
			Refused: admission.ErrRateLimited}),
		Checked(admission.Checked{}),
		Problem(405, "no", Field{"Allow", "GET"}),
	} {
		var body map[string]any
		if err := json.Unmarshal(a.Body, &body); err != nil || body["status"] != float64(a.Status) {
			t.Errorf("%s: %v", a.Body, err)
		}
	}
}
