package httptarget

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/certtest"
	"github.com/penstock-mq/penstock/internal/kit/h2test"
	"github.com/penstock-mq/penstock/workers"
)

// fickle answers the first request on each connection once all kept connections have one, and
// resets the connection on the next. It counts the requests read.
type fickle struct {
	listener net.Listener
	kept     int64
	first    atomic.Int64
	all      chan struct{}
	requests atomic.Int64
}

func newFickle(t *testing.T, kept int64) *fickle {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fickle{listener: listener, kept: kept, all: make(chan struct{})}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			served.Go(func() { f.serve(t, conn) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		served.Wait()
	})
	return f
}

func (f *fickle) serve(t *testing.T, conn net.Conn) {
	defer conn.Close()
	reader := bufio.NewReader(conn)
	for n := 1; ; n++ {
		request, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		f.requests.Add(1)
		if n > 1 {
			if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
				t.Error(err)
			}
			return
		}
		if _, err := io.Copy(io.Discard, request.Body); err != nil {
			t.Error(err)
		}
		if f.first.Add(1) == f.kept {
			close(f.all)
		}
		<-f.all
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); err !=
			nil {
			t.Error(err)
		}
	}
}

// A connection that breaks before the response is a failed attempt. net/http would resend an
// idempotent request on each kept connection.
func TestOneRequestPerStart(t *testing.T) {
	const kept = 20
	for _, method := range []string{"POST", "PUT", "GET", "HEAD", "OPTIONS", "TRACE", "DELETE"} {
		for _, body := range []string{"", "payload"} {
			t.Run(fmt.Sprintf("%s of %d bytes", method, len(body)), func(t *testing.T) {
				server := newFickle(t, kept)
				client := Client()
				t.Cleanup(client.CloseIdleConnections)
				handle := handlerWith(t, client, "http://"+server.listener.Addr().String())
				header := nats.Header{
					"Penstock-Method": {method}, "Penstock-Forward-X-Idempotency-Key": {"x"},
				}
				job := workers.Job{IdempotencyKey: "api-1-1", Body: []byte(body),
					Header: header}
				var opening sync.WaitGroup
				for range kept {
					opening.Go(func() {
						if err := handle(within(t), job); err != nil {
							t.Error(err)
						}
					})
				}
				opening.Wait()
				before := server.requests.Load()
				if err := handle(within(t), job); verdict(err) != "unavailable" {
					t.Errorf("a broken connection: %v", err)
				}
				if sent := server.requests.Load() - before; sent != 1 {
					t.Errorf("%d requests for one start", sent)
				}
			})
		}
	}
}

// HTTP/2 servers say that they did not process a request, and net/http would send it again. Its
// error advises how to have it sent again.
func TestARefusedRequestIsNotSentAgain(t *testing.T) {
	authority := certtest.New(t)
	client := Client()
	client.Transport.(*http.Transport).TLSClientConfig = authority.Client("")
	t.Cleanup(client.CloseIdleConnections)
	for want, answer := range map[string]func(stream uint32) []byte{
		"call target: stream error: stream ID 1; REFUSED_STREAM; received from peer": h2test.
			Refuse,
		"call target: http2: Transport received Server's graceful shutdown GOAWAY": func(
			uint32) []byte {
			return h2test.Leave(0)
		},
	} {
		for _, body := range []string{"", "payload"} {
			var requests atomic.Int64
			base := h2test.Serve(t, authority, func(stream uint32) []byte {
				requests.Add(1)
				return answer(stream)
			})
			err := handlerWith(t, client, base)(within(t), workers.Job{Body: []byte(body)})
			if verdict(err) != "unavailable" || err.Error() != want || requests.Load() != 1 {
				t.Errorf("%d requests of %d bytes, then %v", requests.Load(), len(body), err)
			}
			client.CloseIdleConnections()
		}
	}
}

