package outbound_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/admission/outbound"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/job"
)

type attack struct {
	upstream http.HandlerFunc
	timeout  time.Duration
	goes     bool // the caller leaves as soon as the upstream has the request
	status   int
	body     []byte
	cut      bool
	ended    string
}

var attacks = map[string]attack{
	"never answers": {upstream: func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	}, timeout: 50 * time.Millisecond, status: 504, ended: job.SettledUnavailable},
	"never answers a caller that goes": {upstream: func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	}, goes: true, ended: job.SettledFailed},
	"takes as long as it likes after its header": {upstream: func(w http.ResponseWriter,
		r *http.Request) {
		http.NewResponseController(w).Flush()
		<-time.After(1200 * time.Millisecond)
		fmt.Fprint(w, "late")
	}, timeout: time.Second, status: 200, body: []byte("late"), ended: job.SettledDone},
	"hangs up": {upstream: func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}, status: 502, ended: job.SettledUnavailable},
	"hangs up in a body of a known length": {upstream: func(w http.ResponseWriter,
		_ *http.Request) {
		w.Header().Set("Content-Length", "100")
		hangUpAfter(w, "part")
	}, status: 200, body: []byte("part"), cut: true, ended: job.SettledDone},
	"hangs up in a stream": {upstream: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		hangUpAfter(w, "data: {\"usage\":{\"total_tokens\":1}}\n\n")
	}, status: 200, body: []byte("data: {\"usage\":{\"total_tokens\":1}}\n\n"), cut: true,
		ended: job.SettledDone},
	"has a header of 2 MB": {upstream: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 2<<20))
	}, status: 502, ended: job.SettledUnavailable},
	"has a header of 100 KB and a body of 12 MB": {upstream: func(w http.ResponseWriter,
		_ *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 100_000))
		w.Write(bytes.Repeat([]byte(`{"a":1,"usage":{"total_tokens":1},`), 350_000))
	}, status: 200, body: bytes.Repeat([]byte(`{"a":1,"usage":{"total_tokens":1},`), 350_000),
		ended: job.SettledDone},
	"breaks its gzip": broken("gzip", "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xff\xff"),
	"cuts its gzip":   broken("gzip", "\x1f\x8b\x08"),
	"breaks its br":   broken("br", "\xff\xff\xff\xff\x00{\"usage\""),
	"breaks its zstd": broken("zstd", "\x28\xb5\x2f\xfd\xff\xff\xff\xff"),
}

func hangUpAfter(w http.ResponseWriter, part string) {
	fmt.Fprint(w, part)
	http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func broken(coding, body string) attack {
	return attack{upstream: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Content-Encoding", coding)
		fmt.Fprint(w, body)
	}, status: 200, body: []byte(body), ended: job.SettledDone}
}

// TestCallsOutliveTheirUpstreams runs over HTTP/1.1 and HTTP/2. A caller gets the part that
// arrived, unsettled tokens stay estimated, and the only place in the concurrency is free again.
func TestCallsOutliveTheirUpstreams(t *testing.T) {
	for major := 1; major <= 2; major++ {
		for name, a := range attacks {
			t.Run(fmt.Sprintf("HTTP%d/%s", major, name), func(t *testing.T) {
				a.play(t, major)
			})
		}
	}
}

