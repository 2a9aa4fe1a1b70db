package httptarget

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
)

func handlerFor(t *testing.T, base string) workers.Handler { return handlerWith(t, Client(), base) }

func handlerWith(t *testing.T, client *http.Client, base string) workers.Handler {
	t.Helper()
	handle, err := New(Options{Client: client})(
		inforce.Entry{Policy: policy.Policy{Name: "api",
			Target: &policy.Target{HTTP: &policy.HTTPTarget{URL: base}}}})
	if err != nil || handle == nil {
		t.Fatalf("handler %v, error %v", handle == nil, err)
	}
	return handle
}

func serve(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return server.URL
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience())
	t.Cleanup(cancel)
	return ctx
}

func verdict(err error) string {
	pause, throttled := workers.IsRetryAfter(err)
	wait, snoozed := workers.IsAgain(err)
	switch {
	case err == nil:
		return "done"
	case snoozed:
		return "again " + wait.String()
	case throttled:
		return "throttled " + pause.Round(time.Second).String()
	case workers.IsPermanent(err):
		return "permanent"
	case workers.IsUnavailable(err):
		return "unavailable"
	}
	return "failed"
}

func TestAnAnswerAsksForItsJobAgain(t *testing.T) {
	for value, want := range map[string]string{"10m": "again 10m0s", "1d": "again 24h0m0s",
		"2001-01-31T12:00:00Z": "again 0s", "soon": "failed", "-1s": "failed"} {
		for _, status := range []int{200, 202, 404, 429, 503} {
			base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set(job.HeaderAgain, value)
				w.WriteHeader(status)
			})
			if got := verdict(handlerFor(t, base)(within(t), workers.Job{})); got != want {
				t.Errorf("%d with %q: %s, want %s", status, value, got, want)
			}
		}
	}
}

func TestStatuses(t *testing.T) {
	for _, c := range []struct {
		status     int
		retryAfter string
		want       string
	}{
		{200, "", "done"}, {201, "", "done"}, {204, "", "done"}, {299, "", "done"},
		{301, "", "permanent"}, {302, "", "permanent"}, {304, "", "permanent"},
		{400, "", "permanent"}, {401, "", "permanent"}, {404, "", "permanent"},
		{404, "5", "throttled 5s"}, {409, "", "permanent"}, {413, "2", "throttled 2s"},
		{423, "40s", "throttled 40s"}, {425, "1", "throttled 1s"}, {302, "5", "permanent"},
		{408, "", "failed"},
		{429, "", "throttled 0s"}, {429, "7", "throttled 7s"}, {429, "0", "throttled 0s"},
		{429, "-3", "throttled 0s"},
		{429, "soon", "throttled 0s"}, {429, "99999999999999999999", "throttled 876000h0m0s"},
		{429, " 2 ", "throttled 2s"},
		{500, "", "unavailable"}, {500, "9", "throttled 9s"}, {502, "", "unavailable"},
		{529, "4", "throttled 4s"}, {529, "", "unavailable"},
		{504, "", "unavailable"}, {599, "", "unavailable"},
		{503, "", "unavailable"}, {503, "30", "throttled 30s"}, {503, "soon", "unavailable"},
	} {
		base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if c.retryAfter != "" {
				w.Header().Set("Retry-After", c.retryAfter)
			}
			w.WriteHeader(c.status)
		})
		if got := verdict(handlerFor(t, base)(within(t), workers.Job{})); got != c.want {
			t.Errorf("%d, Retry-After %q: %s, want %s", c.status, c.retryAfter, got, c.want)
		}
	}
}

