package outbound_test

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/access"
	"github.com/penstock-mq/penstock/admission/outbound"
	"github.com/penstock-mq/penstock/admission/permits"
	"github.com/penstock-mq/penstock/internal/certtest"
	"github.com/penstock-mq/penstock/internal/h2test"
	"github.com/penstock-mq/penstock/internal/waittest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
)

func TestRequestsAreRoutedByHostPrefixAndPath(t *testing.T) {
	other := httptest.NewServer(says("files"))
	defer other.Close()
	w := begin(t, says("api"), outbound.Options{},
		outbound.Route{Host: "stripe.test"},
		outbound.Route{Host: "stripe.test", Path: "/v1/files", Upstream: other.URL},
		outbound.Route{Prefix: "/openai"},
		outbound.Route{Prefix: "/open;ai%20"},
		outbound.Route{Prefix: "/base", Upstream: other.URL + "/a/b/"})
	for _, c := range []struct{ host, path, want string }{
		{"stripe.test", "/v1/charges?x=%2F&y", "api /v1/charges?x=%2F&y"},
		{"Stripe.test:8443", "/v1/files", "files /v1/files?"},
		{"stripe.test", "/v1/files/x%2Fy", "files /v1/files/x%2Fy?"},
		{"stripe.test", "/v1/filesystem", "api /v1/filesystem?"},
		{"other.test", "/openai/v1/models", "api /v1/models?"},
		{"other.test", "/openai", "api /?"},
		{"other.test", "/open;ai%20/x", "api /x?"},
		{"other.test", "/base/c", "files /a/b/c?"},
		{"other.test", "/v1/charges", ""},
		{"other.test", "/openaix", ""},
		{"stripe.test", "/v1/../admin", ""},
		{"stripe.test", "/v1/%2e%2E/admin", ""},
		{"stripe.test", "/v1/x%2F..%2Fadmin", ""},
		{"stripe.test", "/v1/%252e%252e%5Cadmin", ""},
		{"stripe.test", "/v1/..;x/admin", ""},
		{"stripe.test", "/v1/%66iles", ""},
		{"stripe.test", "/v1/%2566iles/x", ""},
		{"stripe.test", "/v1//files", ""},
		{"stripe.test", "/v1;x/files", ""},
		{"stripe.test", "/v1%2Ffiles", ""},
		{"stripe.test", "//v1%5Cfiles%2F", ""},
		{"stripe.test", "/v1/x//%79;z=files", "api /v1/x//%79;z=files?"},
		{"stripe.test", "/v1/files//%78", "files /v1/files//%78?"},
	} {
		response := w.ask("GET", c.path, "", "Host: "+c.host)
		if got := text(t, response); c.want != "" && got != c.want {
			t.Errorf("%s%s: %q, want %q", c.host, c.path, got, c.want)
		} else if c.want == "" && (response.Header.Get(outbound.ErrorHeader) == "" ||
			response.StatusCode/100 != 4) {
			t.Errorf("%s%s: %d %q", c.host, c.path, response.StatusCode, got)
		}
	}
	conn, reader := w.dial() // clients in Go escape paths themselves
	fmt.Fprint(conn, "GET /openai/x%2Fé{y} HTTP/1.1\r\nHost: other.test\r\n\r\n")
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := text(t, response), "api /x%2F%C3%A9%7By%7D?"; got != want {
		t.Errorf("a path that is not escaped arrives as %q, want %q", got, want)
	}
}

func TestHeadersAndBytesPassUnchanged(t *testing.T) {
	var got http.Header
	var body []byte
	var length int64
	w := begin(t, func(w http.ResponseWriter, r *http.Request) {
		got, length = r.Header.Clone(), r.ContentLength
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("X-Request-Id", "req_1")
		w.Header().Set("Connection", "X-Private")
		w.Header().Set("X-Private", "hop")
		w.Header().Set("Penstock-Error", "not ours")
		w.Header()["Content-Type"], w.Header()["Date"] = nil, nil
		w.Write([]byte("\x1f\x8bnot really"))
	}, outbound.Options{}, outbound.Route{})
	sent := string([]byte{0, 1, 2, 255})
	response := w.ask("POST", "/v1", sent, "Authorization: Bearer sk-secret",
		"Idempotency-Key: k1", "Content-Encoding: x", "X-Forwarded-For: 1.2.3.4",
		"Connection: X-Hop", "X-Hop: 1", "Proxy-Authorization: Bearer pst",
		"Penstock-Priority: 3", "Traceparent: t", "User-Agent: OpenAI/JS", "Accept-Encoding: br")
	for name, want := range map[string]string{"Authorization": "Bearer sk-secret",
		"Idempotency-Key": "k1", "Content-Encoding": "x", "X-Forwarded-For": "1.2.3.4",
		"X-Hop": "", "Proxy-Authorization": "", "Penstock-Priority": "", "Connection": "",
		"Traceparent": "t", "User-Agent": "OpenAI/JS", "Accept-Encoding": "br"} {
		if got.Get(name) != want {
			t.Errorf("the upstream got %s %q, want %q", name, got.Get(name), want)
		}
	}
	if string(body) != sent || length != 4 {
		t.Errorf("the upstream got %q of length %d", body, length)
	}
	if got := text(t, response); got != "\x1f\x8bnot really" {
		t.Errorf("the caller got %q", got)
	}
	for name, want := range map[string]string{"Content-Encoding": "gzip", "X-Request-Id": "req_1",
		"X-Private": "", "Penstock-Error": "", "Date": "", "Content-Type": ""} {
		if got := response.Header.Get(name); got != want {
			t.Errorf("the caller got %s %q, want %q", name, got, want)
		}
	}
	if q := w.call(1); q.Priority != 3 {
		t.Errorf("asked for %+v", q)
	}
}

