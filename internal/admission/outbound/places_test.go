package outbound_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/admission/outbound"
	"github.com/penstock-mq/penstock/internal/kit/overlaptest"
)

const (
	post   = "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"
	socket = "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
)

// Callers reset their connections in the request, before the answer and in it. The target, not the
// proxy, says whether it worked on one request at a time.
func TestAnAbortedCallKeepsItsPlace(t *testing.T) {
	over := func(protocol string) func(*httptest.Server) {
		return func(upstream *httptest.Server) {
			upstream.EnableHTTP2 = protocol == "HTTP/2"
			upstream.StartTLS()
		}
	}
	moment, plain := 20*time.Millisecond, (*httptest.Server).Start
	for name, c := range map[string]struct {
		target  *overlaptest.Target
		start   func(*httptest.Server)
		calls   int
		request string
	}{
		"at once":          {&overlaptest.Target{}, plain, 600, post},
		"after a moment":   {&overlaptest.Target{After: moment}, plain, 80, post},
		"at a write error": {&overlaptest.Target{After: moment, Deaf: true}, plain, 8, post},
		"over TLS":         {&overlaptest.Target{After: moment}, over("HTTP/1.1"), 40, post},
		"over HTTP2":       {&overlaptest.Target{After: moment}, over("HTTP/2"), 8, post},
		"a WebSocket":      {&overlaptest.Target{After: moment}, plain, 40, socket},
	} {
		t.Run(name, func(t *testing.T) {
			upstream := httptest.NewUnstartedServer(c.target)
			c.start(upstream)
			defer upstream.Close()
			w := begin(t, nil, outbound.Options{}, outbound.Route{Policy: "alone",
				Upstream: upstream.URL})
			if secure, ok := upstream.Client().Transport.(*http.Transport); ok {
				w.transport.TLSClientConfig = secure.TLSClientConfig
			}
			var callers sync.WaitGroup
			for range 4 {
				callers.Go(func() {
					for range c.calls / 4 {
						w.abort(c.request)
					}
				})
			}
			callers.Wait()
			c.target.Check(t)
		})
	}
}

// abort makes a call, and mostly resets its connection before the end.
func (w *world) abort(request string) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		w.t.Error(err)
		return
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetLinger(0)
	at := rand.IntN(10)
	if at == 0 {
		request = request[:len(request)-1]
	}
	fmt.Fprint(conn, request)
	switch at {
	case 0:
	case 1, 2:
		time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
	default:
		_, _ = io.ReadFull(conn, make([]byte, 1+rand.IntN(60)))
	}
}
