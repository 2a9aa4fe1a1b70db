package admit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
)

func TestSubmitVerdicts(t *testing.T) {
	unknown := func(int, job.Question) (job.Answer, error) {
		return job.Answer{Starts: []job.ExpectedStart{{Seq: 1}}}, nil
	}
	held := func(int, job.Question) (job.Answer, error) {
		return job.Answer{Starts: []job.ExpectedStart{{Seq: 1, Position: 2, Depth: 4}}}, nil
	}
	for _, c := range []struct {
		name    string
		answer  func(int, job.Question) (job.Answer, error)
		verdict admission.Verdict
		delay   time.Duration
		known   bool
	}{
		{"started or due", startsIn(0), admission.Allowed, 0, true},
		{"later", startsIn(120), admission.Queued, 120 * time.Millisecond, true},
		{"in the past", startsIn(-5), admission.Allowed, 0, true},
		{"the valve has not seen it", unknown, admission.Queued, 0, false},
		{"nobody can tell", held, admission.Queued, 0, false},
		{"no drainer", nil, admission.Queued, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newTestService(t, &fakeQueue{capacity: 3}, &fakeValves{answer: c.answer}, stripe)
			o := submit(t, s, "stripe")
			if o.Verdict != c.verdict || o.Delay != c.delay || o.DelayKnown != c.known ||
				o.Job != "stripe:1" {
				t.Errorf("got %+v", o)
			}
			if c.name == "nobody can tell" && (o.Position != 2 || o.Depth != 4) {
				t.Errorf("got %+v, want its place in line", o)
			}
			if o.Remaining != -1 || o.Quota != (admission.Quota{Policy: "stripe", Units: 3,
				Window: 300 * time.Millisecond}) {
				t.Errorf("remaining %d, quota %+v", o.Remaining, o.Quota)
			}
		})
	}
}

func TestSubmitToAFullPolicy(t *testing.T) {
	for name, c := range map[string]struct {
		why   error
		units int64
	}{"stripe/max_bytes": {jet.ErrStreamFull, 0},
		"stripe/max_jobs": {jet.ErrMostJobs, policy.DefaultJobs}} {
		s := newTestService(t, &fakeQueue{capacity: 3, fail: c.why}, &fakeValves{}, stripe)
		o, err := s.Submit(t.Context(), request("stripe"))
		if err != nil || o.Verdict != admission.Rejected || o.RetryAfter <= 0 ||
			o.Quota.Policy != name ||
			o.Quota.Units != c.units {
			t.Errorf("%s: got %+v, %v", name, o, err)
		}
	}
}

func TestSubmitErrors(t *testing.T) {
	retired := setOf(1, stripe, door)
	retired["old"] = &inforce.Entry{Policy: policy.Policy{Name: "old",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket,
			Outflow: rate("1/s"), Capacity: 1}}, Revision: 1, Draining: true}
	for _, c := range []struct {
		name string
		fail error
		ask  SubmitRequest
		want error
	}{
		{"unknown policy", nil, request("nobody"), admission.ErrUnknownPolicy},
		{"retired policy", nil, request("old"), admission.ErrUnknownPolicy},
		{"no queue", nil, request("door"), admission.ErrConflict},
		{"body", nil, SubmitRequest{Policy: "stripe", Key: "a",
			Body: make([]byte, admission.MaxBody+1)},
			admission.ErrTooLarge},
		{"message", jet.ErrTooLarge, request("stripe"), admission.ErrTooLarge},
		{"no room", jet.ErrStorage, request("stripe"), jet.ErrStorage},
		{"no stream", jet.ErrNoStream, request("stripe"), admission.ErrUnavailable},
		{"no broker", jet.ErrUnavailable, request("stripe"), admission.ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newTestService(t, &fakeQueue{capacity: 3, fail: c.fail}, &fakeValves{})
			if err := s.SetPolicies(retired); err != nil {
				t.Fatal(err)
			}
			if o, err := s.Submit(t.Context(), c.ask); !errors.Is(err, c.want) {
				t.Errorf("got %+v, %v, want %v", o, err, c.want)
			}
		})
	}
	s := newTestService(t, &fakeQueue{fail: errors.New("a bug")}, &fakeValves{}, stripe)
	if _, err := s.Submit(t.Context(), request("stripe")); err == nil ||
		errors.Is(err, admission.ErrUnavailable) {
		t.Errorf("an unexpected error became %v", err)
	}
}

