package outbound_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/admission/outbound"
	"github.com/penstock-mq/penstock/internal/admission/permits"
	"github.com/penstock-mq/penstock/internal/kit/certtest"
	"github.com/penstock-mq/penstock/internal/kit/h2test"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/job"
)

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
	answered := sync.OnceFunc(func() { close(end) })
	defer answered() // also of a test that fails: its server waits for it
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
	answered()
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
