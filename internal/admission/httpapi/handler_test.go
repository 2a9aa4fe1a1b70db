package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/server/health"
)

type fakeService struct {
	err   error
	panic any

	mu        sync.Mutex
	submitted []admit.SubmitRequest
	checked   []admit.CheckRequest
	peeked    []admit.CheckRequest
	refunded  []admit.CheckRequest
}

func (f *fakeService) Submit(_ context.Context,
	r admit.SubmitRequest) (admission.Outcome, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.panic != nil {
		panic(f.panic)
	}
	f.submitted = append(f.submitted, r)
	return admission.Outcome{Verdict: admission.Queued, Job: r.Policy + ":1", Remaining: -1,
		Quota: admission.Quota{Policy: r.Policy, Units: 5}}, f.err
}

func (f *fakeService) SubmitBatch(ctx context.Context,
	requests iter.Seq2[admit.SubmitRequest, error],
	tell func(admission.Outcome, error) error) error {
	for r, err := range requests {
		var o admission.Outcome
		if err == nil {
			o, err = f.Submit(ctx, r)
		}
		if err := tell(o, err); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeService) Check(_ context.Context,
	r admit.CheckRequest) (admission.Checked, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.checked = append(f.checked, r)
	return admission.Checked{Decision: algorithms.Decision{Allowed: true, Limit: 5}}, f.err
}

func (f *fakeService) Peek(_ context.Context, r admit.CheckRequest) (admission.Checked, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.peeked = append(f.peeked, r)
	return admission.Checked{Decision: algorithms.Decision{Limit: 5}}, f.err
}

func (f *fakeService) Refund(_ context.Context, r admit.CheckRequest) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refunded = append(f.refunded, r)
	return f.err
}

// send writes a request unchanged; http.Client would clean its path.
func send(t *testing.T, address, request string) (*http.Response, string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return exchange(t, conn, request)
}

