package natstarget_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/base/hints"
	"github.com/penstock-mq/penstock/internal/kit/answertest"
	"github.com/penstock-mq/penstock/internal/kit/brokertest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
	"github.com/penstock-mq/penstock/workers/natstarget"
	"github.com/penstock-mq/penstock/workers/workerstest"
)

func connect(t *testing.T) *nats.Conn {
	t.Helper()
	_, nc := brokertest.Start(t, embedded.Options{})
	return nc
}

func target(t *testing.T, nc *nats.Conn, subject string) workers.Handler {
	t.Helper()
	handle, err := natstarget.New(nc, "penstock")(inforce.Entry{Policy: policy.Policy{
		Target: &policy.Target{NATS: &policy.NATSTarget{Subject: subject}}}})
	if err != nil || handle == nil {
		t.Fatal(handle == nil, err)
	}
	return handle
}

func respond(t *testing.T, nc *nats.Conn, subject string,
	answer func(m *nats.Msg)) *nats.Subscription {
	t.Helper()
	sub, err := nc.Subscribe(subject, answer)
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

func TestOtherTargetsAreIgnored(t *testing.T) {
	for _, p := range []policy.Policy{{},
		{Target: &policy.Target{HTTP: &policy.HTTPTarget{URL: "http://a"}}}} {
		if handle, err := natstarget.New(nil, "penstock")(
			inforce.Entry{Policy: p}); handle != nil ||
			err != nil {
			t.Errorf("%+v: a handler: %v, %v", p.Target, handle != nil, err)
		}
	}
}

func TestRequest(t *testing.T) {
	nc := connect(t)
	got := make(chan *nats.Msg, 1)
	respond(t, nc, "svc", func(m *nats.Msg) {
		got <- m
		_ = m.Respond(nil)
	})
	err := target(t, nc, "svc")(t.Context(), workers.Job{
		ID: "api:7", IdempotencyKey: "x", Policy: "api", Key: "a.b", Body: []byte("body"),
		Attempt:  3,
		Accepted: time.Unix(5, 9),
		Header: nats.Header{
			"penstock-forward-X-Tenant": {"t1", "t2"}, "traceparent": {"00-1"},
			"content-type": {"text/plain"}, "Own": {"secret"},
			"Penstock-Path": {"/p"}, "Penstock-Job": {"fake"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	m := <-got
	want := nats.Header{
		"X-Tenant": {"t1", "t2"}, "Traceparent": {"00-1"}, "Content-Type": {"text/plain"},
		"Penstock-Job":    {"api:7"},
		"Penstock-Policy": {"api"}, "Penstock-Key": {"a.b"}, "Penstock-Attempt": {"3"},
		"Idempotency-Key": {"x"},
		"Nats-Msg-Id":     {"%!job/api/a.b x"},
	}
	if string(m.Data) != "body" ||
		!maps.EqualFunc(m.Header, want, func(a, b []string) bool {
			return fmt.Sprint(a) == fmt.Sprint(b)
		}) {
		t.Errorf("request %q %v, want %v", m.Data, m.Header, want)
	}
}

func kind(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, context.DeadlineExceeded) && workers.IsUnavailable(err):
		return "timeout"
	}
	pause, throttled := workers.IsRetryAfter(err)
	wait, snoozed := workers.IsAgain(err)
	switch {
	case snoozed:
		return "again in " + wait.Round(time.Second).String()
	case throttled:
		return "after " + pause.String()
	case workers.IsPermanent(err):
		return "permanent"
	case workers.IsUnavailable(err):
		return "unavailable"
	}
	return "failed"
}

func TestReplies(t *testing.T) {
	nc := connect(t)
	reply := nats.NewMsg("")
	respond(t, nc, "svc", func(m *nats.Msg) { _ = m.RespondMsg(reply) })
	failure := func(code string, more ...string) nats.Header {
		h := nats.Header{"Nats-Service-Error-Code": {code}, "Nats-Service-Error": {"no"}}
		for i := 0; i < len(more); i += 2 {
			h[more[i]] = []string{more[i+1]}
		}
		return h
	}
	for _, test := range []struct {
		header nats.Header
		want   string
	}{
		{nil, "done"},
		{nats.Header{"Other": {"1"}}, "done"},
		{failure("429"), "after 0s"},
		{failure("429", "Retry-After", "2"), "after 2s"},
		{failure("429", "retry-after", "0.25"), "after 250ms"},
		{failure("429", "Retry-After", "-1"), "after 0s"},
		{failure("429", "Retry-After", "99999999999"), "after " + hints.Longest.String()},
		{failure("429", "Retry-After", "NaN"), "after 0s"},
		{failure("503"), "unavailable"},
		{failure("503", "Retry-After", "3"), "after 3s"},
		{failure("500"), "unavailable"},
		{failure("408"), "failed"},
		{failure("400"), "permanent"},
		{failure("404"), "permanent"},
		{failure("oops"), "failed"},
		{nats.Header{"Nats-Service-Error": {"no code"}}, "failed"},
		{nats.Header{"nats-service-error-code": {"422"}}, "permanent"},
		{nats.Header{"Penstock-Again": {"10m"}}, "again in 10m0s"},
		{failure("404", "penstock-again", "90s"), "again in 1m30s"},
	} {
		reply = nats.NewMsg("")
		reply.Header, reply.Data = test.header, []byte("it\nhurts")
		err := target(t, nc, "svc")(t.Context(), workers.Job{})
		if got := kind(err); got != test.want {
			t.Errorf("%v: %s (%v), want %s", test.header, got, err, test.want)
		}
		if snoozed := strings.HasPrefix(test.want, "again"); err != nil && !snoozed &&
			!strings.HasSuffix(err.Error(), "it hurts") {
			t.Errorf("%v: error %q does not quote the service", test.header, err)
		}
	}
}

func TestNoReply(t *testing.T) {
	nc := connect(t)
	if got := kind(target(t, nc, "nobody")(t.Context(), workers.Job{})); got != "after 1s" {
		t.Errorf("nobody listens: %s", got)
	}
	respond(t, nc, "silent", func(*nats.Msg) {})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if got := kind(target(t, nc, "silent")(ctx, workers.Job{})); got != "timeout" {
		t.Errorf("no reply: %s", got)
	}
	large := make([]byte, nc.MaxPayload()+1)
	if got := kind(target(t, nc, "silent")(t.Context(), workers.Job{Body: large})); got !=
		"permanent" {
		t.Errorf("payload too large: %s", got)
	}
}

func TestRefusedByAStream(t *testing.T) {
	nc := connect(t)
	broker := brokertest.Open(t, nc, policy.Policy{
		Name: "next",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Outflow: algorithms.Rate{Count: 1,
			Per: time.Hour}, Capacity: 2},
	})
	next := target(t, nc, broker.Names().Jobs("next", "k"))
	attempt := func(id string, more ...string) string {
		job := workers.Job{ID: id, IdempotencyKey: id, Body: []byte("x"),
			Header: nats.Header{"Penstock-Forward-X-A": {"3"}}}
		for i := 0; i < len(more); i += 2 {
			job.Header[more[i]] = []string{more[i+1]}
		}
		return kind(next(t.Context(), job))
	}
	for _, step := range []struct{ what, got, want string }{
		{"the first", attempt("a:1"), "done"},
		{"the first again, whose answer was lost", attempt("a:1"), "done"},
		{"one that commands the stream",
			attempt("a:2", "Penstock-Forward-Nats-Expected-Last-Sequence", "99"), "permanent"},
		{"the second", attempt("a:2"), "done"},
		{"one for a full bucket", attempt("a:3"), "after 1s"},
		{"the same again", attempt("a:3"), "after 1s"},
	} {
		if step.got != step.want {
			t.Errorf("%s: %s, want %s", step.what, step.got, step.want)
		}
	}
	large := make([]byte, nc.MaxPayload()-4096)
	if got := kind(next(t.Context(), workers.Job{ID: "a:4", Body: large})); got != "permanent" {
		t.Errorf("one that is too large: %s", got)
	}
	if n, err := broker.Depth(t.Context(), "next"); n != 2 || err != nil {
		t.Errorf("%d jobs are stored, %v; want 2", n, err)
	}
}

// Jobs of a fast policy become jobs of a slow one with a small queue; no job is lost, and no
// attempt counts.
func TestChain(t *testing.T) {
	nc := connect(t)
	perSecond := func(n int64) algorithms.Rate {
		return algorithms.Rate{Count: n, Per: time.Second}
	}
	broker := brokertest.Open(t, nc,
		policy.Policy{Name: "last",
			Rule: policy.Rule{Algorithm: policy.LeakingBucket, Outflow: perSecond(20),
				Capacity: 3},
			Partitions: 1},
		policy.Policy{
			Name: "first",
			Rule: policy.Rule{Algorithm: policy.LeakingBucket, Outflow: perSecond(1000),
				Capacity: 100},
			Partitions: 1,
			Target:     &policy.Target{NATS: &policy.NATSTarget{Subject: "penstock.jobs.last.k"}},
			Retry:      policy.Retry{MaxAttempts: 1},
		})
	drainer, err := workers.New(nc,
		workers.Options{Lease: time.Second, Target: natstarget.New(nc, "penstock")})
	if err != nil {
		t.Fatal(err)
	}
	var ran atomic.Int64
	drainer.Handle("last", func(context.Context, workers.Job) error {
		ran.Add(1)
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- drainer.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	const jobs = 10
	for range jobs {
		if _, err := nc.Request("penstock.jobs.first.a", []byte("x"),
			waittest.Patience()); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "all have run", func() bool { return ran.Load() == jobs })
	if letters, err := broker.Letters("first").List(t.Context(), 0, 10); len(letters) > 0 ||
		err != nil {
		t.Errorf("dead letters: %v, %v", letters, err)
	}
}

func TestService(t *testing.T) {
	nc := connect(t)
	broker := brokertest.Open(t, nc, policy.Policy{
		Name: "bills",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Outflow: algorithms.Rate{Count: 100,
			Per: time.Second}, Capacity: 10},
		Target: &policy.Target{NATS: &policy.NATSTarget{Subject: "billing.charge"}},
		Retry:  policy.Retry{MaxAttempts: 2, Backoff: policy.Duration(time.Millisecond)},
	})
	if _, err := nc.Request("penstock.jobs.bills.a", []byte("12"),
		waittest.Patience()); err != nil {
		t.Fatal(err)
	}

	var throttled atomic.Int64
	drainer, err := workers.New(nc, workers.Options{
		Lease: time.Second,
		Target: func(entry inforce.Entry) (workers.Handler, error) {
			handle, err := natstarget.New(nc, "penstock")(entry)
			return func(ctx context.Context, job workers.Job) error {
				err := handle(ctx, job)
				if strings.HasPrefix(kind(err), "after") {
					throttled.Add(1)
				}
				return err
			}, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- drainer.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	until(t, "the absent service is noticed", func() bool { return throttled.Load() > 1 })

	attempts := make(chan string, 10)
	service, err := micro.AddService(nc, micro.Config{Name: "billing", Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = service.Stop() }()
	if err := service.AddEndpoint("charge", micro.HandlerFunc(func(r micro.Request) {
		attempt := r.Headers().Get("Penstock-Attempt")
		attempts <- attempt
		if attempt == "1" {
			_ = r.Error("500", "not today", nil)
		} else {
			_ = r.Respond(nil)
		}
	}), micro.WithEndpointSubject("billing.charge")); err != nil {
		t.Fatal(err)
	}
	until(t, "the queue is empty", func() bool {
		n, err := broker.Depth(t.Context(), "bills")
		return err == nil && n == 0
	})
	if first, second := <-attempts, <-attempts; first != "1" || second != "2" || len(attempts) > 0 {
		t.Errorf("attempts %s, %s and %d more", first, second, len(attempts))
	}
}

var until = waittest.Until

// A job's outcome says whether a service has replied, or nobody got the request.
func TestOutcomesSayWhetherTheServiceHasReplied(t *testing.T) {
	_, nc := brokertest.Start(t, embedded.Options{})
	respond(t, nc, "fine", func(m *nats.Msg) { _ = m.Respond(nil) })
	respond(t, nc, "fails", func(m *nats.Msg) {
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{micro.ErrorCodeHeader: {"503"},
			micro.ErrorHeader: {"down"}}})
	})
	respond(t, nc, "silent", func(*nats.Msg) {})
	want := map[string]string{"fine": "", "fails": "", "silent": "none", "nobody": "unsent"}
	var policies []policy.Policy
	for name := range want {
		p := workerstest.Policy(name, "1000/s")
		p.Target = &policy.Target{NATS: &policy.NATSTarget{Subject: name}}
		p.Timeout = policy.Duration(500 * time.Millisecond)
		policies = append(policies, p)
	}
	if got := answertest.Run(t, natstarget.New(nc, "penstock"), policies...); !maps.Equal(got,
		want) {
		t.Errorf("answers %v, want %v", got, want)
	}
}
