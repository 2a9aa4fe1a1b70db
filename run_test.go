package penstock_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/waittest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

func TestJobsWaitForRun(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("mail", 100, 10)}})
	ticket, err := p.Submit(t.Context(), penstock.Job{Policy: "mail"})
	if err != nil || ticket.Verdict != admission.Queued || ticket.DelayKnown {
		t.Fatalf("%+v, %v", ticket, err)
	}
	if got := depth(t, p, "mail"); got != 1 {
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

// A foreign stream captures the policy's subjects.
func TestOnePolicyWithoutAStreamIsNamedAndTheOthersAreReady(t *testing.T) {
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	nc, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHERS",
		Subjects: []string{"penstock.jobs.taken.>"}}); err != nil {
		t.Fatal(err)
	}
	p := open(t, penstock.Options{URL: server.URL(), Policies: []policy.Policy{
		paced("mail", 100, 10), paced("taken", 100, 10), paced("text", 100, 10)}})
	run(t, p)
	for _, name := range []string{"mail", "text"} {
		if _, err := p.Submit(t.Context(), penstock.Job{Policy: name}); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "it is not ready", func() bool { return p.Health() == nil })
	answer := httptest.NewRecorder()
	p.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "http://localhost/readyz", nil))
	if text := answer.Body.String(); answer.Code != http.StatusOK ||
		!strings.Contains(text, "stream of taken") || strings.Contains(text, "stream of mail") {
		t.Errorf("%d %s", answer.Code, text)
	}
}

func TestCloseEndsRun(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("mail", 1, 2)}})
	ended := make(chan error, 1)
	go func() { ended <- p.Run(context.Background()) }()
	receive(t, p.Ready())
	ticket, err := p.Submit(t.Context(), penstock.Job{Policy: "mail"})
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() {
		_, err := p.Wait(context.Background(), ticket.Job)
		waited <- err
	}()
	p.Close()
	if err := receive(t, ended); err != nil {
		t.Error(err)
	}
	if err := p.Health(); !errors.Is(err, admission.ErrStopping) {
		t.Errorf("health: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, submit := p.Submit(ctx, penstock.Job{Policy: "mail"})
	_, wait := p.Wait(ctx, "mail:1")
	_, acquire := p.Acquire(ctx, penstock.Call{Policy: "mail"})
	_, depths := p.Depths(ctx)
	for what, err := range map[string]error{"Submit": submit, "Wait": wait, "Acquire": acquire,
		"Depths": depths,
		"Cancel": p.Cancel(ctx, "mail:1"), "Reload": p.Reload(ctx, penstock.Options{}),
		"a wait during Close": receive(t, waited)} {
		if !errors.Is(err, penstock.ErrClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
	if !errors.Is(submit, penstock.ErrUnavailable) {
		t.Errorf("a job may be submitted elsewhere: %v", submit)
	}
}

func TestHandlersAreRegisteredBeforeRun(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("mail", 1, 1)}})
	admits := open(t, penstock.Options{AdmitOnly: true})
	twice := open(t, penstock.Options{})
	handle := func(context.Context, workers.Job) error { return nil }
	p.Handle("mail", handle)
	twice.Handle("mail", handle)
	run(t, p)
	for want, mistake := range map[string]func(){
		"penstock: a handler for policy other after Run": func() { p.Handle("other", handle) },
		"penstock: a second handler for policy mail":     func() { twice.Handle("mail", handle) },
		"workers: a nil handler for policy other":        func() { twice.Handle("other", nil) },
		"penstock: a handler for policy mail, and AdmitOnly": func() {
			admits.Handle("mail", handle)
		},
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("got %v, want %s", got, want)
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
		return errors.Is(p.Health(), admission.ErrStopping)
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
	m, err := nc.Request("penstock.submit.mail.customer-1", []byte("letter"), waittest.Patience())
	if err != nil || string(m.Data) != `{"verdict":"queued","job":"mail:3"}` {
		t.Errorf("%v, %v", m, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