func TestClientsAreAuthenticatedBesideAuthorization(t *testing.T) {
	clients, err := access.Parse(strings.NewReader("clients:\n" + access.Line("app",
		[]string{"submit"}, []string{"api"}, []string{"acme"}, "pst_good") + "\n" +
		access.Line("viewer", []string{"read"}, []string{"*"}, nil, "pst_viewer")))
	if err != nil {
		t.Fatal(err)
	}
	w := begin(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("Authorization"), len(r.Header["Penstock-Authorization"]))
	}, outbound.Options{Clients: func() *access.Clients { return clients }},
		outbound.Route{Key: "{header.X-Tenant}"})
	for _, c := range []struct {
		header []string
		status int
		code   string
	}{
		{nil, 401, "unauthorized"},
		{[]string{"Penstock-Authorization: Bearer pst_bad"}, 401, "unauthorized"},
		{[]string{"Penstock-Authorization: Bearer pst_viewer"}, 403, "forbidden"},
		{[]string{"Penstock-Authorization: Bearer pst_good"}, 200, ""},
		{[]string{"Proxy-Authorization: Bearer pst_good"}, 200, ""},
		{[]string{"Proxy-Authorization: Bearer pst_good", "X-Tenant: other"}, 403, "forbidden"},
	} {
		header := append([]string{"Authorization: Bearer sk-live", "X-Tenant: acme"}, c.header...)
		if len(c.header) == 2 {
			header = append(header[:1], c.header...)
		}
		response := w.ask("GET", "/", "", header...)
		if response.StatusCode != c.status || response.Header.Get(outbound.ErrorHeader) != c.code {
			t.Errorf("%q: %d %v", c.header, response.StatusCode, response.Header)
		}
		if got := text(t, response); c.status == 200 && got != "Bearer sk-live0" {
			t.Errorf("%q: the upstream got %q", c.header, got)
		}
	}
}

// A drainer sends some of them to its target.
func TestUnknownHeadersAreRefused(t *testing.T) {
	w := begin(t, says("api"), outbound.Options{}, outbound.Route{})
	for header, want := range map[string]int{"Penstock-Cots-Tokens: 3": 400,
		"Penstock-Deadline: 1h": 400, "Penstock-Cost: 0": 400, "Penstock-Cost: 2": 200,
		"Penstock-Job: a:1": 200, "X-Penstock: 1": 200} {
		response := w.ask("GET", "/", "", header)
		got := text(t, response)
		name, _, _ := strings.Cut(header, ":")
		if response.StatusCode != want || want == 400 && !strings.Contains(got, name+": ") {
			t.Errorf("%s: %d %s", header, response.StatusCode, got)
		}
	}
}

func TestKeysAreMadeOfTheRequest(t *testing.T) {
	for key, want := range map[string]string{"const": "const",
		"{header.X-Org}": "acme", "{path.2}": "b c", "x-{path.1}-{header.x-org}": "x-a-acme",
		"{credential}": "its hash", "{path.4}": "", "{header.None}": ""} {
		w := begin(t, says("api"), outbound.Options{}, outbound.Route{Prefix: "/p", Key: key})
		response := w.ask("GET", "/p/a/b%20c/d", "", "X-Org: acme", "Authorization: Bearer sk")
		switch {
		case want == "":
			if w.count() > 0 || response.StatusCode != 400 {
				t.Errorf("%s: %d after %d calls", key, response.StatusCode, w.count())
			}
		case key == "{credential}":
			if got := w.call(1).Key; len(got) != 16 {
				t.Errorf("%s: %q", key, got)
			}
		case w.call(1).Key != want:
			t.Errorf("%s: %+v, want %q", key, w.call(1), want)
		}
	}
}

func TestACallerThatGoesWithdrawsItsWait(t *testing.T) {
	var got atomic.Int64
	w := begin(t, func(http.ResponseWriter, *http.Request) { got.Add(1) }, outbound.Options{},
		outbound.Route{MaxWait: patient, Policy: "slow"})
	w.ask("GET", "/", "")
	for i, body := range []string{"", strings.Repeat("x", 100_000)} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			r, err := http.NewRequestWithContext(ctx, "POST", w.url, strings.NewReader(body))
			if err == nil {
				_, err = w.client.Do(r) //nolint:bodyclose // it fails
			}
			done <- err
		}()
		w.call(i + 2)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if got := w.end(i + 2); got.Status != job.SettledReturned {
			t.Errorf("ended %+v", got)
		}
	}
	if got.Load() != 1 {
		t.Errorf("the upstream got %d requests", got.Load())
	}
}

