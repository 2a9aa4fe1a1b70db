package penstock_test

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/admission/permits"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers"
)

func clients(t *testing.T, p *penstock.Penstock) map[string]*penstock.Client {
	t.Helper()
	api := httptest.NewServer(p.Handler())
	t.Cleanup(api.Close)
	overHTTP, err := penstock.NewHTTPClient(api.URL, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	overNATS, err := penstock.NewNATSClient(connected(t, p), "")
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*penstock.Client{"HTTP": overHTTP, "NATS": overNATS}
}

func connected(t *testing.T, p *penstock.Penstock) *nats.Conn {
	t.Helper()
	nc, err := p.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func TestAClientWithoutAConnectionIsAnError(t *testing.T) {
	if _, err := penstock.NewNATSClient(nil, ""); err == nil {
		t.Error("made")
	}
}

type letter struct {
	To   string
	Fail bool
}

func mailroom(t *testing.T) *penstock.Penstock {
	t.Helper()
	later := hourly(10)
	later.Name, later.Capacity = "later", 2
	p := open(t, penstock.Options{ServeNATS: true,
		Policies: []policy.Policy{paced("mail", 1000, 10), later, door("signup")}})
	p.Handle("mail", workers.Handle(func(_ context.Context, j workers.Job, l letter) error {
		j.Reply(201, http.Header{"To": {l.To}}, []byte("\xff for "+j.Key.Raw()))
		if l.Fail {
			return workers.Permanent(errors.New("no such address"))
		}
		return nil
	}))
	run(t, p)
	return p
}

func cancelled(t *testing.T, by interface {
	Cancel(ctx context.Context, id string) error
}, id string) {
	t.Helper()
	var err error
	waittest.Until(t, "the drainer has the job", func() bool {
		err = by.Cancel(t.Context(), id)
		return !errors.Is(err, admission.ErrNoDrainer)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAClientWaitsForJobs(t *testing.T) {
	p := mailroom(t)
	for name, c := range clients(t, p) {
		t.Run(name, func(t *testing.T) {
			const key = "a b/ü?%2F"
			j := penstock.Job{Policy: "mail", Key: key, Body: []byte(`{"to":"ann"}`),
				IdempotencyKey: name, Wait: math.MaxInt64}
			ticket, err := c.Submit(t.Context(), j)
			if err != nil || ticket.Result == nil {
				t.Fatalf("%+v, %v", ticket, err)
			}
			r := ticket.Result.Reply
			if ticket.Result.End != queue.EndDone || ticket.Job != ticket.Result.Job || r == nil ||
				r.Status != 201 || r.Header["To"][0] != "ann" || string(r.Body) != "\xff for "+key {
				t.Errorf("%+v, %+v", ticket.Result, r)
			}
			j.Wait = 0
			if again, err := c.Submit(t.Context(), j); err != nil || !again.Duplicate ||
				again.Job != ticket.Job {
				t.Errorf("a repeat: %+v, %v", again, err)
			}
			for body, want := range map[string]penstock.Ended{
				`{}`:            {End: queue.EndDone},
				`{"fail":true}`: {End: queue.EndDead, Reason: "permanent", Error: "no such address"},
				`{"fail":1}`: {End: queue.EndDead, Reason: "permanent", Error: "read the body: json: " +
					"cannot unmarshal number into Go struct field letter.Fail of type bool"},
			} {
				ticket, err := c.Submit(t.Context(), penstock.Job{Policy: "mail",
					IdempotencyKey: name + body, Body: []byte(body)})
				if err != nil {
					t.Fatal(err)
				}
				for who, wait := range map[string]func(context.Context, string) (penstock.Ended,
					error){"client": c.Wait, "Penstock": p.Wait} {
					if got, err := wait(t.Context(), ticket.Job); err != nil || got != want {
						t.Errorf("%s of a %s: %+v, %v", body, who, got, err)
					}
				}
			}
		})
	}
}

func TestAClientCancels(t *testing.T) {
	p := mailroom(t)
	first, err := p.Submit(t.Context(), penstock.Job{Policy: "later"})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]interface {
		Submit(context.Context, penstock.Job) (penstock.Ticket, error)
		Wait(context.Context, string) (penstock.Ended, error)
		Cancel(context.Context, string) error
	}{"Penstock": p}
	for name, c := range clients(t, p) {
		all[name] = c
	}
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			ticket, err := c.Submit(t.Context(), penstock.Job{Policy: "later", Key: "a",
				IdempotencyKey: name, NotBefore: time.Now().Add(time.Hour)})
			if err != nil {
				t.Fatal(err)
			}
			cancelled(t, c, ticket.Job)
			ended, err := c.Wait(t.Context(), ticket.Job)
			if err != nil || ended.End != queue.EndCancelled {
				t.Errorf("%+v, %v", ended, err)
			}
			if err := c.Cancel(t.Context(), ticket.Job); !errors.Is(err, admission.ErrNotFound) {
				t.Errorf("a job that is gone: %v", err)
			}
			soon, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := c.Wait(soon, first.Job); err == nil {
				t.Error("it did not wait for a job that waits")
			}
		})
	}
}

func TestClientErrorsMatchThePackages(t *testing.T) {
	p := mailroom(t)
	gone, err := p.Submit(t.Context(), penstock.Job{Policy: "later", Key: "gone",
		IdempotencyKey: "gone", NotBefore: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	cancelled(t, p, gone.Job)
	for range 2 {
		if _, err := p.Submit(t.Context(), penstock.Job{Policy: "later", Key: "full",
			NotBefore: time.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range clients(t, p) {
		for what, j := range map[string]penstock.Job{
			"full":        {Policy: "later", Key: "full"},
			"unknown":     {Policy: "none"},
			"two tokens":  {Policy: "mail.x"},
			"no name":     {},
			"a space":     {Policy: "a b"},
			"bad name":    {Policy: "mail", Costs: map[string]int64{"a b": 1}},
			"no queue":    {Policy: "signup"},
			"bad":         {Policy: "mail", Priority: 99},
			"bad key":     {Policy: "mail", Key: "\xff"},
			"control":     {Policy: "mail", IdempotencyKey: "a\nb"},
			"large":       {Policy: "mail", Body: make([]byte, admission.MaxBody+1)},
			"of one gone": {Policy: "later", Key: "gone", IdempotencyKey: "gone"},
		} {
			_, here := p.Submit(t.Context(), j)
			_, there := c.Submit(t.Context(), j)
			if here == nil || there == nil {
				t.Errorf("%s over %s: %v, %v", what, name, here, there)
				continue
			}
			for _, kind := range []error{penstock.ErrQueueFull, penstock.ErrUnknownPolicy,
				admission.ErrConflict, admission.ErrTooLarge} {
				if errors.Is(here, kind) != errors.Is(there, kind) {
					t.Errorf("%s over %s: %v here, %v there", what, name, here, there)
				}
			}
			refused, _ := errors.AsType[*penstock.RefusedError](there)
			bad, _ := errors.AsType[*admission.RequestError](there)
			ended, _ := errors.AsType[*admission.EndedError](there)
			if (refused != nil) != (what == "full") ||
				refused != nil && (refused.RetryAfter <= 0 || refused.Policy != "later") ||
				(bad != nil) != (strings.HasPrefix(what, "bad") || what == "control") ||
				(ended != nil) != (what == "of one gone") ||
				ended != nil && ended.Job != gone.Job {
				t.Errorf("%s over %s: %#v", what, name, there)
			}
		}
		if err := c.Cancel(t.Context(), "later"); err == nil {
			t.Error("an id without a number is taken")
		}
	}
}

func TestAClientWithoutAServerReturnsAnError(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	for address, unavailable := range map[string]bool{
		"http://" + closed.Addr().String(): true, other.URL: false} {
		c, err := penstock.NewHTTPClient(address, "secret", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Submit(t.Context(), penstock.Job{Policy: "mail"}); err == nil ||
			errors.Is(err, penstock.ErrUnavailable) != unavailable {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := penstock.NewHTTPClient("localhost:8080", "", nil); err == nil {
		t.Error("a server without a scheme is taken")
	}
	p := open(t, penstock.Options{AdmitOnly: true, Policies: []policy.Policy{paced("mail", 1, 1)}})
	nc, err := p.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c, err := penstock.NewNATSClient(nc, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Submit(t.Context(), penstock.Job{Policy: "mail"}); !errors.Is(err,
		penstock.ErrUnavailable) {
		t.Errorf("without an admitter: %v", err)
	}
}

func TestOddSettlementsFreeTheirPlace(t *testing.T) {
	api := paced("api", 1000, 100)
	api.Concurrency, api.Timeout = 1, policy.Duration(time.Hour)
	p := open(t, penstock.Options{Policies: []policy.Policy{api}})
	run(t, p)
	for name, c := range clients(t, p) {
		for what, r := range map[string]permits.Result{
			"no status": {}, "another status": {Status: "nonsense"},
			"usage":      {Status: permits.Done, Used: map[string]int64{"tokens": -1}},
			"a pause":    {Status: permits.Done, RetryAfter: -time.Hour},
			"long error": {Status: permits.Failed, Err: errors.New(strings.Repeat("é", 2<<20))},
		} {
			call := penstock.Call{Policy: "api", Key: name + what, Wait: 10 * time.Second}
			for range 2 {
				permit, err := c.Acquire(t.Context(), call)
				if err != nil {
					t.Fatalf("%s over %s: %v", what, name, err)
				}
				permit.Settle(r)
			}
		}
	}
}

func TestMustRatePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it is taken")
		}
	}()
	penstock.MustRate("96")
}

// The second call begins when the first is settled, long after its lease would have expired without
// renewals.
func TestClientsAcquirePermits(t *testing.T) {
	api := paced("api", 1000, 100)
	api.Concurrency, api.Timeout = 1, policy.Duration(time.Second)
	p := open(t, penstock.Options{Policies: []policy.Policy{api}})
	run(t, p)
	for name, c := range clients(t, p) {
		call := penstock.Call{Policy: "api", Key: "a b/" + name, Priority: 1, Wait: time.Minute}
		first, err := c.Acquire(t.Context(), call)
		if err != nil || first.Lease != time.Second {
			t.Fatal(name, first, err)
		}
		time.AfterFunc(3*time.Second, func() {
			first.Settle(permits.Result{Status: permits.Done})
		})
		if _, err := c.Acquire(t.Context(), penstock.Call{Policy: "api.x"}); !errors.Is(err,
			penstock.ErrUnknownPolicy) {
			t.Errorf("%s: no name of a policy: %v", name, err)
		}
		began := time.Now()
		second, err := c.Acquire(t.Context(), call)
		if err != nil {
			t.Fatal(name, err)
		}
		if waited := time.Since(began); waited < 2900*time.Millisecond {
			t.Errorf("%s: the second began after %v", name, waited)
		}
		second.Settle(permits.Result{Status: permits.Throttled, RetryAfter: time.Hour})
		eventually(t, name+": the bucket pauses", func() bool {
			call.Wait = time.Millisecond
			permit, err := c.Acquire(t.Context(), call)
			if err == nil {
				permit.Return()
			}
			refused, ok := errors.AsType[*penstock.RefusedError](err)
			return ok && errors.Is(err, penstock.ErrTooLate) && refused.RetryAfter > time.Second
		})
	}
}