func exchange(t *testing.T, conn net.Conn, request string) (*http.Response, string) {
	t.Helper()
	if request != "" {
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

func serve(t *testing.T, service Service, o Options) string {
	t.Helper()
	o.Hosts = testHosts
	server := httptest.NewServer(New(service, o))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestKeysAreTakenAsTheyAreEscaped(t *testing.T) {
	service := &fakeService{}
	address := serve(t, service, Options{})
	for _, c := range []struct{ path, policy, key string }{
		{"/stripe/acme", "stripe", "acme"},
		{"/stripe/", "stripe", "_"},
		{"/stripe/_", "stripe", "%5F"},
		{"/stripe//a//b/", "stripe", "/a//b/"},
		{"/stripe/../x/./y", "stripe", "%.%./x/./y"},
		{"/stripe/a%2Fb", "stripe", "a/b"},
		{"/stripe/a.b", "stripe", "a.b"},
		{"/stripe/%00", "stripe", "%00"},
		{"/stripe/%2A%3e", "stripe", "%2A%3E"},
		{"/stripe/k%C3%A4se%20%F0%9F%A7%80", "stripe", "k%C3%A4se%20%F0%9F%A7%80"},
		{"/stripe/käse", "stripe", "k%C3%A4se"},
		{"/stripe/a%3Fb%25", "stripe", "a?b%25"},
		{"/%73tripe/x", "stripe", "x"},
		{"/UPPER%20/x", "UPPER ", "x"},
		{"//x", "", "x"},
	} {
		service.submitted, service.checked = nil, nil
		for _, root := range []string{"/v1/jobs", "/v1/check"} {
			response, body := send(t, address,
				"POST "+root+c.path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
			if response.StatusCode >= 300 {
				t.Errorf("%s%s: %s %s", root, c.path, response.Status, body)
			}
		}
		if len(service.submitted) != 1 || len(service.checked) != 1 {
			continue
		}
		if got := service.submitted[0]; got.Policy != c.policy || string(got.Key) != c.key {
			t.Errorf("%s: policy %q, key %q, want %q", c.path, got.Policy, got.Key, c.key)
		}
		if got := service.checked[0]; got.Policy != c.policy || string(got.Key) != c.key ||
			got.Cost != 1 {
			t.Errorf("%s: %+v", c.path, got)
		}
	}
}

func TestBadRequests(t *testing.T) {
	address := serve(t, &fakeService{}, Options{})
	long := strings.Repeat("x", 300)
	for _, c := range []struct {
		name, request string
		status        int
		field         string
	}{
		{"key of 300 bytes", "POST /v1/jobs/p/" + long, 400, "key"},
		{"key that is not UTF-8", "POST /v1/jobs/p/%ff%fe", 400, "key"},
		{"question mark in a job's key", "POST /v1/jobs/p/what?really=1", 400, "really"},
		{"question mark at its end", "POST /v1/jobs/p/what?", 400, "query"},
		{"question mark in a check's key", "POST /v1/check/p/what?", 400, "query"},
		{"misspelt cost", "POST /v1/check/p/k?costs=1", 400, "costs"},
		{"no cost", "POST /v1/check/p/k?cost=", 400, "cost"},
		{"cost that is no number", "POST /v1/check/p/k?cost=1.5", 400, "cost"},
		{"cost in hex", "POST /v1/check/p/k?cost=0x10", 400, "cost"},
		{"huge cost", "POST /v1/check/p/k?cost=99999999999999999999", 400, "cost"},
		{"two costs", "POST /v1/check/p/k?cost=1&cost=2", 400, "cost"},
		{"bad query", "POST /v1/check/p/k?cost=%zz", 400, "query"},
		{"semicolon", "POST /v1/check/p/k?cost=1;2", 400, "query"},
		{"check with a job's header", "POST /v1/check/p/k HTTP/1.1\r\nPenstock-Deadline: 1s", 400,
			"Penstock-Deadline"},
		{"check with a bad cost header", "GET /v1/check/p/k HTTP/1.1\r\npenstock-cost: x", 400,
			"Penstock-Cost"},
		{"unknown path", "GET /v1/other", 404, ""},
		{"root", "GET /", 404, ""},
		{"healthz and more", "GET /healthz/x", 404, ""},
		{"double slash in front", "POST //v1/jobs/p/k", 404, ""},
		{"get a job", "GET /v1/jobs/p/k", 405, ""},
		{"put a job", "PUT /v1/jobs/p/k", 405, ""},
		{"put a check", "PUT /v1/check/p/k", 405, ""},
		{"a made-up method", "BREW /v1/check/p/k", 405, ""},
		{"post to readyz", "POST /readyz", 405, ""},
		{"metrics without metrics", "GET /metrics", 404, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			request := c.request
			if !strings.Contains(request, "HTTP/1.1") {
				request += " HTTP/1.1"
			}
			response, body := send(t, address, request+"\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
			var problem struct {
				Status int
				Field  string
				Reason string
			}
			if err := json.Unmarshal([]byte(body), &problem); err != nil {
				t.Fatalf("%s: %q: %v", response.Status, body, err)
			}
			if response.StatusCode != c.status || problem.Status != c.status ||
				problem.Field != c.field ||
				(c.field != "" && problem.Reason == "") {
				t.Errorf("%s %s", response.Status, body)
			}
			if got := response.Header.Get("Content-Type"); got != "application/problem+json" {
				t.Errorf("content type %q", got)
			}
			if c.status == 405 != (response.Header.Get("Allow") != "") {
				t.Errorf("allow %q", response.Header.Get("Allow"))
			}
		})
	}
	// net/http refuses these before any handler.
	for _, request := range []string{"POST /v1/jobs/p/\x00", "POST /v1/jobs/p/%zz", "GARBAGE"} {
		response, _ := send(t, address, request+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
		if response.StatusCode != 400 {
			t.Errorf("%q: %s", request, response.Status)
		}
	}
}

func TestBodies(t *testing.T) {
	service := &fakeService{}
	address := serve(t, service, Options{})
	post := func(body io.Reader) *http.Response {
		t.Helper()
		response, err := http.Post("http://"+address+"/v1/jobs/p/k", "text/plain", body)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		return response
	}
	// of unknown length
	stream := func(n int) io.Reader { return io.MultiReader(bytes.NewReader(make([]byte, n))) }
	for _, c := range []struct {
		name   string
		body   io.Reader
		size   int
		status int
	}{
		{"empty", nil, 0, 202},
		{"NUL bytes", bytes.NewReader(make([]byte, 100)), 100, 202},
		{"as large as can be", bytes.NewReader(make([]byte, admission.MaxBody)), admission.MaxBody,
			202},
		{"streamed", stream(admission.MaxBody), admission.MaxBody, 202},
		{"a byte more", bytes.NewReader(make([]byte, admission.MaxBody+1)), 0, 413},
		{"a byte more, streamed", stream(admission.MaxBody + 1), 0, 413},
		{"10 MB", bytes.NewReader(make([]byte, 10<<20)), 0, 413},
		{"10 MB streamed", stream(10 << 20), 0, 413},
	} {
		t.Run(c.name, func(t *testing.T) {
			service.submitted = nil
			response := post(c.body)
			if response.StatusCode != c.status {
				t.Fatalf("got %s", response.Status)
			}
			if asked := len(service.submitted); (c.status == 202) != (asked == 1) {
				t.Fatalf("the service was asked %d times", asked)
			}
			if c.status == 202 && len(service.submitted[0].Body) != c.size {
				t.Errorf("a body of %d bytes arrived", len(service.submitted[0].Body))
			}
		})
	}
	t.Run("one that ends early", func(t *testing.T) {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "POST /v1/jobs/p/k HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		response, body := exchange(t, conn, "")
		if response.StatusCode != 400 || !strings.Contains(body, `"field":"body"`) {
			t.Errorf("%s %s", response.Status, body)
		}
	})
}

func TestBodiesStayWithinTheBudget(t *testing.T) {
	budget := admit.NewBudget(13_000)
	address := serve(t, &fakeService{}, Options{Budget: budget})
	const request = "POST /v1/jobs/p/k HTTP/1.1\r\nHost: x\r\n"
	for range 3 {
		response, body := send(t, address,
			request+"Content-Length: 10000\r\n\r\n"+strings.Repeat("x", 10_000))
		if response.StatusCode != 202 {
			t.Fatalf("%s %s", response.Status, body)
		}
	}
	response, _ := send(t, address,
		request+"Content-Length: 13001\r\n\r\n"+strings.Repeat("x", 13_001))
	if response.StatusCode != 503 || response.Header.Get("Retry-After") != "1" {
		t.Errorf("%s, retry after %q", response.Status, response.Header.Get("Retry-After"))
	}
	if err := budget.Reserve(admit.Client{Operator: true}, 13_000); err != nil {
		t.Errorf("something was not released: %v", err)
	}
}

func TestCheckMethods(t *testing.T) {
	service := &fakeService{}
	handler := New(service, Options{Hosts: testHosts, TrustedProxies: testProxies})
	ask := func(method, target string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, target, nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	ask("POST", "/v1/check/p/k?cost=3")
	ask("POST", "/v1/check/p/k", "Penstock-Cost", "4")
	ask("GET", "/v1/check/p/k?cost=5")
	ask("HEAD", "/v1/check/p/k")
	ask("POST", "/v1/check/p/k", "Penstock-Peek", "true")
	for _, w := range []*httptest.ResponseRecorder{
		ask("DELETE", "/v1/check/p/k?cost=6"),
		ask("POST", "/v1/check/p/k", "Penstock-Refund", "true"),
	} {
		if w.Code != 204 || w.Body.Len() > 0 || w.Header().Get("Content-Length") != "" {
			t.Errorf("a refund: %d, %v, %q", w.Code, w.Header(), w.Body)
		}
	}
	if len(service.refunded) != 2 || service.refunded[0].Cost != 6 {
		t.Errorf("refunded %+v", service.refunded)
	}
	if w := ask("POST", "/v1/check/p/k?cost=2", "Penstock-Cost", "3"); w.Code != 400 {
		t.Errorf("two costs: %d %s", w.Code, w.Body)
	}
	for _, w := range []*httptest.ResponseRecorder{
		ask("GET", "/v1/check/p/k", "Penstock-Refund", "true"),
		ask("DELETE", "/v1/check/p/k", "Penstock-Peek", "true"),
	} {
		if w.Code != 400 {
			t.Errorf("a method against its headers: %d %s", w.Code, w.Body)
		}
	}
	if len(service.checked) != 2 || service.checked[0].Cost != 3 || service.checked[1].Cost != 4 {
		t.Errorf("checked %+v", service.checked)
	}
	if len(service.peeked) != 3 || service.peeked[0].Cost != 5 {
		t.Errorf("peeked %+v", service.peeked)
	}
}

func TestClientsAreKnownByTheirAddress(t *testing.T) {
	service := &fakeService{}
	handler := New(service, Options{Hosts: testHosts, TrustedProxies: testProxies})
	for _, c := range []struct{ remote, header, want string }{
		{"192.0.2.1:1234", "", "192.0.2.1"},
		{"[2001:db8:1:2::7]:1234", "", "2001:db8:1:2::/64"},
		{"[fe80::1%eth0]:1234", "", "fe80::/64"},
		{"192.0.2.1:1234", "198.51.100.9", "198.51.100.9"},
		{"@", "", ""}, // a Unix socket
	} {
		r := httptest.NewRequest("POST", "/v1/check/p/k", nil)
		r.RemoteAddr = c.remote
		if c.header != "" {
			r.Header.Set("Penstock-IP", c.header)
		}
		handler.ServeHTTP(httptest.NewRecorder(), r)
		if got := service.checked[len(service.checked)-1].IP; got != c.want {
			t.Errorf("%s, %q: %q, want %q", c.remote, c.header, got, c.want)
		}
	}
	r := httptest.NewRequest("POST", "/v1/jobs/p/k", nil)
	handler.ServeHTTP(httptest.NewRecorder(), r)
	if got := service.submitted[0].IP; got != "192.0.2.1" {
		t.Errorf("a job's client: %q", got)
	}
}

func TestCrossSiteRequestsAreRefused(t *testing.T) {
	service := &fakeService{}
	handler := New(service, Options{Hosts: testHosts, TrustedProxies: testProxies})
	for _, target := range []string{"/v1/jobs/p/k", "/v1/check/p/k"} {
		r := httptest.NewRequest("POST", target, nil)
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != 403 || len(service.submitted)+len(service.checked) > 0 {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
}

func TestHeadersReachTheService(t *testing.T) {
	service := &fakeService{}
	r := httptest.NewRequest("POST", "/v1/jobs/p/k", strings.NewReader("x"))
	r.Header.Set("idempotency-key", "order-1")
	New(service,
		Options{Hosts: testHosts, TrustedProxies: testProxies}).ServeHTTP(httptest.NewRecorder(), r)
	if got := service.submitted[0].Header["Idempotency-Key"]; len(got) != 1 || got[0] != "order-1" {
		t.Errorf("got %v", service.submitted[0].Header)
	}
}

func TestErrorsAndPanics(t *testing.T) {
	for _, c := range []struct {
		service *fakeService
		status  int
	}{
		{&fakeService{err: admission.ErrUnknownPolicy}, 404},
		{&fakeService{err: admission.ErrConflict}, 409},
		{&fakeService{err: admission.ErrTooLarge}, 413},
		{&fakeService{err: admission.ErrUnavailable}, 503},
		{&fakeService{err: errors.New("a bug")}, 500},
		{&fakeService{panic: "a bug"}, 500},
	} {
		w := httptest.NewRecorder()
		New(c.service, Options{Hosts: testHosts}).ServeHTTP(w,
			httptest.NewRequest("POST", "/v1/jobs/p/k", nil))
		if w.Code != c.status || strings.Contains(w.Body.String(), "a bug") {
			t.Errorf("%v: %d %s", c.service.err, w.Code, w.Body)
		}
	}
}

func TestOperation(t *testing.T) {
	var notReady error
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "metrics")
	})
	handler := New(&fakeService{}, Options{Hosts: testHosts, Metrics: metrics,
		Parts: func() []health.Part { return []health.Part{{Name: "policies", Err: notReady}} }})
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w
	}
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ready\n",
		"/metrics": "metrics"} {
		if w := get(path); w.Code != 200 || w.Body.String() != want {
			t.Errorf("%s: %d %q", path, w.Code, w.Body)
		}
	}
	notReady = errors.New("no policies yet")
	if w := get("/readyz"); w.Code != 503 || !strings.Contains(w.Body.String(), "no policies yet") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := get("/readyz?verbose"); w.Code != 503 ||
		w.Body.String() != "[-] policies: no policies yet\nnot ready\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	asked := httptest.NewRequest("GET", "/readyz?verbose", nil)
	asked.Header.Set("Accept", "application/json")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, asked)
	if want := `{"ready":false,"parts":[{"name":"policies","ok":false,` +
		`"status":"no policies yet"}]}`; w.Code != 503 ||
		strings.TrimSpace(w.Body.String()) != want {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := get("/healthz"); w.Code != 200 {
		t.Errorf("not ready is not unhealthy: %d", w.Code)
	}
}
