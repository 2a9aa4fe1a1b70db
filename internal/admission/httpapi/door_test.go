package httpapi

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/admission/manage"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// The host of the tests' requests, and the address of requests by [httptest.NewRequest].
var (
	testHosts   = []string{"x", "example.com"}
	testProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
)

func TestAMissingKeyIsAnError(t *testing.T) {
	service := &fakeService{}
	address := serve(t, service, Options{})
	for _, path := range []string{"/v1/jobs/stripe", "/v1/check/stripe"} {
		response, body := send(t, address,
			"POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
		if response.StatusCode != 400 || !strings.Contains(body, `"field":"key"`) ||
			!strings.Contains(body, "slash") {
			t.Errorf("%s: %s %s", path, response.Status, body)
		}
	}
	if len(service.submitted)+len(service.checked) > 0 {
		t.Errorf("asked %+v %+v", service.submitted, service.checked)
	}
}

func TestOptionsListTheMethods(t *testing.T) {
	i := install(t, manage.Options{})
	for path, allow := range map[string]string{
		"/v1/jobs/stripe/acme": "POST, GET, HEAD, OPTIONS",
		"/v1/jobs/stripe:1":    "POST, DELETE, PATCH, GET, HEAD, OPTIONS",
		"/v1/check/signup/x":   "GET, HEAD, POST, DELETE, OPTIONS",
		"/v1/purge/stripe/x":   "POST, OPTIONS",
		"/v1/purge/stripe":     "POST, OPTIONS",
		"/healthz":             "GET, HEAD, POST, OPTIONS",
	} {
		for method, status := range map[string]int{"OPTIONS": 204, "BREW": 405} {
			response, body := i.do(method, path, "")
			if response.StatusCode != status || response.Header.Get("Allow") != allow {
				t.Errorf("%s %s: %s, allow %q", method, path, response.Status,
					response.Header.Get("Allow"))
			}
			want := `"detail":"this path does not accept BREW, only ` + allow
			if status == 405 && !strings.Contains(body, want) {
				t.Errorf("%s %s: %s", method, path, body)
			}
		}
	}
}

func TestAnAcceptedJobHasItsLocation(t *testing.T) {
	i := install(t, manage.Options{})
	response, err := http.Post(i.url+"/v1/jobs/stripe/acme", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if got := response.Header.Get("Location"); response.StatusCode != 202 ||
		got != "/v1/jobs/stripe:1" {
		t.Errorf("%s, location %q", response.Status, got)
	}
}

// In DNS rebinding, a page's name resolves to this machine, so its requests are same-site; only the
// host's name differs.
func TestOnlyKnownHostsAreAnswered(t *testing.T) {
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "metrics")
	})
	handler := New(&fakeService{},
		Options{Metrics: metrics, Hosts: []string{"penstock.example", "*.internal.example"}})
	for _, path := range []string{"/v1/check/p/k", "/metrics", "/healthz", "/readyz"} {
		for host, known := range map[string]bool{
			"localhost": true, "LOCALHOST:8080": true, "localhost.": true, "app.localhost:80": true,
			"127.0.0.1:8080": true, "10.1.2.3": true, "[::1]:8080": true, "[fe80::1%25eth0]": true,
			"":                     true,
			"penstock.example:443": true, "Penstock.Example.": true, "a.internal.example": true,
			"a.b.internal.example": true,
			"internal.example":     false, "evil.example": false,
			"penstock.example.evil.example": false, "notlocalhost": false,
			"127.0.0.1.evil.example": false, "localhost.evil.example:8080": false,
			".localhost.": false,
		} {
			r := httptest.NewRequest("GET", path, nil)
			r.Host = host
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			want := 200
			if !known && (path == "/v1/check/p/k" || path == "/metrics") {
				want = 421
			}
			if w.Code == 429 {
				w.Code = 200
			}
			if w.Code != want {
				t.Errorf("%s from %q: %d %s", path, host, w.Code, w.Body)
			}
			if want == 421 && (!strings.Contains(w.Body.String(), "http.hosts") ||
				w.Header().Get("Content-Type") != "application/problem+json") {
				t.Errorf("%s from %q: %v %s", path, host, w.Header(), w.Body)
			}
		}
	}
}

// Only trusted proxies may name another client's address; otherwise limits by {ip} are void.
func TestOnlyProxiesNameTheirClients(t *testing.T) {
	service := &fakeService{}
	handler := New(service, Options{Hosts: testHosts, TrustedProxies: testProxies})
	for _, path := range []string{"/v1/check/p/k", "/v1/jobs/p/k"} {
		for remote, status := range map[string]int{"10.0.0.1:5": 400, "[2001:db8::1]:5": 400,
			"@":           400,
			"192.0.2.1:5": 200, "[::ffff:192.0.2.1]:5": 200} {
			r := httptest.NewRequest("POST", path, nil)
			r.RemoteAddr = remote
			r.Header.Set("Penstock-IP", "198.51.100.9")
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if (w.Code == 400) != (status == 400) ||
				status == 400 && !strings.Contains(w.Body.String(), "http.trusted_proxies") {
				t.Errorf("%s from %s: %d %s", path, remote, w.Code, w.Body)
			}
		}
	}
}

// A body that has not arrived holds no budget, and its connection only for seconds.
func TestABodyThatNeverComesHoldsNothing(t *testing.T) {
	budget := admit.NewBudget(admission.MaxBody + smallBody)
	service := &fakeService{}
	address := serve(t, service, Options{Budget: budget})
	slow := make([]net.Conn, 20)
	for i := range slow {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /v1/jobs/p/k HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\nx",
			admission.MaxBody)
		slow[i] = conn
	}
	all := admit.Client{Name: "all", Operator: true}
	const left = admission.MaxBody + smallBody - 20*smallBody
	waittest.Until(t, "all slow requests have begun", func() bool {
		if budget.Reserve(all, left+1) != nil {
			return true
		}
		budget.Release(all, left+1)
		return false
	})
	response, body := send(t, address,
		"POST /v1/jobs/p/k HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
	if response.StatusCode != 202 {
		t.Errorf("%s %s", response.Status, body)
	}
}

func TestAnUnexpectedBodyIsNotAwaited(t *testing.T) {
	i := install(t, manage.Options{})
	address := strings.TrimPrefix(i.url, "http://")
	response, body := send(t, address,
		"POST /v1/pause/stripe HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
	var problem struct{ Field string }
	if err := json.Unmarshal([]byte(body), &problem); err != nil || response.StatusCode != 400 ||
		problem.Field != "body" {
		t.Errorf("%s %s", response.Status, body)
	}
}

// A policy whose target is the admitter would give its jobs more rights than their publishers have.
func TestNoJobIsARequestHere(t *testing.T) {
	for _, path := range []string{"/v1/policies", "/v1/pause/stripe", "/v1/jobs/stripe/a",
		"/v1/check/stripe/a"} {
		r := httptest.NewRequest("POST", path, nil)
		r.Header.Set("Penstock-Job", "stripe-1-1")
		w := httptest.NewRecorder()
		New(&fakeService{}, Options{Hosts: testHosts}).ServeHTTP(w, r)
		if w.Code != 403 || !strings.Contains(w.Body.String(), "target") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