// Servers end connections after some thousand requests. It must neither cost a job an attempt nor
// open the breaker.
func TestATargetThatEndsItsConnectionIsNotDown(t *testing.T) {
	authority := certtest.New(t)
	client := Client()
	client.Transport.(*http.Transport).TLSClientConfig = authority.Client("")
	t.Cleanup(client.CloseIdleConnections)
	var requests atomic.Int64
	handle := handlerWith(t, client, h2test.Serve(t, authority, func(stream uint32) []byte {
		requests.Add(1)
		if stream > 1 {
			return h2test.Leave(1)
		}
		return h2test.OK(stream)
	}))
	for i, want := range []string{"done", "again 0s", "done"} {
		err := handle(within(t), workers.Job{Body: []byte("x")})
		if verdict(err) != want || requests.Load() != int64(i)+1 {
			t.Errorf("start %d: %v after %d requests", i, err, requests.Load())
		}
	}
}

func TestLengths(t *testing.T) {
	for _, secure := range []bool{false, true} {
		var got *http.Request
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter,
			r *http.Request) {
			got = r
			if body, err := io.ReadAll(r.Body); err != nil || len(body) != 7 && len(body) != 0 {
				t.Errorf("%s: body %q, %v", r.Method, body, err)
			}
		}))
		client := Client()
		if secure {
			server.EnableHTTP2 = true
			server.StartTLS()
			client.Transport.(*http.Transport).TLSClientConfig = server.Client().
				Transport.(*http.Transport).TLSClientConfig
		} else {
			server.Start()
		}
		t.Cleanup(server.Close)
		handle := handlerWith(t, client, server.URL)
		for _, method := range []string{"POST", "PUT", "PATCH", "GET", "HEAD", "OPTIONS", "DELETE",
			"TRACE", "PURGE"} {
			for _, body := range []string{"", "payload"} {
				if method == "TRACE" && body != "" {
					continue
				}
				if err := handle(within(t),
					workers.Job{Body: []byte(body),
						Header: nats.Header{"Penstock-Method": {method}}}); err != nil {
					t.Fatal(err)
				}
				length := strings.Join(got.Header.Values("Content-Length"), ",")
				want := ""
				switch {
				case body != "":
					want = "7"
				case got.ProtoMajor == 1 && method[0] == 'P' && method != "PURGE":
					want = "0"
				}
				if length != want || len(got.TransferEncoding) > 0 ||
					(got.ProtoMajor == 2) != secure {
					t.Errorf(
						"%s of %d bytes: %s, Content-Length %q, Transfer-Encoding %v; want "+
							"Content-Length %q", method, len(body), got.Proto,
						length, got.TransferEncoding, want)
				}
			}
		}
	}
}

func TestInvalidHTTPFields(t *testing.T) {
	var served atomic.Int64
	base := serve(t, func(http.ResponseWriter, *http.Request) { served.Add(1) })
	for name, job := range map[string]workers.Job{
		"control character in the key": {IdempotencyKey: "a\x01"},
		"end of line in the key":       {IdempotencyKey: "a\r\nX: 1"},
		"control character in a field": {
			Header: nats.Header{"Penstock-Forward-X": {"fine", "a\x7f"}}},
		"control character in the type":    {Header: nats.Header{"Content-Type": {"a\x00"}}},
		"control character in the trace":   {Header: nats.Header{"traceparent": {"\n"}}},
		"space in a name":                  {Header: nats.Header{"Penstock-Forward-X Y": {"1"}}},
		"no name":                          {Header: nats.Header{"Penstock-Forward-": {"1"}}},
		"a name that is not ASCII":         {Header: nats.Header{"Penstock-Forward-Ü": {"1"}}},
		"a method that is not one":         {Header: nats.Header{"Penstock-Method": {"G T"}}},
		"a path that leads out of the URL": {Header: nats.Header{"Penstock-Path": {"/../x"}}},
	} {
		if err := handlerFor(t, base)(within(t), job); verdict(err) != "permanent" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if served.Load() > 0 {
		t.Errorf("%d requests were sent", served.Load())
	}
	fine := workers.Job{IdempotencyKey: "é\t!",
		Header: nats.Header{"Penstock-Forward-X!#$%&'*+-.^_`|~9": {"ü"}}}
	if err := handlerFor(t, base)(within(t), fine); err != nil || served.Load() != 1 {
		t.Errorf("fields that HTTP can carry: %v", err)
	}
}