func TestACallerThatGoesCancelsUpstream(t *testing.T) {
	gone := make(chan struct{})
	w := begin(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "first")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	}, outbound.Options{}, outbound.Route{Tokens: "tokens"})
	ctx, cancel := context.WithCancel(t.Context())
	response := w.askWith(ctx, "POST", "/", `{"max_tokens": 7}`)
	if _, err := io.ReadFull(response.Body, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-gone
	if r := w.end(1); r.Used != nil {
		t.Errorf("an aborted stream was settled: %+v", r)
	}
	if q := w.call(1); q.Costs["tokens"] != 7+5 {
		t.Errorf("estimated %+v", q)
	}
}

func TestALateStartIsRefusedAtOnceInWordsOfSDKs(t *testing.T) {
	w := begin(t, says("api"), outbound.Options{}, outbound.Route{Policy: "slow"})
	w.ask("GET", "/", "")
	response := w.ask("GET", "/", "")
	var told struct {
		Error struct{ Message, Type, Code string }
	}
	if err := json.Unmarshal([]byte(text(t, response)), &told); err != nil {
		t.Fatal(err)
	}
	if told.Error.Type != "rate_limit_error" || told.Error.Code != "penstock_throttled" ||
		!strings.Contains(told.Error.Message, "Penstock") {
		t.Errorf("told %+v", told)
	}
	for name, want := range map[string]string{"Retry-After": "120", "Retry-After-Ms": "120000",
		"X-Should-Retry": "true", "Stripe-Should-Retry": "true", outbound.ErrorHeader: "throttled",
		"Content-Type": "application/json"} {
		if got := response.Header.Get(name); got != want || response.StatusCode != 429 {
			t.Errorf("%d, %s %q, want %q", response.StatusCode, name, got, want)
		}
	}
	response = w.ask("GET", "/", "", "User-Agent: Stripe/v1 GoBindings/83.2.1")
	if got := text(t, response); !strings.Contains(got, `"code":"lock_timeout"`) {
		t.Errorf("Stripe's SDK for Go, which retries by this code, got %s", got)
	}
}

func TestTheWaitIsTheLeastOfThree(t *testing.T) {
	w := begin(t, says("api"), outbound.Options{}, outbound.Route{MaxWait: 20 * time.Second})
	for i, c := range []struct {
		header string
		want   time.Duration
	}{{"X: y", 20 * time.Second}, {"X-Stainless-Timeout: 600", 20 * time.Second},
		{"X-Stainless-Timeout: 12", 9 * time.Second},
		{"X-Stainless-Timeout: x", 20 * time.Second}, {"Penstock-Wait: 3s", 3 * time.Second}} {
		w.ask("GET", "/", "", c.header)
		if got := w.call(i + 1).Wait; got != c.want {
			t.Errorf("%s: waits %v, want %v", c.header, got, c.want)
		}
	}
}

// The last retry of a request goes before first ones of others: after it, the SDK gives up.
func TestARetryGoesBeforeCallsThatFailedLessOften(t *testing.T) {
	w := begin(t, says("api"), outbound.Options{}, outbound.Route{})
	for i, c := range []struct {
		own, count string
		want       int
	}{{"0", "0", 0}, {"0", "1", 1}, {"0", "2", 2}, {"0", "3", 3}, {"0", "40", 9}, {"8", "3", 9},
		{"-5", "2", -3}, {"4", "-1", 4}, {"4", "x", 4}, {"0", "9223372036854775807", 9}} {
		w.ask("POST", "/", "x", "Idempotency-Key: same", "Penstock-Priority: "+c.own,
			"X-Stainless-Retry-Count: "+c.count)
		if got := w.call(i + 1).Priority; got != c.want {
			t.Errorf("retry %s of a request of priority %s has %d, want %d", c.count, c.own, got,
				c.want)
		}
	}
}

// Stripe's SDKs do not mark retries.
func TestARefusedRequestThatComesAgainGoesFirst(t *testing.T) {
	w := begin(t, says("api"), outbound.Options{}, outbound.Route{Policy: "slow"})
	w.ask("POST", "/", "x")
	for i, c := range []struct {
		key  string
		want int
	}{{"a", 0}, {"b", 0}, {"a", 1}, {"a", 1}, {"c", 0}, {"", 0}, {"", 0}} {
		w.ask("POST", "/", "x", "Idempotency-Key: "+c.key)
		if got := w.call(i + 2).Priority; got != c.want {
			t.Errorf("request %d: priority %d, want %d", i, got, c.want)
		}
	}
}

func TestThrottlesPauseAndArePassedOrAbsorbed(t *testing.T) {
	for mode, want := range map[string]int{outbound.Pass: 429, "": 429, outbound.Absorb: 200} {
		var n atomic.Int64
		w := begin(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if n.Add(1) == 1 {
				w.Header().Set("Retry-After-Ms", "30")
				w.WriteHeader(429)
				fmt.Fprint(w, "slow down")
				return
			}
			fmt.Fprint(w, string(body))
		}, outbound.Options{}, outbound.Route{OnThrottle: mode})
		response := w.ask("POST", "/", "payload")
		got := text(t, response)
		if response.StatusCode != want || want == 200 && got != "payload" ||
			want == 429 && (got != "slow down" || response.Header.Get(outbound.ErrorHeader) != "") {
			t.Errorf("%q: %d %q", mode, response.StatusCode, got)
		}
		if r := w.end(1); r.Status != job.SettledThrottled || r.RetryAfterMS != 30 {
			t.Errorf("%q: settled %+v", mode, r)
		}
	}
}

