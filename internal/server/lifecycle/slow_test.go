package lifecycle_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
)

func listen(t testing.TB, handler http.Handler, o lifecycle.HTTPOptions) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, listener, handler, o)
	return listener.Addr().String()
}

func serve(t testing.TB, listener net.Listener, handler http.Handler, o lifecycle.HTTPOptions) {
	o.Logger = slog.New(slog.DiscardHandler)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- lifecycle.HTTP(listener, handler, o)(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func dial(t *testing.T, address, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(waittest.Patience())); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

func receive(t *testing.T, conn net.Conn) (*http.Response, string) {
	t.Helper()
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

var readAll = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	fmt.Fprintf(w, "%d %v", n, err)
})

func TestASlowBodyIsCutOff(t *testing.T) {
	address := listen(t, readAll, lifecycle.HTTPOptions{BodyGrace: 300 * time.Millisecond})
	const head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
	for name, sent := range map[string]string{"nothing": "", "one byte": "x",
		"half": strings.Repeat("x", 50000)} {
		if _, body := receive(t, dial(t, address, head+sent)); !strings.Contains(body,
			"i/o timeout") {
			t.Errorf("%s: %q", name, body)
		}
	}
	// A trickle is below the least rate.
	conn := dial(t, address, head)
	go func() {
		for range 1000 {
			if _, err := conn.Write([]byte("x")); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	if _, body := receive(t, conn); !strings.Contains(body, "i/o timeout") {
		t.Errorf("drops: %q", body)
	}
	// A body in time is accepted, and the connection continues with the next request.
	address = listen(t, readAll, lifecycle.HTTPOptions{BodyGrace: waittest.Patience()})
	whole := dial(t, address, head+strings.Repeat("x", 100000))
	if _, body := receive(t, whole); body != "100000 <nil>" {
		t.Errorf("whole: %q", body)
	}
}

// A handler may take longer than a body.
func TestTheTimeoutOfABodyEndsWithIt(t *testing.T) {
	const grace = time.Second
	late := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done():
		case <-time.After(2 * grace):
		}
		fmt.Fprintf(w, "%d %v", n, r.Context().Err())
	})
	address := listen(t, late, lifecycle.HTTPOptions{BodyGrace: grace})
	for _, request := range []string{
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		if _, body := receive(t, dial(t, address, request)); !strings.HasSuffix(body, "<nil>") {
			t.Errorf("got %q", body)
		}
	}
}

func TestConnectionsAreCounted(t *testing.T) {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	for name, o := range map[string]lifecycle.HTTPOptions{
		"of one client": {MaxPerClient: 3},
		"of all":        {MaxConnections: 3, Unbounded: loopback},
	} {
		t.Run(name, func(t *testing.T) {
			address := listen(t, readAll, o)
			const whole = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
			kept := make([]net.Conn, 3)
			for i := range kept {
				kept[i] = dial(t, address, whole)
				if response, body := receive(t, kept[i]); response.StatusCode != 200 {
					t.Fatalf("%s %s", response.Status, body)
				}
			}
			response, body := receive(t, dial(t, address, ""))
			if response.StatusCode != 503 || response.Header.Get("Retry-After") == "" ||
				!strings.Contains(body, "connections") {
				t.Errorf("%s %v %s", response.Status, response.Header, body)
			}
			kept[0].Close()
			waittest.Until(t, "what a connection took is given back", func() bool {
				response, _ := receive(t, dial(t, address, whole))
				return response.StatusCode == 200
			})
		})
	}
	t.Run("a proxy's are not", func(t *testing.T) {
		address := listen(t, readAll, lifecycle.HTTPOptions{MaxPerClient: 1, Unbounded: loopback})
		for range 3 {
			if response, _ := receive(t,
				dial(t, address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")); response.StatusCode != 200 {
				t.Error(response.Status)
			}
		}
	})
}

// Limits of connections per address hold for other protocols, and closed connections do not count.
func TestALimitedListenerIsShared(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := lifecycle.Limited(inner, lifecycle.HTTPOptions{MaxPerClient: 2})
	t.Cleanup(func() { listener.Close() })
	accepted := make(chan net.Conn, 10)
	go func() {
		defer close(accepted)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	address := inner.Addr().String()
	dial(t, address, "")
	dial(t, address, "")
	first, second := <-accepted, <-accepted
	defer second.Close()
	third := dial(t, address, "")
	if n, err := third.Read(make([]byte, 1)); err == nil {
		t.Errorf("a third connection gets %d bytes", n)
	}
	first.Close()
	first.Close()
	dial(t, address, "")
	(<-accepted).Close()
}
