package penstock_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// paced is a policy that starts so many jobs a second of each key, and holds at most capacity.
func paced(name string, perSecond, capacity int64) policy.Policy {
	return policy.Policy{Name: name, Algorithm: policy.LeakingBucket, Capacity: capacity,
		Outflow: algorithms.Rate{Count: perSecond, Per: time.Second}}
}

// door is a policy that lets two a day of each key pass.
func door(name string) policy.Policy {
	return policy.Policy{Name: name, Algorithm: policy.FixedWindow, Limit: 2,
		Window: policy.Duration(24 * time.Hour)}
}

// open opens a Penstock that closes with the test.
func open(t *testing.T, o penstock.Options) *penstock.Penstock {
	t.Helper()
	if o.URL == "" && o.Server.Dir == "" {
		o.Server.Dir = t.TempDir()
	}
	p, err := penstock.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// run calls Run, and returns what ends it and the error that it returned.
func run(t *testing.T, p *penstock.Penstock) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(cancel)
	select {
	case <-p.Ready():
	case err := <-ended:
		t.Fatalf("Run returned %v", err)
	case <-time.After(patience):
		t.Fatal("not ready in time")
	}
	return func() error {
		cancel()
		return receive(t, ended)
	}
}

// receive waits for a value.
func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came in time")
	}
	panic("unreachable")
}

