package penstock_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/kit/certtest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
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
	if job := waittest.Receive(t, jobs); job.ID != ticket.Job {
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
	waittest.Receive(t, p.Ready())
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
	if err := waittest.Receive(t, ended); err != nil {
		t.Error(err)
	}
	if err := p.Health(); !errors.Is(err, admit.ErrStopping) {
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
		"a wait during Close": waittest.Receive(t, waited)} {
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
	waittest.Receive(t, began)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		p.Close()
	}()
	eventually(t, "it does not stop", func() bool {
		return errors.Is(p.Health(), admit.ErrStopping)
	})
	select {
	case <-closed:
		t.Error("closed while a job ran")
	default:
	}
	close(finish)
	waittest.Receive(t, closed)
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
	waittest.Receive(t, began)
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

// The job whose answer reports the exhausted limit is done, the next one waits, and no attempt
// fails.
func TestATargetThatHasNothingLeftPausesItsBucket(t *testing.T) {
	var calls atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("X-RateLimit-Remaining", "0")
		w.Header().Set("X-RateLimit-Reset", "3600")
	}))
	defer target.Close()
	pay := paced("pay", 1000, 10)
	pay.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: target.URL}}
	hints, outcomes := make(chan time.Duration, 10), make(chan string, 10)
	p := open(t, penstock.Options{Policies: []policy.Policy{pay},
		AllowTargets: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Sink: queue.SinkFunc(func(e queue.Event) {
			switch e.Type {
			case queue.EventDone, queue.EventFailed, queue.EventThrottled:
				if e.PauseMS > 0 && e.Type != queue.EventThrottled {
					hints <- time.Duration(e.PauseMS) * time.Millisecond
				}
				outcomes <- e.Name
			}
		})})
	run(t, p)

	var first struct {
		End      queue.End
		Attempts int
	}
	status, body := ask(t, p, "POST", "/v1/jobs/pay/a?wait=1m", "")
	if err := json.Unmarshal([]byte(body), &first); err != nil || status != 200 ||
		first.End != queue.EndDone || first.Attempts != 0 {
		t.Fatalf("%d %s, %v", status, body, err)
	}
	pause, outcome := waittest.Receive(t, hints), waittest.Receive(t, outcomes)
	if pause < 50*time.Minute || pause > time.Hour || outcome != "done" {
		t.Errorf("it is %s, with a pause of %v", outcome, pause)
	}
	eventually(t, "the valve has the outcome", func() bool { // after the event and the answer
		_, body := ask(t, p, "GET", "/v1/buckets/pay/a", "")
		return strings.Contains(body, `"throttled_ms":3`)
	})
	if status, body := ask(t, p, "POST", "/v1/jobs/pay/a", ""); status != 202 {
		t.Fatalf("%d %s", status, body)
	}
	for _, path := range []string{"/v1/buckets/pay/a", "/v1/jobs/pay:2"} {
		var state struct {
			BlockedBy string `json:"blocked_by"`
			Attempts  int
		}
		eventually(t, path+" shows the pause", func() bool {
			status, body := ask(t, p, "GET", path, "")
			if status == 200 {
				if err := json.Unmarshal([]byte(body), &state); err != nil {
					t.Fatalf("%s: %v", body, err)
				}
			}
			return state.BlockedBy == job.BlockedByThrottled
		})
		if state.Attempts != 0 {
			t.Errorf("%s: %d attempts", path, state.Attempts)
		}
	}
	if n := calls.Load(); n != 1 || len(hints) != 0 || len(outcomes) != 0 {
		t.Errorf("the target was called %d times", n)
	}
}