func (a attack) play(t *testing.T, major int) {
	has, next := make(chan struct{}, 1), make(chan struct{})
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		if r.ProtoMajor != major {
			t.Errorf("the upstream is asked by %s", r.Proto)
		}
		if r.URL.Path == "/attack" {
			io.Copy(io.Discard, r.Body) // otherwise net/http does not detect that a caller leaves
			has <- struct{}{}
			a.upstream(w, r)
			return
		}
		w.Header().Set("Trailer", "X-Sum")
		fmt.Fprint(w, "one")
		http.NewResponseController(w).Flush()
		<-next
		fmt.Fprint(w, "two")
		w.Header().Set("X-Sum", "7")
	}))
	upstream.EnableHTTP2 = major == 2
	upstream.StartTLS()
	defer upstream.Close()
	r := outbound.Route{Upstream: upstream.URL, Policy: "one", Tokens: "tokens"}
	attacked := r
	attacked.Path, attacked.Timeout = "/attack", a.timeout
	w := begin(t, nil, outbound.Options{}, r, attacked)
	w.transport.TLSClientConfig = upstream.Client().Transport.(*http.Transport).TLSClientConfig

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sent, err := http.NewRequestWithContext(ctx, "POST", w.url+"/attack", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if a.goes {
		go func() { <-has; cancel() }()
	}
	switch response, err := w.client.Do(sent); {
	case a.status == 0:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case err != nil:
		t.Fatal(err)
	default:
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		refused := response.Header.Get(outbound.ErrorHeader) == "upstream"
		if response.StatusCode != a.status || refused != (a.status >= 500) ||
			a.body != nil && !bytes.Equal(body, a.body) || a.cut != (err != nil) {
			t.Errorf("%d, %d bytes, %v", response.StatusCode, len(body), err)
		}
	}
	if end := w.end(1); end.Status != a.ended || len(end.Used) > 0 {
		t.Errorf("settled %+v", end)
	} else if a.goes && end.Error != "the caller left before the target answered" {
		t.Errorf("the bucket's last error is %q", end.Error)
	}
	response := w.ask("GET", "/fine", "")
	if _, err := io.ReadFull(response.Body, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	close(next)
	if rest := text(t, response); rest != "two" || response.Trailer.Get("X-Sum") != "7" {
		t.Errorf("the next call got %q, %v", rest, response.Trailer)
	}
}

// Answers that no caller can get would end the process, or hold the only place for ever.
func TestAnswersThatCannotBePassedOn(t *testing.T) {
	answers := make(chan string, 1)
	w := begin(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, out, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprint(out, "HTTP/1.1 ", <-answers)
		out.Flush()
	}, outbound.Options{}, outbound.Route{Policy: "one"})
	n := 0
	for _, answer := range []string{"101 Bare\r\n\r\n",
		"101 Unasked\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "099 Low\r\n\r\n",
		strings.Repeat("\x01", 900_000) + "\r\n\r\n"} { // its error exceeds a message
		conn, in := w.dial()
		for _, c := range []struct {
			answer, ended string
			status        int
		}{{answer, job.SettledUnavailable, 502},
			{"200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", job.SettledDone, 200}} {
			answers <- c.answer
			fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			response, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("%.80q: %v", c.answer, err)
			}
			body := text(t, response)
			n++
			if end := w.end(n); response.StatusCode != c.status || end.Status != c.ended ||
				len(body) > 10_000 {
				t.Errorf("%.80q: %d, %d bytes, settled %+v", c.answer, response.StatusCode,
					len(body), end)
			}
		}
	}
}

func TestAThrottleThatDoesNotEndIsAbsorbed(t *testing.T) {
	var n atomic.Int64
	w := begin(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			w.Header().Set("Retry-After-Ms", "1")
			w.WriteHeader(429)
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}, outbound.Options{}, outbound.Route{OnThrottle: outbound.Absorb, MaxWait: 3 * time.Second})
	if r := w.ask("GET", "/", ""); r.StatusCode != 200 {
		t.Errorf("got %d", r.StatusCode)
	}
}

func TestRoutesGoWithoutTheirCalls(t *testing.T) {
	next := make(chan struct{})
	w := begin(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "one")
		http.NewResponseController(w).Flush()
		<-next
		fmt.Fprint(w, "two")
	}, outbound.Options{}, outbound.Route{Policy: "one"})
	stream, waiting := w.ask("GET", "/", ""), make(chan *http.Response)
	go func() { waiting <- w.ask("GET", "/", "") }()
	w.call(2)
	if err := w.proxy.SetRoutes(nil); err != nil {
		t.Fatal(err)
	}
	if r := w.ask("GET", "/", ""); r.Header.Get(outbound.ErrorHeader) != "route" {
		t.Errorf("without a route: %d", r.StatusCode)
	}
	close(next)
	if one, two := text(t, stream), text(t, <-waiting); one != "onetwo" || two != one {
		t.Errorf("got %q and %q", one, two)
	}
}