// This includes GitHub's 403, which must not make a dead letter.
func TestARefusalWhenNothingIsLeftIsAPause(t *testing.T) {
	for _, c := range []struct {
		hints   *bool
		status  int
		left    string
		verdict string
	}{
		{nil, 404, "0", "permanent"}, {nil, 500, "0", "unavailable"},
		{nil, 429, "0", "throttled 30s"}, {nil, 403, "0", "throttled 30s"},
		{nil, 403, "9", "permanent"},
		{new(bool), 403, "0", "permanent"}, {new(bool), 429, "0", "throttled 0s"},
	} {
		base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-RateLimit-Remaining", c.left)
			w.Header().Set("X-RateLimit-Reset", "30")
			w.WriteHeader(c.status)
		})
		handle, err := New(Options{Client: Client()})(inforce.Entry{Policy: policy.Policy{
			Name: "api",
			Target: &policy.Target{HTTP: &policy.HTTPTarget{URL: base,
				RateLimitHeaders: c.hints}}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := verdict(handle(within(t), workers.Job{})); got != c.verdict {
			t.Errorf("%d with %s left: %s, want %s", c.status, c.left, got, c.verdict)
		}
	}
}

func TestRequest(t *testing.T) {
	var got *http.Request
	var body []byte
	base := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	})
	job := workers.Job{
		ID: "api:42", IdempotencyKey: "api-1-42", Policy: "api", Key: "a.%5F",
		Body:    []byte("payload"),
		Attempt: 3,
		Header: nats.Header{
			"penstock-method":                {"put"},
			"PENSTOCK-PATH":                  {"/orders/1?x=1"},
			"Penstock-Forward-Authorization": {"Bearer t"},
			"Penstock-Forward-X-Many":        {"1", "2"},
			"content-type":                   {"application/json"},
			"Penstock-Forward-Content-Type":  {"text/plain"},
			"traceparent": {
				"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
			"tracestate":        {"a=b"},
			"Penstock-Deadline": {"1h"},
			"X-Private":         {"stays"},
		},
	}
	for range 20 {
		if err := handlerFor(t, base)(within(t), job); err != nil {
			t.Fatal(err)
		}
		if got.Method != "PUT" || got.RequestURI != "/orders/1?x=1" || string(body) != "payload" ||
			"http://"+got.Host != base {
			t.Fatalf("%s %s to %s with %q", got.Method, got.RequestURI, got.Host, body)
		}
		for name, want := range map[string]string{
			"Penstock-Job": "api:42", "Penstock-Policy": "api", "Penstock-Key": "a.%5F",
			"Penstock-Attempt": "3",
			"Idempotency-Key":  "api-1-42", "Authorization": "Bearer t", "X-Many": "1,2",
			"Content-Type":      "text/plain",
			"Traceparent":       "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			"Tracestate":        "a=b",
			"Penstock-Deadline": "", "X-Private": "", "Penstock-Path": "",
		} {
			if have := strings.Join(got.Header.Values(name), ","); have != want {
				t.Fatalf("%s: %q, want %q", name, have, want)
			}
		}
	}
	if err := handlerFor(t, base)(within(t), workers.Job{Body: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if got.Method != "POST" || got.RequestURI != "/" {
		t.Errorf("%s %s by default", got.Method, got.RequestURI)
	}
}

func TestPaths(t *testing.T) {
	for _, c := range []struct{ base, path, want string }{
		{"http://h", "", "http://h"},
		{"http://h/v1", "", "http://h/v1"},
		{"http://h/v1", "/a/b", "http://h/v1/a/b"},
		{"http://h/v1/", "/a", "http://h/v1/a"},
		{"http://h", "/a%2Fb/%E2%82%AC", "http://h/a%2Fb/%E2%82%AC"},
		{"http://h/%2F", "/x%20y", "http://h/%2F/x%20y"},
		{"http://h", "/a?q=1&r=%26", "http://h/a?q=1&r=%26"},
		{"http://h", "/a:b@c", "http://h/a:b@c"},
		{"http://h", "//evil.example/x", ""},
		{"http://h", "/%zz", ""},
		{"http://h/v1", "/../admin", ""},
		{"http://h/v1", "/a/..", ""},
		{"http://h/v1", "/%2e%2E/admin", ""},
		{"http://h/v1", "/./a", ""},
		{"http://h/v1", "/a..b/...", "http://h/v1/a..b/..."},
		{"http://h/v1", "a", ""},
	} {
		base, err := url.Parse(c.base)
		if err != nil {
			t.Fatal(err)
		}
		got, err := (&target{base: base}).resolve(c.path)
		if c.want == "" {
			if err == nil {
				t.Errorf("%s + %s: %s, want an error", c.base, c.path, got)
			}
		} else if got != c.want || err != nil {
			t.Errorf("%s + %s: %s, %v; want %s", c.base, c.path, got, err, c.want)
		}
	}
	if got := verdict(handlerFor(t, "http://127.0.0.1:1")(within(t),
		workers.Job{Header: nats.Header{"Penstock-Path": {"/../x"}}})); got != "permanent" {
		t.Errorf("a path that cannot be used is %s", got)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			t.Error("followed to", r.URL.Path)
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	if got := verdict(handlerFor(t, base)(within(t), workers.Job{Body: []byte("x")})); got !=
		"permanent" {
		t.Errorf("a redirect is %s", got)
	}
}

func TestHangingTargetEndsWithItsContext(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	base := serve(t, func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-release
	})
	defer close(release)
	ctx, cancel := context.WithCancel(within(t))
	go func() {
		<-arrived
		cancel()
	}()
	if err := handlerFor(t, base)(ctx, workers.Job{}); verdict(err) != "unavailable" ||
		ctx.Err() == nil {
		t.Errorf("%v", err)
	}
}

// A context does not end the body of a 101, which would hold a worker for ever.
func TestATargetThatSwitchesProtocolsHoldsNoWorker(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { conn.Close() })
	})
	secret := filepath.Join(t.TempDir(), "secret")
	put(t, secret, "first-secret")
	ctx := within(t)
	for want, handle := range map[string]workers.Handler{
		"permanent": handlerFor(t, base),
		"unavailable": of(t, New(Options{}), inforce.SourceFile, policy.HTTPTarget{URL: base,
			OAuth2: &policy.OAuth2{TokenURL: base, ClientID: "x", ClientSecretFile: secret}}),
	} {
		answered := make(chan error, 1)
		go func() { answered <- handle(ctx, workers.Job{}) }()
		select {
		case err := <-answered:
			if verdict(err) != want {
				t.Error(err)
			}
		case <-ctx.Done():
			t.Fatal("the worker still reads")
		}
	}
}

