package penstock_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
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

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/certtest"
	"github.com/penstock-mq/penstock/internal/waittest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

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
		End      job.End
		Attempts int
	}
	status, body := ask(t, p, "POST", "/v1/jobs/pay/a?wait=1m", "")
	if err := json.Unmarshal([]byte(body), &first); err != nil || status != 200 ||
		first.End != job.EndDone || first.Attempts != 0 {
		t.Fatalf("%d %s, %v", status, body, err)
	}
	if pause, outcome := receive(t, hints), receive(t, outcomes); pause < 50*time.Minute ||
		pause > time.Hour || outcome != "done" {
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