// An upstream closes each connection just when it is used again. A request that may have been
// received is not repeated; its caller gets the error and may retry.
func TestKeptConnectionsMayEnd(t *testing.T) {
	var got atomic.Int64
	w := begin(t, nil, outbound.Options{}, outbound.Route{Policy: "resets"})
	w.upstream.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		got.Add(1)
		conn, out, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprint(out, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		out.Flush()
		conn.Close()
	})
	answered, lost := int64(0), int64(0)
	for range 200 {
		response := w.ask("POST", "/", "payload")
		switch body := text(t, response); {
		case response.StatusCode == 200 && body == "ok":
			answered++
		case response.StatusCode == 502 && strings.Contains(body, "the upstream did not answer"):
			lost++
		default:
			t.Fatalf("%d %s", response.StatusCode, body)
		}
	}
	if n := got.Load(); n < answered || n > answered+lost || answered == 0 {
		t.Errorf("the upstream got %d requests; %d were answered, %d not", n, answered, lost)
	}
	t.Logf("%d answered, %d not", answered, lost)
}

// An upstream that does not read would hold its callers as long as they like to wait. Their own
// pauses do not count against it.
func TestAnUpstreamThatDoesNotReadIsGivenUp(t *testing.T) {
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	go func() {
		for {
			conn, err := deaf.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
		}
	}()
	const timeout, large = time.Second, 20 << 20
	w := begin(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, " ", err)
	}, outbound.Options{}, outbound.Route{Timeout: timeout, Policy: "one"},
		outbound.Route{Path: "/deaf", Upstream: "http://" + deaf.Addr().String(), Timeout: timeout,
			Policy: "one"})
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience())
	defer cancel()
	for i, size := range []int{7 << 20, large} {
		response := w.askWith(ctx, "POST", "/deaf", strings.Repeat("x", size))
		if end := w.end(i + 1); response.StatusCode != 504 || end.Status != job.SettledUnavailable {
			t.Errorf("%d bytes: %d, settled %+v", size, response.StatusCode, end)
		}
	}
	conn, in := w.dial()
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", large)
	conn.Write(make([]byte, large-1))
	<-time.After(timeout * 3 / 2)
	conn.Write(make([]byte, 1))
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := text(t, response); got != fmt.Sprint(large, " <nil>") {
		t.Errorf("a caller that pauses: %d %s", response.StatusCode, got)
	}
}

// A caller waits for 100 Continue before it sends a body, which the upstream may refuse.
func TestACallerMayWaitForContinue(t *testing.T) {
	w := begin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refuse" {
			w.WriteHeader(417)
			return
		}
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, " ", err)
	}, outbound.Options{}, outbound.Route{Tokens: "tokens"})
	const large = 10 << 20
	for i, c := range []struct {
		path   string
		length int
		want   string
		tokens int64
	}{{"/", 7, "7 <nil>", 2}, {"/", large, fmt.Sprint(large, " <nil>"), 1000},
		{"/refuse", large, "", 1000}} {
		conn, in := w.dial()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n"+
			"Expect: 100-continue\r\n\r\n", c.path, c.length)
		if response, err := http.ReadResponse(in, nil); err != nil || response.StatusCode != 100 {
			t.Fatal(response, err)
		}
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			conn.Write(bytes.Repeat([]byte("A"), c.length))
		}()
		response, err := http.ReadResponse(in, nil)
		for err == nil && response.StatusCode == 100 {
			response, err = http.ReadResponse(in, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := text(t, response); got != c.want ||
			(response.StatusCode == 417) != (c.want == "") {
			t.Errorf("%s, %d bytes: %d %q", c.path, c.length, response.StatusCode, got)
		}
		response.Body.Close()
		conn.Close()
		<-sent
		if q := w.call(i + 1); q.Costs["tokens"] != c.tokens {
			t.Errorf("%d bytes: estimated %+v", c.length, q.Costs)
		}
	}
	waittest.Until(t, "all calls end", func() bool { return w.ended() == 3 })
}

