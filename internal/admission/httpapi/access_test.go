package httpapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/admission/manage"
	"github.com/penstock-mq/penstock/internal/queue/jet"
)

var allRights = []access.Right{access.Submit, access.Check, access.Read, access.Operate,
	access.Admin}

// clientsOf makes clients whose tokens are their names.
func clientsOf(t *testing.T, lines ...string) func() *access.Clients {
	t.Helper()
	var text strings.Builder
	text.WriteString("clients:\n")
	for _, line := range lines {
		name, rest, _ := strings.Cut(line, " ")
		fmt.Fprintf(&text, "  - {name: %q, tokens: [%q], %s}\n", name, access.Sum(name), rest)
	}
	clients, err := access.Parse(strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	return func() *access.Clients { return clients }
}

// TestEachRouteNeedsItsRight calls each route with every right but one, with that right alone, with
// the right for other policies and keys, without a token and with a wrong one. Permitted calls
// panic in a management without NATS, which differs from 401 and 403.
func TestEachRouteNeedsItsRight(t *testing.T) {
	var lines []string
	for _, right := range allRights {
		var others []string
		for _, other := range allRights {
			if other != right {
				others = append(others, other.String())
			}
		}
		lines = append(lines,
			fmt.Sprintf("only-%s rights: [%[1]s], policies: ['*']", right),
			fmt.Sprintf("never-%s rights: [%s], policies: ['*']", right,
				strings.Join(others, ", ")),
			fmt.Sprintf("policy-%s rights: [%[1]s], policies: [p*]", right),
			fmt.Sprintf("key-%s rights: [%[1]s], policies: [p], keys: [k]", right),
			fmt.Sprintf("elsewhere-%s rights: [%[1]s], policies: [q], keys: [k]", right),
			fmt.Sprintf("other-key-%s rights: [%[1]s], policies: [p], keys: ['k?', 'kk*']", right))
	}
	h := New(&fakeService{}, Options{Hosts: testHosts, Clients: clientsOf(t, lines...),
		Metrics:    http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		Management: manage.New(new(jet.Broker), nil, manage.Options{})})
	for _, rt := range h.(*handler).routes() {
		path, _, _ := strings.Cut(rt.path, "?")
		named := strings.Contains(path, "{")
		keyed := strings.Contains(path, "{key...}")
		path = strings.NewReplacer("{policy}", "p", "{key...}", "k", "{job}", "p:1", "{id}",
			"1").Replace(path)
		ask := func(token string) int {
			r := httptest.NewRequest(rt.method, path, nil)
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			var challenge []string // RFC 9110's spelling, which Go would change
			for name, values := range w.Header() {
				if strings.EqualFold(name, "WWW-Authenticate") {
					challenge = append(challenge, values...)
				}
			}
			if (len(challenge) == 1) != (w.Code == http.StatusUnauthorized) {
				t.Errorf("%s %s: %d with the challenge %q", rt.method, path, w.Code, challenge)
			}
			if w.Code == 401 || w.Code == 403 {
				if kind := w.Header().Get("Content-Type"); kind != "application/problem+json" {
					t.Errorf("%s %s: %d as %s", rt.method, path, w.Code, kind)
				}
			}
			return w.Code
		}
		want := func(token string, status int) {
			t.Helper()
			got := ask(token)
			if got != status && (status != 0 || got == 401 || got == 403) {
				t.Errorf("%s %s as %q: %d, want %d", rt.method, path, token, got, status)
			}
		}
		if rt.right == 0 {
			want("", 0)
			want("wrong", 0)
			continue
		}
		permitted := func(yes bool) int {
			if yes {
				return 0
			}
			return http.StatusForbidden
		}
		right := rt.right.String()
		want("", http.StatusUnauthorized)
		want("wrong", http.StatusUnauthorized)
		if rt.right == access.Any {
			for _, any := range allRights {
				want("only-"+any.String(), 0)
				want("elsewhere-"+any.String(), 0)
			}
			continue
		}
		want("only-"+right, 0)
		want("never-"+right, http.StatusForbidden)
		want("policy-"+right, permitted(named || rt.each()))
		want("key-"+right, permitted(keyed || rt.each()))
		want("elsewhere-"+right, permitted(rt.each()))
		want("other-key-"+right, permitted(rt.each()))
	}
	for _, path := range []string{"/v1/", "/v1/nothing", "/v1/policies/p/nothing"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusUnauthorized {
			t.Errorf("%s as nobody: %d", path, w.Code)
		}
	}
}

func TestABatchChecksTheRightsForEachJob(t *testing.T) {
	service := &fakeService{}
	h := New(service, Options{Hosts: testHosts, Clients: clientsOf(t,
		"tenant rights: [submit], policies: [mail], keys: ['acme.*']")})
	body := `{"policy":"mail","key":"acme.1"}
{"policy":"mail","key":"other"}
{"policy":"stripe","key":"acme.1"}
{"policy":"mail","key":"acme.2"}`
	r := httptest.NewRequest(http.MethodPost, "/v1/jobs:batch", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer tenant")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	lines := strings.Split(strings.TrimSpace(w.Body.String()), "\n")
	if w.Code != 200 || len(lines) != 4 || len(service.submitted) != 2 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for i, status := range []string{"202", "403", "403", "202"} {
		if !strings.Contains(lines[i], `"status":`+status) {
			t.Errorf("want %s, not %s", status, lines[i])
		}
	}
}

func TestTheTokenOfARequestStaysOutOfItsJob(t *testing.T) {
	service := &fakeService{}
	h := New(service, Options{Hosts: testHosts,
		Clients: clientsOf(t, "a rights: [submit], policies: ['*']")})
	r := httptest.NewRequest(http.MethodPost, "/v1/jobs/p/k", nil)
	r.Header.Set("Authorization", "Bearer a")
	h.ServeHTTP(httptest.NewRecorder(), r)
	if len(service.submitted) != 1 || service.submitted[0].Header["Authorization"] != nil {
		t.Errorf("submitted %+v", service.submitted)
	}
}

func TestAClientSeesItsRights(t *testing.T) {
	h := New(&fakeService{}, Options{Hosts: testHosts, Clients: clientsOf(t,
		"tenant rights: [submit, read], policies: [mail], keys: ['acme.*']"),
		Management: manage.New(new(jet.Broker), nil, manage.Options{})})
	r := httptest.NewRequest(http.MethodGet, clientPath, nil)
	r.Header.Set("Authorization", "Bearer tenant")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	want := `{"name":"tenant","rights":["submit","read"],"policies":["mail"],"keys":["acme.*"]}`
	if w.Code != http.StatusOK || w.Body.String() != want {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestTheConsoleNeedsNoTokenButAKnownHost(t *testing.T) {
	h := New(&fakeService{}, Options{Hosts: testHosts,
		Clients: clientsOf(t, "a rights: [read], policies: [mail]"),
		Console: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
		})})
	for target, want := range map[string]int{"/": http.StatusTeapot,
		"/console": http.StatusTeapot, "/console/main.js": http.StatusTeapot,
		"/consoles": http.StatusNotFound, "http://elsewhere.test/console/": 421,
		"/v1/client": http.StatusUnauthorized} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", target, w.Code, want)
		}
	}
}
