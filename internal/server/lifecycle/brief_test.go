package lifecycle_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
)

var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	text := fmt.Appendf(nil, "%s %s %s %d %q %v\n", r.Method, r.RequestURI, r.Host,
		r.ContentLength, body, err)
	for _, name := range []string{"Accept", "Connection", "X-Twice", "X-Odd "} {
		text = fmt.Appendf(text, "%q\n", r.Header[name])
	}
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("X-Lines", "one\r\ntwo")
	if r.URL.Path == "/closes" {
		w.Header().Set("Connection", "close")
	}
	if r.URL.Path == "/nothing" {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Write(text)
})

func exchange(t *testing.T, address, text string) string {
	t.Helper()
	conn := dial(t, address, text)
	defer conn.Close()
	conn.(*net.TCPConn).CloseWrite()
	var all strings.Builder
	for in := bufio.NewReader(conn); ; {
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			return all.String()
		}
		body, err := io.ReadAll(response.Body)
		response.Header.Del("Date")
		fmt.Fprintf(&all, "%d %d %v %s%v\n", response.StatusCode, response.ContentLength,
			response.Header, body, err)
	}
}

const post = "POST /a%2Fb?c=d HTTP/1.1\r\nHost: x:80\r\nContent-Length: 3\r\n\r\nabc"

var heads = []string{
	post,
	post + post + post,
	post + "\r\n" + post,
	"POST /nothing HTTP/1.1\r\nHost: x\r\n\r\n" + post,
	"POST /closes HTTP/1.1\r\nHost: x\r\n\r\n" + post,
	"GET / HTTP/1.1\r\nHost: x\r\nAccept: a\r\nX-Twice: 1\r\nx-twice: 2\r\n\r\n" + post,
	"GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n" + post,
	"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" + post,
	"GET / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n" + post,
	"GET / HTTP/1.0\r\n\r\n" + post,
	"GET http://other/ HTTP/1.1\r\nHost: x\r\n\r\n" + post,
	"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n" + post,
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + post,
	"GET / HTTP/1.1\r\n\r\n" + post,
	"GET / HTTP/1.1\r\nHost: \r\n\r\n" + post,
	"GET / HTTP/1.1\r\nHost: a b\r\n\r\n" + post,
	"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" + post,
	"GET / HTTP/1.1\nHost: x\n\n" + post,
	"GET / HTTP/1.1\r\nHost: x\r\nX-Odd : 1\r\n\r\n" + post,
	"POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\nabc" + post,
	"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd" + post,
	"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\nabc" + post,
	post + "abc",
	post + "\r\n\r\n\n" + post,
	"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\nabc" + post,
	"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" +
		"3\r\nabc\r\n0\r\n\r\n" + post,
	"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\nabc" + post,
	"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc" + post,
	"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n" + strings.Repeat("a", 5000) +
		post,
	"GET / HTTP/1.1\r\nHost: x\r\nAccept: " + strings.Repeat("a", 5000) + "\r\n\r\n" +
		post,
	"GET / HTTP/1.1\r\nHost: x\r\nAccept: a\r\n b\r\n\r\n" + post,
	"GET / HTTP/1.1\r\nHost: x\r\nAccept: a\x00b\r\n\r\n" + post,
	"GET / HTTP/1.1\r\nHost: x\r\nAccept: \xff\r\n\r\n" + post,
	"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n" + post,
	"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n" + post,
	"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n" + post,
	"\r\n" + post,
	post + "abc",
	post + "\r\n\r\n\n" + post,
	"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc",
	"GET / HT",
}

func FuzzBriefRequestsAreAnsweredLikeOthers(f *testing.F) {
	for _, text := range heads {
		f.Add(text)
	}
	briefly := listen(f, echo, lifecycle.HTTPOptions{
		Brief: func(r *http.Request) bool { return r.Method == http.MethodPost }})
	alone := listen(f, echo, lifecycle.HTTPOptions{})
	f.Fuzz(func(t *testing.T, text string) {
		if got, want := exchange(t, briefly, text), exchange(t, alone, text); got != want {
			t.Errorf("%q\nis answered  %s\ninstead of   %s", text, got, want)
		}
	})
}

func TestAConnectionOutlivesItsBriefRequests(t *testing.T) {
	listener := newPipes()
	serve(t, listener, echo, lifecycle.HTTPOptions{MaxPerClient: 1,
		Brief: func(r *http.Request) bool { return r.Method == http.MethodPost }})
	ask := func(conn net.Conn, pieces ...string) int {
		go func() {
			for _, piece := range pieces {
				io.WriteString(conn, piece)
			}
		}()
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Fatal(err)
		}
		return response.StatusCode
	}
	open := func() net.Conn {
		conn, err := listener.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	conn := open()
	for _, pieces := range [][]string{{post}, {"\r\n", post}, {post[:20], post[20:]}, {post},
		{"GET / HTTP/1.1\r\nHost: x\r\n\r\n"}} {
		if status := ask(conn, pieces...); status != http.StatusOK {
			t.Error(pieces, status)
		}
	}
	if status := ask(open()); status != http.StatusServiceUnavailable {
		t.Errorf("a second connection: %d", status)
	}
	conn.Close()
	waittest.Until(t, "what the connection took is given back", func() bool {
		return ask(open(), post) == http.StatusOK
	})
}

func TestBriefConnectionsEndWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := newPipes()
		part := lifecycle.HTTP(listener, http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(time.Duration(r.ContentLength) * time.Second)
				w.WriteHeader(http.StatusAccepted)
			}), lifecycle.HTTPOptions{Grace: 10 * time.Second,
			Brief:  func(*http.Request) bool { return true },
			Logger: slog.New(slog.DiscardHandler)})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- part(ctx) }()
		open := func(text string) net.Conn {
			conn, err := listener.dial(ctx, "", "")
			if err != nil {
				t.Fatal(err)
			}
			if text != "" {
				go io.WriteString(conn, text)
			}
			synctest.Wait()
			return conn
		}
		text := func(conn net.Conn) string {
			all, _ := io.ReadAll(conn)
			return string(all)
		}
		idle := open("")
		began := time.Now()
		if got := text(idle); got != "" || time.Since(began) != 10*time.Second {
			t.Errorf("what never asks gets %q after %v", got, time.Since(began))
		}
		idle = open(post)
		if _, err := http.ReadResponse(bufio.NewReader(idle), nil); err != nil {
			t.Fatal(err)
		}
		fresh, silent := open(""), open("")
		short, long := open(post), open(strings.Replace(post, "3\r\n\r\nabc",
			"30\r\n\r\n"+strings.Repeat("a", 30), 1))
		stop()
		if got := text(idle); got != "" {
			t.Errorf("an idle connection gets %q", got)
		}
		go io.WriteString(fresh, strings.Replace(post, "3\r\n\r\nabc", "0\r\n\r\n", 1))
		if got := text(fresh); !strings.HasPrefix(got, "HTTP/1.1 202 Accepted\r\n") {
			t.Errorf("the first request of a new connection gets %q", got)
		}
		if got := text(short); !strings.HasPrefix(got, "HTTP/1.1 202 Accepted\r\n") ||
			!strings.Contains(got, "Connection: close\r\n") {
			t.Errorf("a request gets %q", got)
		}
		began = time.Now()
		if got := text(long); got != "" || time.Since(began) != 7*time.Second {
			t.Errorf("a request longer than the grace gets %q after %v", got, time.Since(began))
		}
		if got := text(silent); got != "" {
			t.Errorf("a new connection gets %q", got)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
	})
}