func TestAThrottleThatLastsTooLongIsPassedOn(t *testing.T) {
	w := begin(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(503)
		fmt.Fprint(w, strings.Repeat("x", 2*(64<<10)))
	}, outbound.Options{}, outbound.Route{OnThrottle: outbound.Absorb})
	response := w.ask("GET", "/", "")
	if got := text(t, response); response.StatusCode != 503 || len(got) != 2*(64<<10) ||
		response.Header.Get("Retry-After") != "3600" {
		t.Errorf("%d, %d bytes", response.StatusCode, len(got))
	}
}

func TestErrorsPassAndUsedUpLimitsPause(t *testing.T) {
	end := make(chan struct{})
	w := begin(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Ratelimit-Remaining-Requests", "0")
		w.Header().Set("X-Ratelimit-Reset-Requests", "20s")
		w.WriteHeader(500)
		w.(http.Flusher).Flush()
		<-end
	}, outbound.Options{}, outbound.Route{OnThrottle: outbound.Absorb, MaxWait: time.Minute,
		Policy: "errors"})
	response := w.ask("POST", "/", "x", "Idempotency-Key: k")
	if response.StatusCode != 500 {
		t.Error(response.StatusCode)
	}
	if r := w.end(1); r.Op != job.OpProgress || r.RetryAfterMS < 10_000 ||
		r.RetryAfterMS > 20_000 {
		t.Errorf("while the answer goes on: %+v", r)
	}
	close(end)
	text(t, response)
	if r := w.end(2); r.Status != job.SettledUnavailable || r.RetryAfterMS != 0 {
		t.Errorf("settled %+v", r)
	}
}

func TestStreamsAreFlushedChunkByChunk(t *testing.T) {
	next := make(chan struct{})
	w := begin(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			http.NewResponseController(w).Flush()
			<-next
		}
		fmt.Fprint(w, "data: {\"usage\":{\"total_tokens\":42}}\n\ndata: [DONE]\n\n")
	}, outbound.Options{}, outbound.Route{Tokens: "tokens"})
	lines := bufio.NewReader(w.ask("POST", "/", "{}").Body)
	for i := range 3 {
		line, err := lines.ReadString('\n')
		if _, err2 := lines.ReadString('\n'); err != nil || err2 != nil ||
			line != fmt.Sprintf("data: %d\n", i) {
			t.Fatal(line, err, err2)
		}
		if w.ended() > 0 {
			t.Error("settled before the end")
		}
		next <- struct{}{}
	}
	rest, err := io.ReadAll(lines)
	if err != nil || !strings.HasSuffix(string(rest), "[DONE]\n\n") {
		t.Errorf("%q, %v", rest, err)
	}
	if r := w.end(1); r.Used["tokens"] != 42 {
		t.Errorf("settled %+v", r)
	}
}

// net/http would repeat these on another connection.
func TestAStartIsOneRequest(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var requests atomic.Int64
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for n := 0; ; n++ {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					io.Copy(io.Discard, r.Body)
					if requests.Add(1); n > 0 {
						return
					}
					io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			}()
		}
	}()
	w := begin(t, nil, outbound.Options{},
		outbound.Route{Upstream: "http://" + listener.Addr().String(), Policy: "resets"})
	for i, c := range []struct{ method, body string }{{"GET", ""}, {"POST", ""}, {"POST", "x"},
		{"DELETE", ""}} {
		w.ask(c.method, "/", c.body)
		w.end(2*i + 1)
		before := requests.Load()
		response := w.ask(c.method, "/", c.body, "Idempotency-Key: k")
		if response.StatusCode != 502 || response.Header.Get(outbound.ErrorHeader) != "upstream" ||
			requests.Load() != before+1 {
			t.Errorf("%+v: %d after %d requests", c, response.StatusCode, requests.Load()-before)
		}
		if r := w.end(2*i + 2); r.Status != job.SettledUnavailable {
			t.Errorf("%+v: settled %+v", c, r)
		}
	}
}

// The upstream did not process the request, and takes it on another connection.
func TestAnUpstreamThatEndsItsConnectionIsAskedAgain(t *testing.T) {
	authority := certtest.New(t)
	var requests atomic.Int64
	upstream := h2test.Serve(t, authority, func(stream uint32) []byte {
		if requests.Add(1) != 3 && stream == 1 {
			return h2test.OK(stream)
		}
		return h2test.Leave(stream - 1)
	})
	w := begin(t, nil, outbound.Options{}, outbound.Route{Upstream: upstream})
	w.transport.TLSClientConfig = authority.Client("")
	starts := 0
	for i, c := range []struct {
		status int
		ends   []string
	}{
		{200, []string{job.SettledDone}},
		// it meets the third request, too
		{502, []string{job.SettledReturned, job.SettledReturned}},
		{200, []string{job.SettledDone}},
	} {
		response := w.ask("POST", "/", "x")
		text(t, response)
		for _, want := range c.ends {
			if starts++; w.end(starts).Status != want {
				t.Errorf("call %d: settled %+v", i, w.end(starts))
			}
		}
		if response.StatusCode != c.status || requests.Load() != int64(starts) {
			t.Errorf("call %d: %s after %d requests", i, response.Status, requests.Load())
		}
	}
}