func TestClosedPortIsAFailedAttempt(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	err = handlerFor(t, "http://"+address+"/secret")(within(t), workers.Job{})
	if verdict(err) != "unavailable" || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}

// A retry would be a second request.
func TestAnswerThatBreaksOffAfterItsStatus(t *testing.T) {
	for status, want := range map[int]string{200: "done", 404: "permanent", 500: "unavailable"} {
		base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(status)
			if _, err := io.WriteString(w, "half"); err != nil {
				t.Error(err)
			}
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		})
		if err := handlerFor(t, base)(within(t), workers.Job{}); verdict(err) != want {
			t.Errorf("%d and a broken body: %v, want %s", status, err, want)
		}
	}
}

func TestAHeaderWithoutEndIsNotRead(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 2<<20))
	})
	if err := handlerFor(t, base)(within(t), workers.Job{}); verdict(err) != "unavailable" {
		t.Error(err)
	}
}

func TestErrorsQuoteTheAnswerShortly(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		if _, err := w.Write(bytes.Repeat([]byte("line\n\xff"), 100_000)); err != nil {
			return
		}
	})
	err := handlerFor(t, base)(within(t), workers.Job{})
	if err == nil || len(err.Error()) > 3*mostDetail || strings.ContainsAny(err.Error(), "\n") ||
		!strings.Contains(err.Error(), "500: line") {
		t.Errorf("%v", err)
	}
}

func TestPoliciesWithoutTarget(t *testing.T) {
	if handle, err := New(Options{})(inforce.Entry{}); handle != nil || err != nil {
		t.Errorf("handler %v, error %v", handle != nil, err)
	}
}