func TestNothingIsAnsweredBeforeThePoliciesAreKnown(t *testing.T) {
	s := New(jet.Names{}, &fakeQueue{}, &fakeValves{}, newTokens, Options{})
	if _, err := s.Submit(t.Context(), request("stripe")); !errors.Is(err,
		admission.ErrUnavailable) {
		t.Errorf("submit: %v", err)
	}
	if _, err := s.Check(t.Context(),
		CheckRequest{Policy: "door", Key: "a", Cost: 1}); !errors.Is(err,
		admission.ErrUnavailable) {
		t.Errorf("check: %v", err)
	}
}

// A changed header must not change the header that jobs share.
func TestAChangedHeaderIsOneJobsOnly(t *testing.T) {
	q := &fakeQueue{capacity: 2}
	s := newTestService(t, q, &fakeValves{}, stripe)
	s.begin = func(_ string, stored nats.Header) (nats.Header, func(admission.Outcome, error)) {
		stored["Traceparent"] = []string{"a trace"}
		return stored, func(admission.Outcome, error) {}
	}
	r := request("stripe")
	r.Body, r.waiter = []byte(`{}`), "a token"
	for _, want := range []int{3, 1} {
		if _, err := s.Submit(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if len(q.last.Header) != want {
			t.Errorf("%v is stored, want %d headers", q.last.Header, want)
		}
		s.begin, r.waiter = nil, ""
	}
}

func TestDoorWithQueue(t *testing.T) {
	t.Run("limiter first", func(t *testing.T) {
		q := &fakeQueue{capacity: 100}
		s := newTestService(t, q, &fakeValves{answer: startsIn(0)}, search)
		o := submit(t, s, "search", "Penstock-Cost", "4")
		if o.Verdict != admission.Allowed || o.Remaining != 1 || o.Quota.Units != 5 ||
			!q.last.Admitted {
			t.Errorf("got %+v", o)
		}
		o = submit(t, s, "search", "Penstock-Cost", "4")
		if o.Verdict != admission.Rejected || o.RetryAfter <= 2*time.Minute || o.Remaining != 1 ||
			q.count() != 1 {
			t.Errorf("got %+v after %d publishes", o, q.count())
		}
		var bad *admission.RequestError
		if _, err := s.Submit(t.Context(), request("search", "Penstock-Cost", "6")); !errors.As(err,
			&bad) {
			t.Errorf("a cost that can never pass: %v", err)
		}
	})
	t.Run("refund when the queue is full", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := &fakeQueue{capacity: 1}
			s := newTestService(t, q, &fakeValves{}, search)
			submit(t, s, "search")
			o := submit(t, s, "search")
			if o.Verdict != admission.Rejected || o.Quota.Units != 3 ||
				o.RetryAfter != time.Second {
				t.Errorf("got %+v", o)
			}
			if got := limiterOf(s, "search").net(); got != 1 {
				t.Errorf("%d units taken, want 1", got)
			}
		})
	})
	t.Run("no refund when the result is unknown", func(t *testing.T) {
		q := &fakeQueue{fail: jet.ErrUnavailable}
		s := newTestService(t, q, &fakeValves{}, search)
		if _, err := s.Submit(t.Context(), request("search")); !errors.Is(err,
			admission.ErrUnavailable) {
			t.Fatal(err)
		}
		if got := limiterOf(s, "search").net(); got != 1 {
			t.Errorf("%d units taken, want 1: the job may be stored", got)
		}
	})
	t.Run("a refund when NATS is known to be away", func(t *testing.T) {
		q := &fakeQueue{fail: fmt.Errorf("%w: %w", jet.ErrUnavailable, jet.ErrNotSent)}
		s := newTestService(t, q, &fakeValves{}, search)
		if _, err := s.Submit(t.Context(), request("search")); !errors.Is(err,
			admission.ErrUnavailable) ||
			Reason(err) != ReasonNATS {
			t.Fatal(err)
		}
		if got := limiterOf(s, "search").net(); got != 0 {
			t.Errorf("%d units taken, want 0: nothing was sent", got)
		}
	})
	t.Run("repeats cost nothing and pass a spent limiter", func(t *testing.T) {
		q := &fakeQueue{capacity: 100}
		s := newTestService(t, q, &fakeValves{}, search)
		first := submit(t, s, "search", "Penstock-Cost", "5", "Idempotency-Key", "a")
		if o := submit(t, s, "search"); o.Verdict != admission.Rejected {
			t.Fatalf("got %+v", o)
		}
		if o := submit(
			t, s, "search", "Penstock-Cost", "5", "Idempotency-Key", "a"); o.Job != first.Job {
			t.Errorf("the repeat got %+v", o)
		}
		// Another admitter accepted it, which only the stream records.
		other := newTestService(t, q, &fakeValves{}, search)
		if o := submit(t, other, "search", "Idempotency-Key", "a"); o.Job != first.Job {
			t.Errorf("the repeat got %+v", o)
		}
		if got := limiterOf(other, "search").net(); got != 0 {
			t.Errorf("a repeat took %d units", got)
		}
	})
	t.Run("limiter unavailable", func(t *testing.T) {
		s := newTestService(t, &fakeQueue{capacity: 1}, &fakeValves{}, search)
		limiterOf(s, "search").fail = errors.New("no store")
		if _, err := s.Submit(t.Context(), request("search")); !errors.Is(err,
			admission.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	})
}

