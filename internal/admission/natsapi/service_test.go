package natsapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/queue/embedded"
)

type fakeService struct {
	submit func(r admit.SubmitRequest) (admission.Outcome, error)
	check  func(r admit.CheckRequest, peek bool) (admission.Checked, error)
	refund func(r admit.CheckRequest) error
}

func (f fakeService) Submit(_ context.Context,
	r admit.SubmitRequest) (admission.Outcome, error) {
	return f.submit(r)
}

func (f fakeService) Check(_ context.Context, r admit.CheckRequest) (admission.Checked, error) {
	return f.check(r, false)
}

func (f fakeService) Peek(_ context.Context, r admit.CheckRequest) (admission.Checked, error) {
	return f.check(r, true)
}

func (f fakeService) Refund(_ context.Context, r admit.CheckRequest) error {
	return f.refund(r)
}

type running struct {
	client *nats.Conn
	url    string
	stop   func()
	ended  chan error
}

func start(t *testing.T, service Service, o Options) running {
	t.Helper()
	return startFor(t, service, o, mostConcurrent)
}

// startFor starts a server for so many requests at a time.
func startFor(t *testing.T, service Service, o Options, concurrent int) running {
	t.Helper()
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	connect := func() *nats.Conn {
		nc, err := server.Connect()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	names, err := jet.NewNames("")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	started, ended := make(chan struct{}), make(chan error, 1)
	o.Started = func() { close(started) }
	r := running{client: connect(), url: server.URL(), stop: stop, ended: ended}
	serving := newServer(connect(), names, service, o)
	serving.slots = make(chan struct{}, concurrent)
	go func() {
		ended <- serving.run(ctx)
		close(ended)
	}()
	t.Cleanup(func() {
		stop()
		for range ended {
		}
	})
	<-started
	return r
}

func (r running) end(t *testing.T) {
	t.Helper()
	r.stop()
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
}

func ask(t *testing.T, nc *nats.Conn, subject, body string, header ...string) *nats.Msg {
	t.Helper()
	m := nats.NewMsg(subject)
	m.Data = []byte(body)
	for i := 0; i < len(header); i += 2 {
		m.Header[header[i]] = []string{header[i+1]}
	}
	answer, err := nc.RequestMsg(m, waittest.Patience())
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	return answer
}

func TestAnswers(t *testing.T) {
	service := fakeService{
		submit: func(r admit.SubmitRequest) (admission.Outcome, error) {
			if r.Policy != "stripe" || r.Key != "acme.%C3%A4" || string(r.Body) != "pay" ||
				r.Header["Idempotency-Key"][0] != "a" {
				t.Errorf("got %+v", r)
			}
			return admission.Outcome{Verdict: admission.Rejected, Refused: admission.ErrQueueFull,
				RetryAfter: 1500 * time.Millisecond,
				Quota:      admission.Quota{Policy: "stripe", Units: 9}}, nil
		},
		check: func(r admit.CheckRequest, peek bool) (admission.Checked, error) {
			if r.Policy != "door" || r.Key != "_" || (r.Cost == 3) == peek {
				t.Errorf("got %+v, peek %v", r, peek)
			}
			return admission.Checked{Decision: algorithms.Decision{Allowed: true, Limit: 5,
				Remaining: 2}}, nil
		},
	}
	var refunded atomic.Int64
	service.refund = func(r admit.CheckRequest) error {
		if r.Policy != "door" || r.Key != "a" || r.IP != "192.0.2.1" {
			t.Errorf("refunded %+v", r)
		}
		refunded.Add(r.Cost)
		return nil
	}
	r := start(t, service, Options{})
	m := ask(t, r.client, "penstock.submit.stripe.acme.%C3%A4", "pay", "Idempotency-Key", "a")
	for name, want := range map[string]string{
		"Penstock-Status":     "429",
		"Content-Type":        "application/problem+json",
		"Retry-After":         "2",
		"X-Ratelimit-Limit":   "9",
		"RateLimit-Policy":    `"stripe";q=9`,
		"RateLimit":           `"stripe";r=0;t=2`,
		"Nats-Service-Error":  "",
		"X-Ratelimit-Unknown": "",
	} {
		if got := m.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if !bytes.Contains(m.Data, []byte(`"verdict":"rejected","retry_after_ms":1500`)) {
		t.Errorf("body %s", m.Data)
	}
	m = ask(t, r.client, "penstock.check.door._", "", "penstock-cost", "3")
	if m.Header.Get("Penstock-Status") != "200" ||
		!bytes.Contains(m.Data, []byte(`"allowed":true`)) {
		t.Errorf("%v %s", m.Header, m.Data)
	}
	m = ask(t, r.client, "penstock.check.door", "", "Penstock-Peek", "true")
	if m.Header.Get("Penstock-Status") != "200" {
		t.Errorf("%v %s", m.Header, m.Data)
	}
	m = ask(t, r.client, "penstock.check.door.a", "", "Penstock-Refund", "true", "Penstock-Cost",
		"4", "Penstock-IP", "192.0.2.1")
	if m.Header.Get("Penstock-Status") != "204" || len(m.Data) > 0 || refunded.Load() != 4 {
		t.Errorf("%v %s", m.Header, m.Data)
	}
	r.end(t)
}

func TestBadRequests(t *testing.T) {
	failing := func(policy string) error {
		return map[string]error{
			"unknown":     admission.ErrUnknownPolicy,
			"conflict":    admission.ErrConflict,
			"large":       admission.ErrTooLarge,
			"unavailable": admission.ErrUnavailable,
			"bug":         errors.New("secret"),
			"panic":       errPanic,
		}[policy]
	}
	service := fakeService{
		submit: func(r admit.SubmitRequest) (admission.Outcome, error) {
			err := failing(r.Policy)
			if errors.Is(err, errPanic) {
				panic(err)
			}
			return admission.Outcome{}, err
		},
		check: func(r admit.CheckRequest, _ bool) (admission.Checked, error) {
			return admission.Checked{}, failing(r.Policy)
		},
	}
	r := start(t, service, Options{})
	for _, c := range []struct {
		subject, status, field string
		header                 []string
	}{
		{"penstock.submit.unknown.k", "404", "", nil},
		{"penstock.submit.conflict.k", "409", "", nil},
		{"penstock.submit.large.k", "413", "", nil},
		{"penstock.submit.unavailable.k", "503", "", nil},
		{"penstock.submit.bug.k", "500", "", nil},
		{"penstock.submit.panic.k", "500", "", nil},
		{"penstock.check.unknown.k", "404", "", nil},
		{"penstock.submit.p.%zz", "400", "key", nil},
		{"penstock.submit.p.%41", "400", "key", nil},
		{"penstock.submit.p.käse", "400", "key", nil},
		{"penstock.submit.p.a.*", "400", "key", nil},
		{"penstock.submit.p." + strings.Repeat("x", 300), "400", "key", nil},
		{"penstock.check.p.k", "400", "Penstock-Cost", []string{"Penstock-Cost", "1.5"}},
		{"penstock.check.p.k", "400", "Penstock-Cost",
			[]string{"Penstock-Cost", "99999999999999999999"}},
		{"penstock.check.p.k", "400", "Penstock-Costs", []string{"Penstock-Costs", "1"}},
		{"penstock.check.p.k", "400", "Penstock-Peek", []string{"Penstock-Peek", "perhaps"}},
	} {
		m := ask(t, r.client, c.subject, "", c.header...)
		var problem struct{ Field string }
		if err := json.Unmarshal(m.Data, &problem); err != nil {
			t.Fatalf("%s: %v", m.Data, err)
		}
		if got := m.Header.Get("Penstock-Status"); got != c.status || problem.Field != c.field {
			t.Errorf("%s %v: status %s, %s", c.subject, c.header, got, m.Data)
		}
		if m.Header.Get("Nats-Service-Error") != "" || bytes.Contains(m.Data, []byte("secret")) {
			t.Errorf("%s: %v %s", c.subject, m.Header, m.Data)
		}
	}
	r.end(t)
}

var errPanic = errors.New("a bug")

func TestRequestsAreAnsweredAtTheSameTime(t *testing.T) {
	const together = 50
	var meeting sync.WaitGroup
	meeting.Add(together)
	r := start(t, fakeService{submit: func(admit.SubmitRequest) (admission.Outcome, error) {
		meeting.Done()
		meeting.Wait()
		return admission.Outcome{Verdict: admission.Queued, Job: "p:1"}, nil
	}}, Options{})
	var asking sync.WaitGroup
	for range together {
		asking.Go(func() {
			m, err := r.client.Request("penstock.submit.p.k", nil, waittest.Patience())
			if err != nil || m.Header.Get("Penstock-Status") != "202" {
				t.Errorf("%v, %v", m, err)
			}
		})
	}
	asking.Wait()
	r.end(t)
}

func TestTooManyRequestsGetAClearNo(t *testing.T) {
	release := make(chan struct{})
	entered := make(chan struct{}, 2)
	r := startFor(t, fakeService{submit: func(admit.SubmitRequest) (admission.Outcome, error) {
		entered <- struct{}{}
		<-release
		return admission.Outcome{Verdict: admission.Queued, Job: "p:1"}, nil
	}}, Options{Budget: admit.NewBudget(200)}, 2)

	var asking sync.WaitGroup
	for range 2 {
		asking.Go(func() {
			m, err := r.client.Request("penstock.submit.p.k", make([]byte, 50),
				waittest.Patience())
			if err != nil || m.Header.Get("Penstock-Status") != "202" {
				t.Errorf("%v, %v", m, err)
			}
		})
	}
	<-entered
	<-entered
	for range 5 {
		m := ask(t, r.client, "penstock.submit.p.k", "")
		if m.Header.Get("Penstock-Status") != "503" || m.Header.Get("Retry-After") != "1" {
			t.Errorf("beyond the slots: %v %s", m.Header, m.Data)
		}
	}
	large := strings.Repeat("x", 100)
	m := ask(t, r.client, "penstock.submit.p.k", large)
	if m.Header.Get("Penstock-Status") != "503" {
		t.Errorf("beyond the budget: %v %s", m.Header, m.Data)
	}
	close(release)
	asking.Wait()
	if m := ask(t, r.client, "penstock.submit.p.k", "x"); m.Header.Get("Penstock-Status") != "202" {
		t.Errorf("after all of that: %v %s", m.Header, m.Data)
	}
	r.end(t)
}

func TestPendingRequestsAreAnsweredOnClose(t *testing.T) {
	release, entered := make(chan struct{}), make(chan struct{}, 1)
	r := start(t, fakeService{
		submit: func(admit.SubmitRequest) (admission.Outcome, error) {
			entered <- struct{}{}
			<-release
			return admission.Outcome{Verdict: admission.Queued, Job: "p:1"}, nil
		},
		check: func(admit.CheckRequest, bool) (admission.Checked, error) {
			return admission.Checked{}, nil
		},
	}, Options{})
	var asking sync.WaitGroup
	asking.Go(func() {
		m, err := r.client.Request("penstock.submit.p.k", nil, waittest.Patience())
		if err != nil || m.Header.Get("Penstock-Status") != "202" {
			t.Errorf("%v, %v", m, err)
		}
	})
	<-entered
	r.stop()
	// The service has left the group while it still answers.
	waittest.Until(t, "the service takes no requests", func() bool {
		_, err := r.client.Request("penstock.check.p.k", nil, waittest.Patience())
		return errors.Is(err, nats.ErrNoResponders)
	})
	select {
	case err := <-r.ended:
		t.Fatalf("ended before it had answered: %v", err)
	default:
	}
	close(release)
	asking.Wait()
	r.end(t)
}

func TestARequestWithoutAReplySubjectIsServed(t *testing.T) {
	submitted := make(chan string, 1)
	r := start(t, fakeService{submit: func(r admit.SubmitRequest) (admission.Outcome, error) {
		submitted <- string(r.Body)
		return admission.Outcome{Verdict: admission.Queued}, nil
	}}, Options{})
	if err := r.client.Publish("penstock.submit.p.k", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if got := <-submitted; got != "x" {
		t.Errorf("got %q", got)
	}
	r.end(t)
}

// nats.go omits headers that it cannot read: a job would lose its Idempotency-Key, and a check its
// cost.
func TestHeadersThatCannotBeReadAreRefused(t *testing.T) {
	service := fakeService{
		submit: func(r admit.SubmitRequest) (admission.Outcome, error) {
			t.Errorf("submitted %+v", r)
			return admission.Outcome{}, nil
		},
		check: func(r admit.CheckRequest, _ bool) (admission.Checked, error) {
			t.Errorf("checked %+v", r)
			return admission.Checked{}, nil
		},
	}
	r := start(t, service, Options{})
	inbox := nats.NewInbox()
	answers, err := r.client.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.client.Flush(); err != nil {
		t.Fatal(err)
	}
	raw, err := net.Dial("tcp", strings.TrimPrefix(r.url, "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	fmt.Fprint(raw, "CONNECT {\"headers\":true,\"verbose\":false}\r\n")
	for _, subject := range []string{"penstock.submit.stripe.acme", "penstock.check.stripe.acme"} {
		for _, header := range []string{"Idempotency-Key: a\r\nBroken: b\r\nc\r\n",
			"no header\r\n"} {
			header = "NATS/1.0\r\n" + header + "\r\n"
			fmt.Fprintf(raw, "HPUB %s %s %d %d\r\n%spay\r\n", subject, inbox, len(header),
				len(header)+3, header)
			answer, err := answers.NextMsg(waittest.Patience())
			if err != nil {
				t.Fatal(err)
			}
			if answer.Header.Get(StatusHeader) != "400" ||
				!strings.Contains(string(answer.Data), `"field":"headers"`) {
				t.Errorf("%s, %q: %v %s", subject, header, answer.Header, answer.Data)
			}
		}
	}
}
