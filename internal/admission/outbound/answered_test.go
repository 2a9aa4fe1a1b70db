package outbound_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/penstock-mq/penstock/internal/admission/outbound"
	"github.com/penstock-mq/penstock/internal/queue/job"
)

// The proxy reports an answer at its header, and otherwise what is known of the request.
func TestTheProxyReportsAnswers(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	released := make(chan struct{})
	defer close(released)
	for name, c := range map[string]struct {
		upstream string // empty: one that handles
		handle   http.HandlerFunc
		want     []string
	}{
		"a stream": {handle: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.(http.Flusher).Flush()
			fmt.Fprint(w, "begin")
			w.(http.Flusher).Flush()
			<-released
		}, want: []string{"answered", "done seen"}},
		"a 502": {handle: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
		}, want: []string{"unavailable none"}},
		"no answer": {handle: func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}, want: []string{"unavailable "}},
		"a closed port": {upstream: "http://" + closed.Addr().String(),
			want: []string{"unreached "}},
	} {
		w := begin(t, c.handle, outbound.Options{}, outbound.Route{Policy: "arrivals",
			Upstream: c.upstream})
		response := w.ask(http.MethodGet, "/", "")
		for i, want := range c.want {
			if i > 0 {
				released <- struct{}{}
				_, _ = io.Copy(io.Discard, response.Body)
			}
			got := w.end(i + 1)
			if got.Op == job.OpAnswered {
				got.Status = got.Op
			} else {
				got.Status += " " + got.Answer
			}
			if got.Status != want {
				t.Errorf("%s: report %q, want %q", name, got.Status, want)
			}
		}
	}
}

// A 101 is an answer, long before its connection ends.
func TestAnUpgradeIsAnAnswer(t *testing.T) {
	w := begin(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(both, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"+
			"Upgrade: websocket\r\n\r\n")
		_ = both.Flush()
		_, _ = bufio.NewReader(conn).ReadByte()
	}, outbound.Options{}, outbound.Route{Policy: "arrivals"})
	conn, _ := w.upgraded()
	if got := w.end(1); got.Op != job.OpAnswered {
		t.Errorf("report %+v", got)
	}
	conn.Close()
	if got := w.end(2); got.Op != job.OpSettle || got.Answer != job.SettledAnswered {
		t.Errorf("report %+v", got)
	}
}
