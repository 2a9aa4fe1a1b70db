package httptarget

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/certtest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
)

type issuer struct {
	mu      sync.Mutex
	secret  string
	life    int
	down    bool
	issued  int
	valid   map[string]bool
	asked   url.Values
	waiting chan struct{}
}

func (i *issuer) set(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
}

func (i *issuer) token(w http.ResponseWriter, r *http.Request) {
	if i.waiting != nil {
		<-i.waiting
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	id, secret, _ := r.BasicAuth()
	switch {
	case i.down:
		http.Error(w, "no tokens: "+r.Header.Get("Authorization"), http.StatusBadGateway)
		return
	case id != "penstock" || secret != i.secret:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"error": "invalid_client", "error_description": "not %s"}`, secret)
		return
	}
	_ = r.ParseForm()
	i.asked = r.PostForm
	i.issued++
	token := fmt.Sprintf("token-number-%d", i.issued)
	i.valid["Bearer "+token] = true
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"access_token": %q, "token_type": "bearer", "expires_in": %d}`,
		token, i.life)
}

func (i *issuer) target(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.valid[r.Header.Get("Authorization")] {
		http.Error(w, "not with "+r.Header.Get("Authorization"), http.StatusUnauthorized)
	}
}

func (i *issuer) count() (issued int) {
	i.set(func() { issued = i.issued })
	return issued
}

func (i *issuer) start(t *testing.T) (handle workers.Handler, file string) {
	t.Helper()
	i.secret, i.valid = "first-secret", map[string]bool{}
	file = filepath.Join(t.TempDir(), "secret")
	put(t, file, i.secret)
	return of(t, New(Options{}), inforce.SourceFile, policy.HTTPTarget{
		URL: serve(t, i.target),
		OAuth2: &policy.OAuth2{TokenURL: serve(t, i.token), ClientID: "penstock",
			ClientSecretFile: file, Scopes: []string{"a", "b"},
			Params: map[string]string{"audience": "billing"}},
	}), file
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

func TestATokenIsSharedAndRenewedBeforeItExpires(t *testing.T) {
	i := &issuer{life: 1, waiting: make(chan struct{})}
	handle, _ := i.start(t)
	const jobs = 20
	errs := make(chan error, jobs)
	for range jobs {
		go func() { errs <- handle(within(t), workers.Job{}) }()
	}
	close(i.waiting)
	for range jobs {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := i.count(); n > 2 {
		t.Errorf("%d tokens were issued for %d jobs", n, jobs)
	}
	if i.asked.Get("scope") != "a b" || i.asked.Get("audience") != "billing" {
		t.Errorf("asked with %v", i.asked)
	}
	waittest.Until(t, "tokens are renewed", func() bool {
		if err := handle(within(t), workers.Job{}); err != nil {
			t.Fatalf("while tokens expire: %v", err)
		}
		return i.count() > 3
	})
}

func TestARevokedTokenFailsAnAttemptAndIsReplaced(t *testing.T) {
	i := &issuer{}
	handle, _ := i.start(t)
	if err := handle(within(t), workers.Job{}); err != nil {
		t.Fatal(err)
	}
	i.set(func() { clear(i.valid) })
	waittest.Until(t, "the token is replaced", func() bool {
		err := handle(within(t), workers.Job{})
		if err != nil &&
			(verdict(err) != "failed" || strings.Contains(err.Error(), "token-number")) {
			t.Fatalf("a revoked token: %s, %v", verdict(err), err)
		}
		return err == nil
	})
	if n := i.count(); n != 2 {
		t.Errorf("%d tokens were issued", n)
	}
}

func TestWithoutATokenTheTargetIsUnavailable(t *testing.T) {
	i := &issuer{down: true}
	handle, file := i.start(t)
	refused := func(when, want string) {
		t.Helper()
		err := handle(within(t), workers.Job{})
		if !workers.IsUnavailable(err) || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "Basic") {
			t.Errorf("%s: %v", when, err)
		}
	}
	refused("the endpoint is down", "answered 502")
	i.set(func() { i.down, i.secret = false, "second-secret" })
	refused("the secret is the former one", `answered 401 "invalid_client"`)
	put(t, file, "second-secret")
	if err := handle(within(t), workers.Job{}); err != nil {
		t.Errorf("with the new secret: %v", err)
	}
}

func TestAnEndpointThatHangsHoldsAJobForItsOwnTimeOnly(t *testing.T) {
	i := &issuer{waiting: make(chan struct{})}
	handle, _ := i.start(t)
	defer close(i.waiting)
	ended := make(chan error, 2)
	for range cap(ended) {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			ended <- handle(ctx, workers.Job{})
		}()
	}
	for range cap(ended) {
		if err := <-ended; !workers.IsUnavailable(err) {
			t.Errorf("got %v", err)
		}
	}
}

func TestClientCertificates(t *testing.T) {
	first, second := certtest.New(t), certtest.New(t)
	var mu sync.Mutex
	accepts, seen := first, ""
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request) {

		mu.Lock()
		defer mu.Unlock()
		seen = fmt.Sprint(r.TLS.PeerCertificates[0].Subject.CommonName, " ", r.ProtoMajor)
	}))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		config := accepts.Client("server")
		config.ClientCAs, config.ClientAuth = config.RootCAs, tls.RequireAndVerifyClientCert
		config.NextProtos = []string{"h2", "http/1.1"}
		return config, nil
	}}
	server.StartTLS()
	defer server.Close()

	dir := t.TempDir()
	files := policy.ClientTLS{CA: filepath.Join(dir, "ca"), Cert: filepath.Join(dir, "cert"),
		Key: filepath.Join(dir, "key")}
	install := func(of *certtest.Authority, name string) {
		t.Helper()
		cert, key := of.Issue(name)
		for _, f := range [][2]string{{files.CA, of.File}, {files.Cert, cert}, {files.Key, key}} {
			text, err := os.ReadFile(f[1])
			if err != nil {
				t.Fatal(err)
			}
			put(t, f[0], string(text))
		}
	}
	target := policy.HTTPTarget{URL: server.URL, TLS: files}
	handle := of(t, New(Options{}), inforce.SourceFile, target)
	if err := handle(within(t), workers.Job{}); !workers.IsMisconfigured(err) ||
		!strings.Contains(err.Error(), "no such file") {
		t.Errorf("without files: %v", err)
	}
	install(first, "penstock-1")
	succeeds := func(want string) {
		t.Helper()
		if err := handle(within(t), workers.Job{}); err != nil || seen != want {
			t.Errorf("want %s, got %s, %v", want, seen, err)
		}
	}
	succeeds("penstock-1 2")
	install(first, "penstock-2") // renewed: a new connection although the former one is open
	succeeds("penstock-2 2")

	put(t, files.Key, "no key")
	if err := handle(within(t), workers.Job{}); !workers.IsMisconfigured(err) ||
		strings.Contains(err.Error(), "no key") {
		t.Errorf("with a file that is no key: %v", err)
	}
	mu.Lock()
	accepts = second
	mu.Unlock()
	install(second, "penstock-3")
	succeeds("penstock-3 2")

	handle = of(t, New(Options{}), inforce.SourceAPI, target)
	if err := handle(within(t), workers.Job{}); err == nil {
		t.Error("a policy of the API shows the drainer's certificate")
	}
}