// eventually repeats a look until it holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

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
	if err != nil || ticket.Verdict == admission.Rejected || ticket.Job != "mail:1" {
		t.Fatalf("%+v, %v", ticket, err)
	}
	job := receive(t, jobs)
	if job.ID != ticket.Job || job.Key.Raw() != "customer 1" || string(job.Body) != "letter" ||
		job.Idempotency != "order-7" || job.Header.Get("Content-Type") != "text/plain" {
		t.Errorf("the handler got %+v", job)
	}
	if err := p.Health(); err != nil {
		t.Errorf("not healthy: %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestAFullQueueIsATicketWithTheTimeToComeBack(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("mail", 1, 2)}})
	for i := range 3 {
		ticket, err := p.Submit(t.Context(), penstock.Job{Policy: "mail", Key: "a"})
		if err != nil {
			t.Fatal(err)
		}
		rejected := ticket.Verdict == admission.Rejected
		if rejected != (i == 2) || rejected != (ticket.RetryAfter > 0) {
			t.Errorf("job %d: %+v", i+1, ticket)
		}
	}
}

// TestATicketTellsHowManyStartBefore: as soon as the valve answers, which a loaded machine may be
// too slow for.
func TestATicketTellsHowManyStartBefore(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{{Name: "mail",
		Algorithm: policy.LeakingBucket,
		Capacity:  10_000, Outflow: algorithms.Rate{Count: 1, Per: time.Hour}}}})
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
		"a header that there is not":   {Policy: "mail", Header: http.Header{"Penstock-Colour": {"red"}}},
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
	if _, err := p.Check(t.Context(), penstock.Request{Policy: "signup",
		Key: "\xff"}); !errors.As(err, wrong) {
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

func TestJobsWaitForRun(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("mail", 100, 10)}})
	ticket, err := p.Submit(t.Context(), penstock.Job{Policy: "mail"})
	if err != nil || ticket.Verdict != admission.Queued || ticket.DelayKnown {
		t.Fatalf("%+v, %v", ticket, err)
	}
	if got := p.Depths(t.Context())["mail"]; got != 1 {
		t.Errorf("%d jobs wait", got)
	}
	jobs := make(chan workers.Job, 1)
	p.Handle("mail", func(_ context.Context, job workers.Job) error {
		jobs <- job
		return nil
	})
	stop := run(t, p)
	if job := receive(t, jobs); job.ID != ticket.Job {
		t.Errorf("%s ran", job.ID)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestAllProcessesFollowAPolicyThatOneChanges(t *testing.T) {
	first := open(t, penstock.Options{Policies: []policy.Policy{door("signup")},
		Server: embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"}})
	run(t, first)
	changed := door("signup")
	changed.Limit = 7
	second := open(t, penstock.Options{Policies: []policy.Policy{changed, door("rewards")},
		URL: first.NATSURL()})
	eventually(t, "the first has not heard of the change", func() bool {
		set := first.Policies()
		return set["signup"].Policy.Limit == 7 && set["rewards"].Policy.Limit == 2
	})
	checked, err := first.Check(t.Context(), penstock.Request{Policy: "signup"})
	if err != nil || checked.Limit != 7 {
		t.Errorf("%+v, %v", checked, err)
	}

	// The very same policies again undo nothing.
	changed.Limit = 9
	if err := second.Reload(t.Context(),
		penstock.Options{Policies: []policy.Policy{changed}}); err != nil {
		t.Fatal(err)
	}
	third := open(t, penstock.Options{Policies: []policy.Policy{changed}, URL: first.NATSURL()})
	if got := third.Policies()["signup"].Policy.Limit; got != 9 {
		t.Errorf("limit %d", got)
	}
}

func TestPoliciesOfAnotherSetAreRefused(t *testing.T) {
	first := open(t, penstock.Options{Policies: []policy.Policy{door("signup")},
		Server: embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"}})
	_, err := penstock.Open(t.Context(), penstock.Options{Policies: []policy.Policy{door("signup")},
		Set: "other",
		URL: first.NATSURL()})
	if err == nil || !strings.Contains(err.Error(), "set: default") {
		t.Errorf("got %v", err)
	}
	// Without policies it goes by those that are there.
	follower := open(t, penstock.Options{URL: first.NATSURL()})
	if checked, err := follower.Check(t.Context(),
		penstock.Request{Policy: "signup"}); err != nil || !checked.Allowed {
		t.Errorf("%+v, %v", checked, err)
	}
}

func TestAReloadOfBadPoliciesChangesNothing(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{door("signup")}})
	bad := door("signup")
	bad.Limit = -1
	if err := p.Reload(t.Context(), penstock.Options{Policies: []policy.Policy{door("new"),
		bad}}); err == nil {
		t.Error("taken")
	}
	if set := p.Policies(); len(set) != 1 || set["signup"].Policy.Limit != 2 {
		t.Errorf("policies %v", set)
	}
}

func TestAReloadRetiresWhatIsNotAmongThePolicies(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{door("signup"), door("rewards")}})
	run(t, p)
	next := penstock.Options{Policies: []policy.Policy{door("signup")}, Prune: true}
	if err := p.Reload(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is not retired", func() bool { return p.Policies()["rewards"].Retired })
	if p.Policies()["signup"].Retired {
		t.Error("the other one is retired")
	}
}

func TestEverythingThatIsWrongWithOptionsIsReportedAtOnce(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	_, err = penstock.Open(t.Context(), penstock.Options{
		Policies: []policy.Policy{{Name: "A"}, door("signup"), door("signup"), paced("mail", 1, -1)},
		Set:      "Sets", Prefix: "no.prefix", Replicas: 3, Lease: time.Millisecond,
		HTTP: penstock.HTTP{Listen: busy.Addr().String(), LameDuck: -1},
	})
	if err == nil {
		t.Fatal("taken")
	}
	for _, want := range []string{"Policies[0].name", "Policies[0].algorithm",
		"Policies[2].name: is that of Policies[1]",
		"Policies[3].capacity", "Set:", "Prefix:", "Replicas:", "Lease:", "HTTP.LameDuck:",
		"address already in use"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing of %s in:\n%v", want, err)
		}
	}
}

func TestOpenLeavesNothingBehindWhenItFails(t *testing.T) {
	dir, address := t.TempDir(), freeAddress(t)
	o := penstock.Options{Server: embedded.Options{Dir: dir}, HTTP: penstock.HTTP{Listen: address}}
	other := open(t, penstock.Options{Server: embedded.Options{Dir: dir}})
	if _, err := penstock.Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), dir) {
		t.Fatalf("two servers in one directory: %v", err)
	}
	other.Close()
	open(t, o) // the port is free, and so is the directory
}

func TestNoNATSAtTheURLIsAnErrorAtOnce(t *testing.T) {
	_, err := penstock.Open(t.Context(), penstock.Options{URL: "nats://me:secret@" + freeAddress(t)})
	if err == nil || !strings.Contains(err.Error(), "connect to NATS at nats://127.0.0.1:") ||
		strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestStartWithoutNATSAnswersChecksUntilItIsThere(t *testing.T) {
	address := freeAddress(t)
	p := open(t, penstock.Options{URL: "nats://" + address, StartWithoutNATS: true,
		Policies: []policy.Policy{door("signup"), paced("mail", 100, 10)}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	eventually(t, "checks are not answered", func() bool {
		checked, err := p.Check(t.Context(), penstock.Request{Policy: "signup"})
		return err == nil && checked.Limit == 2
	})
	if _, err := p.Submit(t.Context(), penstock.Job{Policy: "mail"}); !errors.Is(err,
		admission.ErrUnavailable) {
		t.Errorf("a job without NATS: %v", err)
	}
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: address})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	receive(t, p.Ready())
	if _, err := p.Submit(t.Context(), penstock.Job{Policy: "mail"}); err != nil {
		t.Error(err)
	}
	cancel()
	if err := receive(t, ended); err != nil {
		t.Error(err)
	}
	p.Close() // before the server
}

func TestOpenEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := penstock.Open(ctx, penstock.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("before: %v", err)
	}

	// A server that takes connections and says nothing.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := penstock.Open(ctx,
		penstock.Options{URL: "nats://" + silent.Addr().String()}); err == nil {
		t.Error("opened")
	}
}