func TestAStartThatNeverReachedTheUpstreamIsGivenBack(t *testing.T) {
	w := begin(t, nil, outbound.Options{}, outbound.Route{Upstream: "http://127.0.0.1:1",
		Policy: "unreached"})
	response := w.ask("POST", "/", "x")
	if r := w.end(1); response.StatusCode != 502 || r.Status != job.SettledUnreached {
		t.Errorf("%d, settled %+v", response.StatusCode, r)
	}
}

func TestCallsAreRefusedWhileTheUpstreamIsDown(t *testing.T) {
	var up atomic.Bool
	w := begin(t, func(w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			w.WriteHeader(500)
		}
	}, outbound.Options{}, outbound.Route{Policy: "down", MaxWait: 20 * time.Millisecond})
	var response *http.Response
	waittest.Until(t, "calls are refused", func() bool {
		response = w.ask("GET", "/", "")
		return response.Header.Get(outbound.ErrorHeader) == "down"
	})
	if response.StatusCode != 503 || response.Header.Get("Retry-After") == "" ||
		response.Header.Get("X-Should-Retry") != "true" ||
		response.Header.Get("Stripe-Should-Retry") != "true" {
		t.Errorf("%d %v", response.StatusCode, response.Header)
	}
	up.Store(true)
	waittest.Until(t, "the breaker closes", func() bool {
		return w.ask("GET", "/", "").StatusCode == 200
	})
}

func coded(t *testing.T, coding, body string) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "br":
		w = brotli.NewWriter(&b)
	case "zstd":
		var err error
		if w, err = zstd.NewWriter(&b); err != nil {
			t.Fatal(err)
		}
	default:
		return []byte(body)
	}
	if _, err := io.WriteString(w, body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTokensAreSettledByTheAnswer(t *testing.T) {
	const anthropic = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":" +
		"{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\nevent: x\ndata: {\"x\":1}\n\n" +
		"event: message_delta\ndata: {\"usage\":{\"output_tokens\":15}}\n\n"
	for _, c := range []struct {
		kind, coding, body string
		want               int64
	}{
		{"application/json", "", `{"usage":{"total_tokens":9,"prompt_tokens":4}}`, 9},
		{"application/json", "gzip", `{"usage":{"prompt_tokens":4,"completion_tokens":3}}`, 7},
		{"application/json", "br", `{"usage":{"input_tokens":4,"output_tokens":3}}`, 7},
		{"application/json", "zstd", `{"usage":{"input_tokens":4,"cache_creation_input_tokens":2}}`,
			6},
		{"application/json", "", `{"error":{"message":"x"}, "message": "text"}`, 0},
		{"application/json", "gzip", "", 0},
		{"text/event-stream; charset=utf-8", "", anthropic, 40},
		{"text/event-stream", "gzip", anthropic, 40},
		{"text/event-stream", "br", "data: {\"usage\":null}\n\ndata: {\"usage\":" +
			"{\"total_tokens\":5}}\n\ndata: [DONE]\n\n", 5},
		{"text/event-stream", "", "data: {\"type\":\"response.completed\",\"response\":" +
			"{\"usage\":{\"total_tokens\":11}}}\n\n", 11},
		{"text/event-stream", "", "data: {}\n\n", 0},
	} {
		body := coded(t, c.coding, c.body)
		if c.body == "" {
			body = []byte("this is no gzip")
		}
		w := begin(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", c.kind)
			w.Header().Set("Content-Encoding", c.coding)
			w.Write(body)
		}, outbound.Options{}, outbound.Route{Tokens: "tokens"})
		if got := text(t, w.ask("POST", "/", "{}")); got != string(body) {
			t.Errorf("%+v: the caller got %q", c, got)
		}
		if r := w.end(1); r.Used["tokens"] != c.want {
			t.Errorf("%+v: settled %+v", c, r)
		}
	}
}

func TestOtherCostsAreSettledByTheAnswer(t *testing.T) {
	w := begin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Price", "3")
		if r.URL.Path == "/stream" {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: {\"cost\":{\"points\":1}}\n\n"+
				"data: {\"cost\":{\"points\":4.5}}\n\n")
			return
		}
		fmt.Fprint(w, `{"cost":{"points":12},"usage":{"total_tokens":7}}`)
	}, outbound.Options{}, outbound.Route{Tokens: "tokens", CostFromResponse: policy.
		CostFromResponse{"points": {JSON: "cost.points"}, "price": {Header: "X-Price"}}})
	for i, c := range []struct{ path, want string }{
		{"/", "map[points:12 price:3 tokens:7]"}, {"/stream", "map[points:5 price:3]"}} {
		text(t, w.ask("POST", c.path, "{}"))
		if got := fmt.Sprint(w.end(i + 1).Used); got != c.want {
			t.Errorf("%s: settled %s, want %s", c.path, got, c.want)
		}
	}
}

