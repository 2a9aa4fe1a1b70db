package apitest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

type server struct {
	t    *testing.T
	d    *description
	url  string
	seen *seen
}

const (
	allowed = "may-everything"
	nothing = "may-nothing"
)

// start runs a server. Its target answers as a request's body demands: with 422, or after the test.
func start(t *testing.T, d *description, all *seen, o penstock.Options) *server {
	t.Helper()
	o.HTTP.Listen = "127.0.0.1:0"
	o.HTTP.Tokens = filepath.Join(t.TempDir(), "clients.yaml")
	o.HTTP.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprintln(w, "penstock_up 1")
	})
	o.AllowTargets = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	clients := fmt.Sprintf(`clients:
  - {name: all, tokens: [%q], rights: [submit, check, read, operate, admin], policies: ['*']}
  - {name: none, tokens: [%q], rights: [check], policies: [nobody-has-this]}
`, access.Sum(allowed), access.Sum(nothing))
	if err := os.WriteFile(o.HTTP.Tokens, []byte(clients), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := penstock.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if !o.StartWithoutNATS {
		select {
		case <-p.Ready():
		case <-time.After(waittest.Patience()):
			t.Fatal("the server is not ready")
		}
	}
	return &server{t, d, "http://" + p.HTTPAddr().String(), all}
}

// target starts a target, which answers after the test if the body demands it.
func target(t *testing.T) (url string, release func()) {
	t.Helper()
	over := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case strings.Contains(string(body), "refuse"):
			w.WriteHeader(http.StatusUnprocessableEntity)
		case strings.Contains(string(body), "hang"):
			<-over
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, func() { close(over) }
}

// ask sends a request with all rights, unless a header, "Name: value", replaces the token, and
// validates the answer. It returns the body.
func (s *server) ask(method, path, body string, want int, headers ...string) string {
	s.t.Helper()
	escaped, _, _ := strings.Cut(path, "?")
	operation := s.d.find(method, escaped)
	if operation == nil {
		s.t.Fatalf("openapi.yaml does not describe %s %s", method, path)
	}
	r, answer := s.send(method, path, body, headers...)
	if want != 0 && r.StatusCode != want {
		s.t.Errorf("%s %s: %d %s, want %d", method, path, r.StatusCode, answer, want)
	}
	as := s.d.hold(operation, r, answer, s.t.Errorf)
	s.seen.add(operation.OperationID, as)
	return string(answer)
}

func (s *server) send(method, path, body string, headers ...string) (*http.Response, []byte) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), waittest.Patience())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+allowed)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		return response, s.event(response)
	}
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response, answer
}

func (s *server) event(response *http.Response) []byte {
	s.t.Helper()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if data, is := strings.CutPrefix(lines.Text(), "data: "); is {
			s.d.check(s.t, "Event", data)
			return []byte(data)
		}
	}
	s.t.Fatal("the stream of events ended without one")
	return nil
}

func (s *server) unfit(method, path string) {
	s.t.Helper()
	s.ask(method, path, "", 401, "Authorization: Bearer wrong")
	if path != "/v1/client" {
		s.ask(method, path, "", 403, "Authorization: Bearer "+nothing)
	}
	s.ask(method, path, "", 421, "Host: elsewhere.test")
	s.ask(method, path+"?nope=1", "", 0)
	s.wrongMethod(path)
}

func (s *server) wrongMethod(path string) {
	s.t.Helper()
	if r, body := s.send("BREW", path, ""); r.StatusCode != 405 || r.Header.Get("Allow") == "" {
		s.t.Errorf("BREW %s: %d, Allow: %q", path, r.StatusCode, r.Header.Get("Allow"))
	} else {
		s.d.check(s.t, "Problem", string(body))
	}
}

func (s *server) until(path, text string) (answer string) {
	s.t.Helper()
	waittest.Until(s.t, "GET "+path+" says "+text, func() bool {
		_, body := s.send("GET", path, "")
		answer = string(body)
		return strings.Contains(answer, text)
	})
	return answer
}