func limiterOf(s *Service, name string) *tokens {
	return (*s.policies.Load())[name].limit.Limiter.(*tokens)
}

func TestCheckAndPeek(t *testing.T) {
	s := newTestService(t, &fakeQueue{}, &fakeValves{}, door, meter, stripe)
	for i := range 3 {
		peeked, err := s.Peek(t.Context(), CheckRequest{Policy: "door", Key: "a", Cost: 2})
		if err != nil || peeked.Allowed != (i < 2) {
			t.Fatalf("peek %d: %+v, %v", i, peeked, err)
		}
		checked, err := s.Check(t.Context(), CheckRequest{Policy: "door", Key: "a", Cost: 2})
		if err != nil || checked.Allowed != (i < 2) ||
			checked.Quota != (admission.Quota{Policy: "door", Units: 5, Window: time.Minute}) {
			t.Fatalf("check %d: %+v, %v", i, checked, err)
		}
	}
	if _, err := s.Check(
		t.Context(), CheckRequest{Policy: "meter", Key: "a", Cost: 1}); err != nil {
		t.Errorf("a meter: %v", err)
	}
	if _, err := s.Check(t.Context(),
		CheckRequest{Policy: "stripe", Key: "a", Cost: 1}); !errors.Is(err, admission.ErrConflict) {
		t.Errorf("a queue policy: %v", err)
	}
	if _, err := s.Peek(t.Context(),
		CheckRequest{Policy: "nobody", Key: "a", Cost: 1}); !errors.Is(err,
		admission.ErrUnknownPolicy) {
		t.Errorf("an unknown policy: %v", err)
	}
	for _, cost := range []int64{0, -1, 6, 1 << 62, -1 << 63} {
		var bad *admission.RequestError
		_, err := s.Check(t.Context(), CheckRequest{Policy: "door", Key: "b", Cost: cost})
		if !errors.As(err, &bad) || bad.Field != "cost" {
			t.Errorf("cost %d: %v", cost, err)
		}
	}
	limiterOf(s, "door").fail = errors.New("no store")
	if _, err := s.Check(t.Context(),
		CheckRequest{Policy: "door", Key: "a", Cost: 1}); !errors.Is(err,
		admission.ErrUnavailable) {
		t.Errorf("no store: %v", err)
	}
}