// frames are a WebSocket server's messages: in fragments, with a ping between, and one compressor
// for all.
func frames(t *testing.T, packed bool, messages ...string) []byte {
	t.Helper()
	var out, coded bytes.Buffer
	packer, err := flate.NewWriter(&coded, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	frame := func(head byte, payload string) {
		out.Write([]byte{head, 126, byte(len(payload) >> 8), byte(len(payload))})
		out.WriteString(payload)
	}
	for _, m := range messages {
		head := byte(0x01)
		if packed {
			coded.Reset()
			if _, err := io.WriteString(packer, m); err != nil || packer.Flush() != nil {
				t.Fatal(err)
			}
			head, m = 0x41, strings.TrimSuffix(coded.String(), "\x00\x00\xff\xff")
		}
		frame(head, m[:5])
		out.Write([]byte{0x89, 2, 'h', 'i'})
		frame(0x80, m[5:])
	}
	return out.Bytes()
}

func upgrade(t *testing.T, w http.ResponseWriter, talk func(*bufio.ReadWriter)) {
	w.Header().Set("Connection", "Upgrade")
	w.Header().Set("Upgrade", "websocket")
	w.WriteHeader(http.StatusSwitchingProtocols)
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	talk(rw)
}

func TestTokensOfAWebSocketAreTheSumOfItsEvents(t *testing.T) {
	for _, packed := range []bool{false, true} {
		sent := frames(t, packed, `{"type":"response.done","response":{"usage":{"total_tokens":20}}}`,
			`{"type":"response.audio.delta","delta":"AAAA"}`,
			`{"type":"response.done","response":{"usage":{"total_tokens":22}}}`)
		w := begin(t, func(w http.ResponseWriter, r *http.Request) {
			if packed {
				w.Header().Set("Sec-WebSocket-Extensions", "permessage-deflate")
			}
			upgrade(t, w, func(rw *bufio.ReadWriter) {
				rw.Write(sent)
				rw.Flush()
				rw.ReadString('\n')
			})
		}, outbound.Options{}, outbound.Route{Tokens: "tokens"})
		conn, in := w.upgraded()
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(in, got); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("the caller got %q, %v", got, err)
		}
		conn.Close()
		if r := w.end(1); r.Used["tokens"] != 42 {
			t.Errorf("packed: %v: settled %+v", packed, r)
		}
	}
}

func TestTokensAreEstimatedFromTheRequest(t *testing.T) {
	w := begin(t, says("api"), outbound.Options{}, outbound.Route{Tokens: "tokens"})
	for i, c := range []struct {
		body, header string
		want         int64
	}{
		{`{"max_tokens":100}`, "X: y", 105},
		{`{"max_completion_tokens":10}`, "X: y", 17},
		{`{"max_output_tokens":1e3}`, "X: y", 1007},
		{`{"max_tokens":-5}`, "X: y", 5},
		{`{"generationConfig":{"maxOutputTokens":7.0}}`, "X: y", 18},
		{"not JSON", "X: y", 2},
		{`{"image":"data:image/png;base64,` + strings.Repeat("iVBORw0K", 1<<16) + `","max_tokens":5}`,
			"X: y", 1000 + 5 + 13},
		{`{"max_tokens":100}`, "Penstock-Cost-Tokens: 3", 3},
	} {
		w.ask("POST", "/", c.body, c.header)
		if q := w.call(i + 1); q.Costs["tokens"] != c.want {
			t.Errorf("%+v: asked for %+v", c, q)
		}
	}
}

func TestStreamsCanBeMadeToNameTheirUsage(t *testing.T) {
	var got string
	w := begin(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = string(body)
	}, outbound.Options{}, outbound.Route{Tokens: "tokens", IncludeUsage: true})
	for sent, want := range map[string]string{
		`{"stream":true}`:                     `{"stream_options":{"include_usage":true},"stream":true}`,
		`{"stream":false}`:                    `{"stream":false}`,
		`{"stream":true,"stream_options":{}}`: `{"stream":true,"stream_options":{}}`,
		`[{"stream":true}]`:                   `[{"stream":true}]`,
		` {"stream":true, "messages":[{"a":1}]}`: ` {"stream_options":{"include_usage":true},` +
			`"stream":true, "messages":[{"a":1}]}`,
	} {
		if w.ask("POST", "/", sent); got != want {
			t.Errorf("%s: sent %s", sent, got)
		}
	}
}

func TestReferencesLeadBackThroughTheProxy(t *testing.T) {
	other := httptest.NewServer(nil)
	defer other.Close()
	var self string
	w := begin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", strings.ReplaceAll(r.URL.Query().Get("to"), "SELF", self))
		w.Header().Set("Link", fmt.Sprintf(
			`<%s/v3/list?page=2>; rel="next", </v3/list>; rel="first"`, self))
		w.WriteHeader(301)
	}, outbound.Options{}, outbound.Route{Prefix: "/github"},
		outbound.Route{Prefix: "/other", Upstream: other.URL + "/base"})
	self = w.upstream.URL
	for to, want := range map[string]string{
		"SELF/a%2Fb?x=1#y":      w.url + "/github/a%2Fb?x=1#y",
		"/relative":             "/github/relative",
		"https://elsewhere.x/y": "https://elsewhere.x/y",
		other.URL + "/base/z":   w.url + "/other/z",
		other.URL + "/z":        other.URL + "/z",
	} {
		response := w.ask("GET", "/github/x?to="+url.QueryEscape(to), "")
		if got := response.Header.Get("Location"); got != want {
			t.Errorf("%s: leads to %s, want %s", to, got, want)
		}
		want := fmt.Sprintf(
			`<%s/github/v3/list?page=2>; rel="next", </github/v3/list>; rel="first"`, w.url)
		if got := response.Header.Get("Link"); got != want {
			t.Errorf("linked %s, want %s", got, want)
		}
	}
}

