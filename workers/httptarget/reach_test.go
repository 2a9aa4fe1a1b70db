package httptarget

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/base/reach"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
)

func of(t *testing.T, choose func(inforce.Entry) (workers.Handler, error), source string,
	target policy.HTTPTarget) workers.Handler {

	t.Helper()
	handle, err := choose(inforce.Entry{TargetSource: source,
		Policy: policy.Policy{Name: "api", Target: &policy.Target{HTTP: &target}}})
	if err != nil {
		t.Fatal(err)
	}
	return handle
}

// A policy from the API must not make its drainer access addresses that only the drainer's machine
// can reach.
func TestForbiddenTargets(t *testing.T) {
	var asked atomic.Int64
	base := serve(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	_, port, _ := strings.Cut(strings.TrimPrefix(base, "http://"), ":")
	choose := New(Options{})
	// In this order: other policies must not use a connection kept for the file's policy.
	for _, c := range []struct {
		source, url, want string
	}{
		{inforce.SourceFile, base, ""},
		{inforce.SourceAPI, base, "127.0.0.1 is this machine's own"},
		{"", base, "127.0.0.1 is this machine's own"},
		{inforce.SourceAPI, "http://localhost:" + port, "is this machine's own"},
		{inforce.SourceAPI, "http://[::ffff:127.0.0.1]:" + port, "127.0.0.1 is this machine's own"},
		{inforce.SourceAPI, "http://0.0.0.0:" + port, "is this machine's own"},
		{inforce.SourceAPI, "http://169.254.169.254/latest/meta-data",
			"169.254.169.254 is link-local"},
		{inforce.SourceFile, "http://169.254.169.254/latest/meta-data",
			"169.254.169.254 is link-local"},
	} {
		before := asked.Load()
		err := of(t, choose, c.source, policy.HTTPTarget{URL: c.url})(within(t), workers.Job{})
		if c.want == "" {
			if err != nil || asked.Load() == before {
				t.Errorf("%s of %q: %v", c.url, c.source, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "targets.allow") ||
			!workers.IsUnavailable(err) || asked.Load() != before {
			t.Errorf("%s of %q: %v", c.url, c.source, err)
		}
	}
	allowing := New(Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err := of(t, allowing, inforce.SourceAPI, policy.HTTPTarget{URL: base})(within(t),
		workers.Job{}); err != nil {
		t.Errorf("an allowed one: %v", err)
	}
}

// A proxy from the environment is the operator's choice, at any address.
func TestAProxyMayBeAnywhere(t *testing.T) {
	asked := make(chan string, 1)
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- r.URL.String()
	}))
	defer proxy.Close()
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := guarded(reach.Rules{}, func(*http.Request) (*url.URL, error) { return at, nil })
	response, err := client.Get("http://target.example/x")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if got := <-asked; got != "http://target.example/x" {
		t.Errorf("the proxy was asked for %s", got)
	}
}

func TestHeadersFromFiles(t *testing.T) {
	seen := make(chan []string, 1)
	base := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		seen <- r.Header["Authorization"]
	})
	file := filepath.Join(t.TempDir(), "token")
	write := func(value string, modified time.Time) {
		t.Helper()
		if err := os.WriteFile(file, []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, modified, modified); err != nil {
			t.Fatal(err)
		}
	}
	target := policy.HTTPTarget{URL: base,
		Headers: policy.TargetHeaders{"Authorization": {File: file}}}
	job := workers.Job{Header: nats.Header{"Penstock-Forward-Authorization": {"forwarded"}}}
	choose := New(Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	handle := of(t, choose, inforce.SourceFile, target)

	err := handle(within(t), job)
	if !workers.IsMisconfigured(err) || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("without the file: %v", err)
	}
	now := time.Now()
	for i, value := range []string{"Bearer one", "Bearer two\n"} {
		write(value, now.Add(time.Duration(i)*time.Second))
		if err := handle(within(t), job); err != nil {
			t.Fatal(err)
		}
		if got := <-seen; fmt.Sprint(got) != fmt.Sprint([]string{strings.TrimSpace(value)}) {
			t.Errorf("sent %q", got)
		}
	}
	write("Bearer three\nX-Other: secret", now.Add(time.Minute))
	if err := handle(within(t), job); err == nil || strings.Contains(err.Error(), "three") {
		t.Errorf("two lines: %v", err)
	}
	// Authors of policies through the API must not be able to send the drainer's files anywhere.
	if err := of(t, choose, inforce.SourceAPI, target)(within(t), workers.Job{}); err != nil {
		t.Fatal(err)
	}
	if got := <-seen; len(got) > 0 {
		t.Errorf("for a policy of the API: %q", got)
	}
}

// Targets may quote rejected requests, and their responses are stored with the job.
func TestCredentialsAreNotInErrors(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, "not with ", r.Header.Get("Authorization"), " and ",
			r.Header.Get("X-Api-Key"))
	})
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("Bearer from-a-file"), 0o600); err != nil {
		t.Fatal(err)
	}
	handle := of(t, New(Options{}), inforce.SourceFile, policy.HTTPTarget{URL: base,
		Headers: policy.TargetHeaders{"Authorization": {File: file}}})
	job := workers.Job{Header: nats.Header{"Penstock-Forward-X-Api-Key": {"forwarded-one"}}}
	err := handle(within(t), job)
	if err == nil || !strings.HasSuffix(err.Error(), "not with [redacted] and [redacted]") {
		t.Errorf("got %v", err)
	}
	job.Header.Set("Penstock-Forward-X-Api-Key", "forwarded-one\n")
	if err := handle(within(t), job); err == nil || strings.Contains(err.Error(), "forwarded-one") {
		t.Errorf("got %v", err)
	}
}