// An operator can change the rate of a policy whose target only the file may set, without weakening
// that rule.
func TestARateChangesWithATargetFromTheFile(t *testing.T) {
	keys := make(chan string, 10)
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Authorization")
	}))
	defer target.Close()
	secret := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(secret, []byte("Bearer of-the-file"), 0o600); err != nil {
		t.Fatal(err)
	}
	billing := paced("billing", 1000, 10)
	billing.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: target.URL,
		Headers: policy.TargetHeaders{"Authorization": {File: secret}}}}
	p := open(t, penstock.Options{Policies: []policy.Policy{billing}})
	run(t, p)
	const path = "/v1/policies/billing"
	works := func(when string) {
		t.Helper()
		if status, body := ask(t, p, "POST", "/v1/jobs/billing/a?wait=1m", ""); status != 200 {
			t.Fatalf("%s: %d %s", when, status, body)
		}
		if key := <-keys; key != "Bearer of-the-file" {
			t.Errorf("%s the target gets the key %q", when, key)
		}
	}
	works("at first")

	status, body := ask(t, p, "PATCH", path, `{"outflow":"2/s"}`)
	if status != 200 || !strings.Contains(body, "file: 1000/s, now 2/s by 192.0.2.1") {
		t.Fatalf("%d %s", status, body)
	}
	works("after its rate was changed")
	var read struct{ Policy map[string]any }
	_, body = ask(t, p, "GET", path, "")
	if err := json.Unmarshal([]byte(body), &read); err != nil {
		t.Fatal(err)
	}
	if read.Policy["outflow"] != "1000/s" {
		t.Errorf("what the file says is lost: %s", body)
	}
	read.Policy["outflow"] = "500/s"
	whole, err := json.Marshal(read.Policy)
	if err != nil {
		t.Fatal(err)
	}
	for method, path := range map[string]string{"POST": "/v1/release/billing",
		"DELETE": path + "/override"} {
		if status, body = ask(t, p, method, path, ""); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
	}
	if status, body = ask(t, p, "PUT", path, string(whole)); status != 200 {
		t.Errorf("it cannot be put as it was read: %d %s", status, body)
	}
	works("after it was put as a whole")

	for _, patch := range []string{
		`{"target":{"http":{"url":"` + target.URL + `/elsewhere"}}}`,
		`{"target":{"http":{"headers":{"Authorization":{"file":"/etc/passwd"}}}}}`,
		`{"outflow":"3/s","target":{"http":{"methods":["DELETE"]}}}`,
	} {
		if status, body = ask(t, p, "PATCH", path, patch); status != 400 {
			t.Errorf("%s: %d %s", patch, status, body)
		}
	}
	if status, body = ask(t, p, "PATCH", path,
		`{"target":{"http":{"url":"http://192.0.2.1","headers":null}}}`); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	if status, body = ask(t, p, "PATCH", path,
		`{"target":{"http":{"url":"`+target.URL+`"}}}`); status != 400 {
		t.Errorf("back at the file's address: %d %s", status, body)
	}
}

func TestJobsOfATargetBehindOAuth2AndClientCertificates(t *testing.T) {
	const secret, token = "s-e-c-r-e-t", "t-o-k-e-n"
	authority := certtest.New(t)
	cert, key := authority.Issue("localhost")
	serve := func(h http.HandlerFunc) string {
		server := httptest.NewUnstartedServer(h)
		server.TLS = authority.Client("localhost")
		server.TLS.ClientCAs, server.TLS.ClientAuth = server.TLS.RootCAs,
			tls.RequireAndVerifyClientCert
		server.StartTLS()
		t.Cleanup(server.Close)
		return server.URL
	}
	var down atomic.Bool
	down.Store(true)
	endpoint := serve(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			http.Error(w, secret, http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token": %q}`, token)
	})
	target := serve(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Echo", r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "%s shows %s", r.TLS.PeerCertificates[0].Subject.CommonName,
			r.Header.Get("Authorization"))
	})
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	files := policy.ClientTLS{CA: authority.File, Cert: cert, Key: key}
	pay := paced("pay", 1000, 10)
	pay.Retry = policy.Retry{Backoff: policy.Duration(10 * time.Millisecond), MaxAttempts: 25}
	pay.ResultRetention = policy.Duration(time.Hour)
	pay.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: target, TLS: files,
		OAuth2: &policy.OAuth2{TokenURL: endpoint, ClientID: "penstock", ClientSecretFile: file,
			TLS: files}}}
	var log, events waittest.Log
	p := open(t, penstock.Options{Policies: []policy.Policy{pay},
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Sink:   queue.SinkFunc(func(e queue.Event) { fmt.Fprintf(&events, "%+v\n", e) })})
	run(t, p)

	for range 8 {
		if status, body := ask(t, p, "POST", "/v1/jobs/pay/a", ""); status != 202 {
			t.Fatalf("%d %s", status, body)
		}
	}
	var shown []string
	waittest.Until(t, "the breaker is open", func() bool {
		_, body := ask(t, p, "GET", "/v1/jobs/pay:1", "")
		shown = append(shown, body)
		return strings.Contains(body, `"blocked_by":"breaker"`) &&
			strings.Contains(body, "answered 503")
	})
	down.Store(false)
	waittest.Until(t, "the target has answered", func() bool {
		_, body := ask(t, p, "GET", "/v1/dead/pay", "")
		shown = append(shown, body)
		return strings.Contains(body, "target answered 418: localhost shows [redacted]")
	})
	for _, path := range []string{"/v1/policies/pay", "/v1/policies/pay/history", "/v1/jobs/pay:1",
		"/v1/buckets/pay/a"} {
		_, body := ask(t, p, "GET", path, "")
		shown = append(shown, body)
	}
	for _, text := range append(shown, log.String(), events.String()) {
		if strings.Contains(text, secret) || strings.Contains(text, token) {
			t.Errorf("a secret shows: %s", text)
		}
	}
	if status, body := ask(t, p, "POST", "/v1/release/pay", ""); status != 200 {
		t.Fatal(status, body)
	}
	for _, field := range []string{"oauth2", "tls"} {
		patch := map[string]string{"oauth2": `{"client_id":"other"}`, "tls": `{"ca":"/etc/passwd"}`}
		if status, body := ask(t, p, "PATCH", "/v1/policies/pay",
			`{"target":{"http":{"`+field+`":`+patch[field]+`}}}`); status != 400 {
			t.Errorf("%s over the API: %d %s", field, status, body)
		}
	}
}