func TestOtherPartsOfHTTPPass(t *testing.T) {
	const total = 16 * (8 << 20)
	budget := admission.NewBudget(total)
	w := begin(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/head":
			w.Header().Set("Content-Length", "123")
		case "/304":
			w.Header().Set("Etag", `"x"`)
			w.WriteHeader(304)
		case "/204":
			w.WriteHeader(204)
		case "/103":
			w.Header().Set("Link", "<http://"+r.Host+"/x>; rel=preload")
			w.Header().Set("Penstock-Error", "forged")
			w.WriteHeader(103)
			w.Header()["Content-Type"] = nil
			fmt.Fprint(w, "after")
		case "/trailer":
			w.Header().Set("Trailer", "X-Sum, Penstock-Error")
			fmt.Fprint(w, "body")
			w.Header().Set("X-Sum", "7")
			w.Header().Set("Penstock-Error", "forged")
			w.Header().Set(http.TrailerPrefix+"Penstock-State", "forged")
		case "/expect":
			if r.Header.Get("X-Refuse") != "" {
				w.WriteHeader(417)
				return
			}
			n, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n)
		}
	}, outbound.Options{Budget: budget}, outbound.Route{})
	if r := w.ask("HEAD", "/head", ""); r.ContentLength != 123 {
		t.Errorf("HEAD: %d", r.ContentLength)
	}
	if r := w.ask("GET", "/304", ""); r.StatusCode != 304 || r.Header.Get("Etag") != `"x"` {
		t.Errorf("304: %d", r.StatusCode)
	}
	if r := w.ask("DELETE", "/204", ""); r.StatusCode != 204 {
		t.Errorf("204: %d", r.StatusCode)
	}
	var early string
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			early += fmt.Sprint(code, header.Get("Link"), header.Get("Penstock-Error"))
			return nil
		}})
	if r := w.askWith(ctx, "GET", "/103", ""); text(t, r) != "after" ||
		early != "103<"+w.url+"/x>; rel=preload" || r.Header["Content-Type"] != nil {
		t.Errorf("103: %q, %v", early, r.Header)
	}
	r := w.ask("GET", "/trailer", "", "Te: trailers")
	if body := text(t, r); body != "body" || len(r.Trailer) != 1 ||
		r.Trailer.Get("X-Sum") != "7" {
		t.Errorf("trailer: %q, %v", body, r.Trailer)
	}
	large := strings.Repeat("x", (8<<20)+12345)
	r = w.ask("PUT", "/expect", large, "Expect: 100-continue")
	if text(t, r) != fmt.Sprint(len(large)) {
		t.Errorf("a large body: %d", r.StatusCode)
	}
	if r := w.ask("PUT", "/expect", "x", "Expect: 100-continue"); text(t, r) != "1" {
		t.Errorf("a small body: %d", r.StatusCode)
	}
	waittest.Until(t, "what bodies held is given back", func() bool {
		return budget.Reserve(admission.Client{Operator: true}, total*3/4) == nil
	})
}

func TestWebSocketsAreOneStart(t *testing.T) {
	w := begin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" {
			t.Error(r.Header)
		}
		upgrade(t, w, func(rw *bufio.ReadWriter) {
			line, _ := rw.ReadString('\n')
			fmt.Fprint(rw, "echo ", line)
			rw.Flush()
		})
	}, outbound.Options{}, outbound.Route{Tokens: "tokens"})
	conn, in := w.upgraded()
	if w.ended() > 0 {
		t.Error("settled while open")
	}
	w.stop()
	fmt.Fprint(conn, "hello\n")
	if rest, err := io.ReadAll(in); err != nil || string(rest) != "echo hello\n" {
		t.Errorf("%q, %v", rest, err)
	}
	if r := w.end(1); r.Status != job.SettledDone {
		t.Errorf("settled %+v", r)
	}
}

// Through h2c a caller could send any number of requests, to any path.
func TestOnlyWebSocketsAreUpgrades(t *testing.T) {
	w := begin(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%q %q", r.Header["Connection"], r.Header["Upgrade"])
	}, outbound.Options{}, outbound.Route{})
	for _, protocol := range []string{"h2c", "TLS/1.0, HTTP/1.1", "websocket, h2c"} {
		r := w.ask("GET", "/", "", "Connection: Upgrade, HTTP2-Settings", "Upgrade: "+protocol,
			"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")
		if got := text(t, r); r.StatusCode != 200 || got != "[] []" {
			t.Errorf("%s: %d %s", protocol, r.StatusCode, got)
		}
	}
}

func TestCONNECTIsRefusedWithAReason(t *testing.T) {
	w := begin(t, says("api"), outbound.Options{}, outbound.Route{})
	conn, in := w.dial()
	fmt.Fprint(conn, "CONNECT api.openai.com:443 HTTP/1.1\r\nHost: api.openai.com:443\r\n\r\n")
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := text(t, response)
	if response.StatusCode != 405 || !strings.Contains(got, "HTTPS_PROXY") {
		t.Errorf("%d %s", response.StatusCode, got)
	}
}