func TestLimitersKeepTheirStateOverAChange(t *testing.T) {
	s := newTestService(t, &fakeQueue{}, &fakeValves{}, door, search)
	for range 5 {
		if c, err := s.Check(t.Context(), CheckRequest{Policy: "door", Key: "a", Cost: 1}); err !=
			nil || !c.Allowed {
			t.Fatal(c, err)
		}
	}
	kept := (*s.policies.Load())["search"]
	larger := door
	larger.Capacity = 7
	set := setOf(2, larger)
	set["search"] = &inforce.Entry{Policy: search, Revision: 1}
	if err := s.SetPolicies(set); err != nil {
		t.Fatal(err)
	}
	if (*s.policies.Load())["search"] != kept {
		t.Error("a policy that did not change was built again")
	}
	if c, err := s.Check(t.Context(), CheckRequest{Policy: "door", Key: "a", Cost: 3}); err !=
		nil || c.Allowed || c.Limit != 7 {
		t.Errorf("after the change: %+v, %v", c, err)
	}
	if c, err := s.Check(
		t.Context(), CheckRequest{Policy: "door", Key: "a", Cost: 2}); err != nil || !c.Allowed {
		t.Errorf("after the change: %+v, %v", c, err)
	}
	// A rule that became narrower between quota and Take refuses, and does not panic.
	limiterOf(s, "door").rule.Capacity = 1
	var bad *admission.RequestError
	if _, err := s.Check(t.Context(),
		CheckRequest{Policy: "door", Key: "a", Cost: 2}); !errors.As(err, &bad) {
		t.Errorf("a cost above the new limit: %v", err)
	}
}

func TestABadPolicyKeepsItsFormerForm(t *testing.T) {
	s := newTestService(t, &fakeQueue{}, &fakeValves{}, door, stripe)
	broken := door
	broken.Capacity = -1
	err := s.SetPolicies(setOf(2, broken, stripe, policy.Policy{Name: "new",
		Rule: policy.Rule{Algorithm: "abacus"}}))
	if err == nil || !strings.Contains(err.Error(), `"door"`) ||
		!strings.Contains(err.Error(), `"new"`) {
		t.Errorf("got %v", err)
	}
	if _, err := s.Check(t.Context(), CheckRequest{Policy: "door", Key: "a", Cost: 5}); err != nil {
		t.Errorf("the former form is gone: %v", err)
	}
	if _, err := s.Check(t.Context(),
		CheckRequest{Policy: "new", Key: "a", Cost: 1}); !errors.Is(err,
		admission.ErrUnknownPolicy) {
		t.Errorf("a policy that cannot be: %v", err)
	}
	if err := s.SetPolicies(setOf(3, stripe)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Check(t.Context(),
		CheckRequest{Policy: "door", Key: "a", Cost: 1}); !errors.Is(err,
		admission.ErrUnknownPolicy) {
		t.Errorf("a removed policy: %v", err)
	}
}

// TestPoliciesChangeUnderLoad is for the race detector.
func TestPoliciesChangeUnderLoad(t *testing.T) {
	s := newTestService(t, &fakeQueue{capacity: 1 << 30}, &fakeValves{answer: startsIn(0)}, door,
		search, stripe)
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for ctx.Err() == nil {
				s.Check(ctx, CheckRequest{Policy: "door", Key: "a", Cost: 1})
				s.Submit(ctx, request("search"))
				s.Submit(ctx, request("stripe", "Idempotency-Key", "a"))
			}
		})
	}
	for revision := range uint64(200) {
		if err := s.SetPolicies(setOf(revision+2, door, search, stripe)); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	load.Wait()
}

