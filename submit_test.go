package penstock_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

func TestASubmittedJobIsRunByItsHandler(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("mail", 100, 10)}})
	jobs := make(chan workers.Job, 1)
	p.Handle("mail", func(_ context.Context, job workers.Job) error {
		jobs <- job
		return nil
	})
	stop := run(t, p)
	ticket, err := p.Submit(t.Context(), penstock.Job{
		Policy: "mail", Key: "customer 1", Body: []byte("letter"), IdempotencyKey: "order-7",
		Cost: 2, Priority: 3,
		Deadline: time.Now().Add(time.Hour), Header: http.Header{"Content-Type": {"text/plain"}}})
	if err != nil || ticket.Job != "mail:1" {
		t.Fatalf("%+v, %v", ticket, err)
	}
	job := receive(t, jobs)
	if job.ID != ticket.Job || job.Key.Raw() != "customer 1" || string(job.Body) != "letter" ||
		job.IdempotencyKey != "order-7" || job.Header.Get("Content-Type") != "text/plain" {
		t.Errorf("the handler got %+v", job)
	}
	if err := p.Health(); err != nil {
		t.Errorf("not healthy: %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestARefusalIsAnErrorWithTheTimeToComeBack(t *testing.T) {
	signup := door("signup")
	signup.Queue = &policy.Queue{Capacity: 10}
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("mail", 1, 2), signup}})
	for name, want := range map[string]error{
		"mail": penstock.ErrQueueFull, "signup": penstock.ErrRateLimited} {
		for i := range 3 {
			ticket, err := p.Submit(t.Context(), penstock.Job{Policy: name, Key: "a"})
			refused, ok := errors.AsType[*penstock.RefusedError](err)
			if ok != (i == 2) || ok != (ticket.Job == "") ||
				ok && (!errors.Is(err, want) || refused.Policy != name ||
					refused.RetryAfter <= 0 || refused.RetryAfter != ticket.RetryAfter) {
				t.Errorf("job %d of %s: %+v, %v", i+1, name, ticket, err)
			}
		}
	}
}

func TestAnExternalServerServesLikeAnEmbeddedOne(t *testing.T) {
	elsewhere := open(t, penstock.Options{AdmitOnly: true,
		Server: embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"}})
	for name, url := range map[string]string{"inside": "", "elsewhere": elsewhere.NATSURL()} {
		t.Run(name, func(t *testing.T) {
			p := open(t, penstock.Options{URL: url,
				Policies: []policy.Policy{paced("mail", 100, 2), door("signup")}})
			if got := p.NATSURL(); got != url {
				t.Errorf("NATS is at %q, want %q", got, url)
			}
			jobs := make(chan workers.Job, 2)
			p.Handle("mail", func(_ context.Context, job workers.Job) error {
				jobs <- job
				return nil
			})
			for i, want := range []admission.Verdict{
				admission.Queued, admission.Queued, admission.Rejected} {
				ticket, err := p.Submit(t.Context(), penstock.Job{Policy: "mail"})
				if ticket.Verdict != want || (want == admission.Rejected) != (err != nil) {
					t.Errorf("job %d: %+v, %v", i+1, ticket, err)
				}
			}
			for i, want := range []bool{true, true, false} {
				checked, err := p.Check(t.Context(), penstock.Request{Policy: "signup"})
				if err != nil || checked.Allowed != want {
					t.Errorf("check %d: %+v, %v", i+1, checked, err)
				}
			}
			stop := run(t, p)
			for _, want := range []string{"mail:1", "mail:2"} {
				if job := receive(t, jobs); job.ID != want {
					t.Errorf("%s ran, want %s", job.ID, want)
				}
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A loaded machine may prevent an answer of the valve in time.
func TestATicketHasItsPosition(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{{Name: "mail",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket,
			Capacity: 10_000, Outflow: algorithms.Rate{Count: 1, Per: time.Hour}}}}})
	began := make(chan struct{})
	p.Handle("mail", func(context.Context, workers.Job) error {
		close(began)
		return nil
	})
	run(t, p)
	submitted := 0
	submit := func() penstock.Ticket {
		ticket, err := p.Submit(t.Context(), penstock.Job{Policy: "mail", Key: "a"})
		if err != nil {
			t.Fatal(err)
		}
		submitted++
		return ticket
	}
	submit()
	receive(t, began)
	submit()
	eventually(t, "no ticket tells when its job starts", func() bool {
		ticket := submit()
		if ticket.DelayKnown && ticket.Position != submitted-2 {
			t.Errorf("job %d: %+v", submitted, ticket)
		}
		return ticket.DelayKnown
	})
}

func TestAWrongRequestIsAnError(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("mail", 1, 2), door("signup")}})
	wrong := new(*admission.RequestError)
	for name, job := range map[string]penstock.Job{
		"a key that is no text":        {Policy: "mail", Key: "\xff"},
		"a cost beyond the capacity":   {Policy: "mail", Cost: 3},
		"a deadline that has passed":   {Policy: "mail", Deadline: time.Now().Add(-time.Second)},
		"a priority that there is not": {Policy: "mail", Priority: 10},
		"a header that there is not": {Policy: "mail",
			Header: http.Header{"Penstock-Colour": {"red"}}},
		"a time that never comes": {Policy: "mail", Deadline: time.Now().Add(time.Hour),
			NotBefore: time.Now().Add(2 * time.Hour)},
	} {
		if _, err := p.Submit(t.Context(), job); !errors.As(err, wrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := p.Submit(t.Context(), penstock.Job{Policy: "nobody"}); !errors.Is(err,
		admission.ErrUnknownPolicy) {
		t.Error(err)
	}
	if _, err := p.Submit(t.Context(), penstock.Job{Policy: "signup"}); !errors.Is(err,
		admission.ErrConflict) {
		t.Error(err)
	}
	for _, r := range []penstock.Request{
		{Policy: "signup", Key: "\xff"}, {Policy: "signup", Cost: 3}, {Policy: "signup", Cost: -1},
	} {
		if _, err := p.Check(t.Context(), r); !errors.As(err, wrong) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if _, err := p.Check(t.Context(), penstock.Request{Policy: "mail"}); !errors.Is(err,
		admission.ErrConflict) {
		t.Error(err)
	}
}

func TestACheckTakesPeeksAndGivesBack(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{door("signup")}})
	ask := penstock.Request{Policy: "signup", Key: "203.0.113.7"}
	for i, want := range []bool{true, true, false} {
		peeked, err := p.Peek(t.Context(), ask)
		if err != nil || peeked.Allowed != want {
			t.Errorf("peek %d: %+v, %v", i+1, peeked, err)
		}
		checked, err := p.Check(t.Context(), ask)
		if err != nil || checked.Allowed != want || want == (checked.RetryAfter > 0) {
			t.Errorf("check %d: %+v, %v", i+1, checked, err)
		}
	}
	if err := p.Refund(t.Context(), ask); err != nil {
		t.Error(err)
	}
	if checked, err := p.Check(t.Context(), ask); err != nil || !checked.Allowed {
		t.Errorf("after a refund: %+v, %v", checked, err)
	}
}