func TestStreamsFinishWhileNewRequestsAreRefused(t *testing.T) {
	finish := make(chan struct{})
	w := begin(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "a")
		http.NewResponseController(w).Flush()
		<-finish
		fmt.Fprint(w, "b")
	}, outbound.Options{}, outbound.Route{MaxWait: patient, Policy: "slow"})
	stream := w.ask("GET", "/", "")
	waiting := make(chan *http.Response)
	go func() { waiting <- w.ask("GET", "/", "") }()
	w.call(2)
	w.proxy.Stop()
	for _, response := range []*http.Response{<-waiting, w.ask("GET", "/", "")} {
		if response.StatusCode != 503 || response.Header.Get(outbound.ErrorHeader) != "stopping" ||
			response.Header.Get("X-Should-Retry") != "true" {
			t.Errorf("%d %v", response.StatusCode, response.Header)
		}
	}
	w.stop()
	close(finish)
	if got := text(t, stream); got != "ab" {
		t.Errorf("the stream ended as %q", got)
	}
}

func TestACallerLearnsThatNoDrainerRuns(t *testing.T) {
	p, err := outbound.New(outbound.Options{
		Routes: []outbound.Route{{Upstream: "http://127.0.0.1:1", Policy: "api"}},
		Acquire: func(context.Context, permits.Request) (*permits.Permit, error) {
			return nil, admission.ErrNoDrainer
		}})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != 503 || w.Result().Header.Get(outbound.ErrorHeader) != "drainer" ||
		!strings.Contains(w.Body.String(), "start drainer, or admitter --drain") {
		t.Errorf("%d %v %s", w.Code, w.Result().Header, w.Body)
	}
}

func TestRoutesAreChecked(t *testing.T) {
	good := outbound.Route{Upstream: "https://api.example.com/v1", Policy: "api",
		Host: "a.b", Prefix: "/x",
		Key: "{client}-{path.1}"}
	for field, change := range map[string]func(*outbound.Route){
		"":            func(*outbound.Route) {},
		"host":        func(r *outbound.Route) { r.Host = "a:1" },
		"prefix":      func(r *outbound.Route) { r.Prefix = "x" },
		"path":        func(r *outbound.Route) { r.Path = "/x/../y" },
		"upstream":    func(r *outbound.Route) { r.Upstream = "ftp://x" },
		"policy":      func(r *outbound.Route) { r.Policy = "" },
		"key":         func(r *outbound.Route) { r.Key = "{path.0}" },
		"max_wait":    func(r *outbound.Route) { r.MaxWait = time.Hour },
		"timeout":     func(r *outbound.Route) { r.Timeout = 2 * time.Hour },
		"on_throttle": func(r *outbound.Route) { r.OnThrottle = "drop" },
		"cost_from_response.points": func(r *outbound.Route) {
			r.CostFromResponse = policy.CostFromResponse{"points": {}}
		},
		"include_usage": func(r *outbound.Route) { r.IncludeUsage = true },
		"like":          func(r *outbound.Route) { r.Like = "githob" },
		"answers[0].means": func(r *outbound.Route) {
			r.Answers = []policy.AnswerRule{{Status: []int{409}, Means: "wait"}}
		},
	} {
		r, found := good, ""
		change(&r)
		r.Check(func(f, _ string, _ ...any) { found += f })
		if found != field {
			t.Errorf("found %q, want %q", found, field)
		}
	}
}

func TestAnUpstreamThatDemandsClientCertificates(t *testing.T) {
	authority := certtest.New(t)
	upstream := httptest.NewUnstartedServer(says("api"))
	upstream.TLS = authority.Client("localhost")
	upstream.TLS.ClientCAs, upstream.TLS.ClientAuth = upstream.TLS.RootCAs,
		tls.RequireAndVerifyClientCert
	upstream.StartTLS()
	defer upstream.Close()
	cert, key := authority.Issue("penstock")
	w := begin(t, says("another"), outbound.Options{},
		outbound.Route{Prefix: "/with", Upstream: upstream.URL,
			TLS: policy.ClientTLS{CA: authority.File, Cert: cert, Key: key}},
		outbound.Route{Prefix: "/without", Upstream: upstream.URL,
			TLS: policy.ClientTLS{CA: authority.File}})
	for path, status := range map[string]int{"/with": 200, "/without": 502} {
		if response := w.ask("GET", path, ""); response.StatusCode != status {
			t.Errorf("%s: %s", path, response.Status)
		}
	}
}

// Paths are for operators, and callers learn that the upstream is not to blame.
func TestMissingFilesOfTLSAreNamedToOperatorsAlone(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "cert.pem")
	files := policy.ClientTLS{Cert: missing, Key: missing}
	w := begin(t, says("api"), outbound.Options{}, outbound.Route{Policy: "unreached", TLS: files})
	response := w.ask("GET", "/", "")
	body := text(t, response)
	if response.StatusCode != 502 || response.Header.Get(outbound.ErrorHeader) != "tls" ||
		strings.Contains(body, missing) || !strings.Contains(body, "cannot read the TLS files") {
		t.Errorf("%s %s: %s", response.Status, response.Header.Get(outbound.ErrorHeader), body)
	}
	got := w.end(1)
	if got.Status != job.SettledUnreached || !strings.Contains(got.Error, missing) {
		t.Errorf("settled as %+v", got)
	}
}