// A refund may exceed a lowered limit.
func TestRefundsOutliveALoweredLimit(t *testing.T) {
	s := newTestService(t, &fakeQueue{}, &fakeValves{}, door, stripe)
	if err := s.Refund(
		t.Context(), CheckRequest{Policy: "door", Key: "a", Cost: 1000}); err != nil {
		t.Error(err)
	}
	var bad *admission.RequestError
	if err := s.Refund(t.Context(),
		CheckRequest{Policy: "door", Key: "a", Cost: 0}); !errors.As(err, &bad) {
		t.Errorf("a cost of 0: %v", err)
	}
	if err := s.Refund(t.Context(),
		CheckRequest{Policy: "stripe", Key: "a", Cost: 1}); !errors.Is(err, admission.ErrConflict) {
		t.Errorf("a queue policy: %v", err)
	}
}

// Such a job would become a dead letter.
func TestJobsThatCouldNeverStartAreRefused(t *testing.T) {
	q := &fakeQueue{}
	s := newTestService(t, q, &fakeValves{}, stripe, search)
	at := func(d time.Duration) string { return time.Now().Add(d).Format(time.RFC3339) }
	for _, c := range []struct {
		policy, field string
		header        []string
	}{
		{"stripe", job.HeaderDeadline, []string{job.HeaderDeadline, at(-time.Hour)}},
		{"stripe", job.HeaderNotBefore,
			[]string{job.HeaderNotBefore, at(time.Hour), job.HeaderDeadline, at(time.Minute)}},
		{"stripe", job.HeaderNotBefore, []string{job.HeaderNotBefore, at(20 * 24 * time.Hour)}},
		{"search", job.HeaderNotBefore, []string{job.HeaderNotBefore, "3w"}},
		{"stripe", job.HeaderCost,
			[]string{job.HeaderCost, strconv.FormatInt(stripe.Capacity+1, 10)}},
		{"stripe", job.HeaderIdempotencyKey, []string{job.HeaderIdempotencyKey, "a\nb"}},
	} {
		_, err := s.Submit(t.Context(), request(c.policy, c.header...))
		if bad, ok := errors.AsType[*admission.RequestError](err); !ok || bad.Field != c.field {
			t.Errorf("%s %v: %v", c.policy, c.header, err)
		}
	}
	if n := q.count(); n != 0 {
		t.Errorf("%d of them were published", n)
	}
	for _, header := range [][]string{
		{job.HeaderDeadline, at(time.Hour), job.HeaderNotBefore, at(time.Minute)},
		{job.HeaderCost, strconv.FormatInt(stripe.Capacity, 10)},
	} {
		if _, err := s.Submit(t.Context(), request("stripe", header...)); err != nil {
			t.Errorf("%v: %v", header, err)
		}
	}
}

type asked struct{}

func (asked) Await() (*jet.Waiting, error) { return nil, errors.New("nobody hears") }

func TestAClientWaitsWithinItsShare(t *testing.T) {
	s := newTestService(t, &fakeQueue{capacity: 3}, &fakeValves{answer: startsIn(0)}, stripe)
	s.waiters.outcomes = asked{}
	weak := request("stripe")
	weak.From, weak.Wait = Client{Name: "weak"}, time.Minute
	for s.waiters.places.Reserve(weak.From, 1) == nil {
	}
	if o, err := s.Submit(t.Context(), weak); err != nil || o.NoResult != admission.NoResultBusy {
		t.Errorf("beyond its share it gets %+v, %v", o, err)
	}
	other := weak
	other.From.Name = "other"
	if _, err := s.Submit(t.Context(), other); !errors.Is(err, admission.ErrUnavailable) {
		t.Errorf("another client does not wait: %v", err)
	}
}