func TestRunIsCalledOnce(t *testing.T) {
	p := open(t, penstock.Options{})
	stop := run(t, p)
	if err := p.Run(t.Context()); err == nil {
		t.Error("it runs twice")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	p.Close()
	p.Close()
	if err := p.Run(t.Context()); !errors.Is(err, penstock.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestHandlersAreRegisteredBeforeRun(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("mail", 1, 1)}})
	admits := open(t, penstock.Options{AdmitOnly: true})
	handle := func(context.Context, workers.Job) error { return nil }
	p.Handle("mail", handle)
	run(t, p)
	for name, mistake := range map[string]func(){
		"after Run":  func() { p.Handle("other", handle) },
		"nil":        func() { admits.Handle("mail", nil) },
		"admit only": func() { admits.Handle("mail", handle) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: taken", name)
				}
			}()
			mistake()
		}()
	}
}

func TestCloseLetsRunningJobsFinish(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("mail", 100, 10)}})
	began, finish := make(chan struct{}), make(chan struct{})
	finished := false
	p.Handle("mail", func(context.Context, workers.Job) error {
		close(began)
		<-finish
		finished = true
		return nil
	})
	run(t, p)
	if _, err := p.Submit(t.Context(), penstock.Job{Policy: "mail"}); err != nil {
		t.Fatal(err)
	}
	receive(t, began)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		p.Close()
	}()
	eventually(t, "it does not stop", func() bool {
		return errors.Is(p.Health(),
			admission.ErrStopping)
	})
	select {
	case <-closed:
		t.Error("closed while a job ran")
	default:
	}
	close(finish)
	receive(t, closed)
	if !finished {
		t.Error("the job was cut off")
	}
}

func TestGraceEndsJobsThatDoNotFinish(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("mail", 100, 10)},
		Grace: time.Millisecond})
	began := make(chan struct{})
	p.Handle("mail", func(ctx context.Context, _ workers.Job) error {
		close(began)
		<-ctx.Done()
		return ctx.Err()
	})
	stop := run(t, p)
	if _, err := p.Submit(t.Context(), penstock.Job{Policy: "mail"}); err != nil {
		t.Fatal(err)
	}
	receive(t, began)
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestTheAPIsAreServedWhenAsked(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("mail", 1, 5)}, AdmitOnly: true,
		HTTP: penstock.HTTP{Listen: "127.0.0.1:0"}, ServeNATS: true})
	stop := run(t, p)
	post := func(base string) {
		t.Helper()
		response, err := http.Post(base+"/v1/jobs/mail/customer-1", "", strings.NewReader("letter"))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusAccepted {
			t.Errorf("%s %s, %v", response.Status, body, err)
		}
	}
	post("http://" + p.HTTPAddr().String())
	own := httptest.NewServer(p.Handler())
	defer own.Close()
	post(own.URL)

	nc, err := p.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for subject, want := range map[string]string{
		"penstock.submit.mail.customer-1": `{"verdict":"queued","job":"mail:3"}`,
	} {
		if m, err := nc.Request(subject, []byte("letter"),
			patience); err != nil || string(m.Data) != want {
			t.Errorf("%s: %v, %v", subject, m, err)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestPoliciesAreKeptForAStartWithoutNATS(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "policies.json")
	p := open(t, penstock.Options{Policies: []policy.Policy{door("signup")}, Cache: cache})
	stop := run(t, p)
	eventually(t, "nothing is kept", func() bool {
		m,
			err := filepath.Glob(cache)
		return err == nil && len(m) == 1
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	without := open(t, penstock.Options{URL: "nats://" + freeAddress(t), StartWithoutNATS: true,
		Cache: cache})
	run := make(chan error, 1)
	go func() { run <- without.Run(t.Context()) }()
	eventually(t, "checks are not answered", func() bool {
		checked, err := without.Check(t.Context(), penstock.Request{Policy: "signup"})
		return err == nil && checked.Limit == 2
	})
	without.Close()
	if err := receive(t, run); err != nil {
		t.Error(err)
	}
}

// freeAddress is one that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