// A body that stalls would hold its memory, its start and, later, its connection.
func TestACallerThatStallsIsRefused(t *testing.T) {
	w := begin(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
	}, outbound.Options{Stall: time.Second}, outbound.Route{Path: "/api"})
	const large = 9 << 20
	for _, c := range []struct {
		path           string
		before, length int
		want           string
	}{{"/api", 5, large, "the body came too slowly"}, {"/api", 5, 10, "the body came too slowly"},
		{"/api", large - 5, large, "the body came too slowly"}, {"/none", 0, 10, "no route"}} {
		conn, in := w.dial()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", c.path,
			c.length)
		conn.Write(make([]byte, c.before))
		conn.SetReadDeadline(time.Now().Add(waittest.Patience()))
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("%s, %d bytes before it stalls: %v", c.path, c.before, err)
		}
		if got := text(t, response); !strings.Contains(got, c.want) {
			t.Errorf("%s, %d bytes before it stalls: %d %s", c.path, c.before,
				response.StatusCode, got)
		}
		if _, err := in.ReadByte(); err != io.EOF {
			t.Errorf("%s, %d bytes before it stalls: the connection stays: %v", c.path, c.before,
				err)
		}
		conn.Close()
	}
	if end := w.end(1); end.Status != job.SettledFailed || w.ended() != 1 {
		t.Errorf("the call that had started ended as %+v", end)
	}
}

// A breaker must not open because of callers.
func TestABodyThatBreaksIsNotTheUpstreamsFault(t *testing.T) {
	const large = 9 << 20
	w := begin(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
	}, outbound.Options{Stall: time.Second}, outbound.Route{})
	conn, in := w.dial()
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"+
		"%x\r\n%s\r\ngarbage\r\n", large, make([]byte, large))
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := text(t, response); response.StatusCode != 400 ||
		w.end(1).Status != job.SettledFailed {

		t.Errorf("garbage: %d %s, settled %+v", response.StatusCode, got, w.end(1))
	}

	server := httptest.NewUnstartedServer(w.proxy)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	body, more := io.Pipe()
	defer more.Close()
	go more.Write(make([]byte, large))
	response, err = server.Client().Post(server.URL, "text/plain", body)
	if err != nil {
		t.Fatal(err)
	}
	if got := text(t, response); response.StatusCode != 408 ||
		w.end(2).Status != job.SettledFailed {

		t.Errorf("a stall on HTTP/2: %d %s, settled %+v", response.StatusCode, got, w.end(2))
	}
}

// An answer that nobody reads would hold its memory, its connection and its place for ever. An
// upstream may pause for longer.
func TestACallerThatDoesNotReadIsCutOff(t *testing.T) {
	const stall = time.Second
	flood := func(out io.Writer) {
		for err := error(nil); err == nil; {
			_, err = out.Write(make([]byte, 64<<10))
		}
	}
	w := begin(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/slow":
			w.WriteHeader(200)
			http.NewResponseController(w).Flush()
			<-time.After(2 * stall)
			fmt.Fprint(w, "late")
		case r.Header.Get("Upgrade") != "":
			upgrade(t, w, func(rw *bufio.ReadWriter) { flood(rw) })
		default:
			flood(w)
		}
	}, outbound.Options{Stall: stall}, outbound.Route{Policy: "one", MaxWait: time.Minute})
	conn, _ := w.dial()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	w.end(1)
	w.upgraded()
	w.end(2)
	response := w.ask("GET", "/slow", "")
	if got := text(t, response); got != "late" {
		t.Errorf("a slow upstream: %d %q", response.StatusCode, got)
	}
}

// A caller that has stopped writing gets no 200 either.
func TestACallerThatGoesGetsNoAnswer(t *testing.T) {
	w := begin(t, says("api"), outbound.Options{}, outbound.Route{Policy: "slow", MaxWait: patient})
	w.ask("GET", "/", "")
	conn, in := w.dial()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	w.call(2)
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(in); err != nil || len(got) > 0 {
		t.Errorf("%q, %v", got, err)
	}
	if end := w.end(2); end.Status != job.SettledReturned {
		t.Errorf("ended %+v", end)
	}
}
