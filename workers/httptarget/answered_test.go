package httptarget_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/answertest"
	"github.com/penstock-mq/penstock/internal/kit/certtest"
	"github.com/penstock-mq/penstock/internal/kit/h2test"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
	"github.com/penstock-mq/penstock/workers/httptarget"
	"github.com/penstock-mq/penstock/workers/workerstest"
)

// raw is a target that gets one request, and answers with any text.
func raw(t *testing.T, answer string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(t.Context(), func() { conn.Close() })
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.WriteString(conn, answer)
			}
			if strings.Contains(answer, "\r\n\r\n") { // it breaks off
				conn.Close()
			}
		}
	}()
	return "http://" + listener.Addr().String()
}

// A job's outcome says whether the target has answered it, or got it at all.
func TestOutcomesSayWhetherTheTargetHasAnswered(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	authority, stranger := certtest.New(t), certtest.New(t)
	proxied := httptarget.Client() // whose proxy refuses to connect
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(refusing.Close)
	trusting := httptarget.Client()
	trusting.Transport.(*http.Transport).TLSClientConfig = authority.Client("")
	trustless := httptarget.Client()
	trustless.Transport.(*http.Transport).TLSClientConfig = stranger.Client("")
	hookless := &http.Client{Transport: bare{http.DefaultTransport}}
	proxied.Transport.(*http.Transport).Proxy = func(*http.Request) (*url.URL, error) {
		return url.Parse(refusing.URL)
	}
	ok := "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	busy := "HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
	hint := "HTTP/1.1 103 Early Hints\r\n\r\n"
	status := func(of string) string { return strings.Replace(ok, "200", of, 1) }
	cases := []struct {
		name, url string
		client    *http.Client // nil: the usual one
		want      string
	}{
		{"200", raw(t, ok), nil, ""},
		{"404", raw(t, status("404")), nil, ""},
		{"429", raw(t, status("429")), nil, ""},
		{"500", raw(t, status("500")), nil, ""},
		{"a body that breaks off", raw(t, strings.Replace(ok, ": 0", ": 9", 1)), nil, ""},
		{"an early hint before the answer", raw(t, hint+ok), nil, ""},
		{"504", raw(t, status("504")), nil, "none"},
		{"a throttling 503", raw(t, busy), nil, "none"},
		{"an early hint alone", raw(t, hint), nil, "none"},
		{"half a header", raw(t, "HTTP/1.1 200 OK\r\n"), nil, "none"},
		{"nothing", raw(t, ""), nil, "none"},
		{"a refused stream", h2test.Serve(t, authority, h2test.Refuse), trusting, "none"},
		{"a closed port", "http://" + closed.Addr().String(), nil, "unsent"},
		{"a failed handshake", h2test.Serve(t, authority, h2test.OK), trustless, "unsent"},
		{"a proxy that does not dial", "https://127.0.0.1:1", proxied, "unsent"},
		{"a client without hooks", "http://" + closed.Addr().String(), hookless, "none"},
	}
	var policies []policy.Policy
	clients := map[string]*http.Client{}
	for i, c := range cases {
		p := workerstest.Policy(fmt.Sprint("case-", i), "1000/s")
		p.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: c.url}}
		p.Timeout = policy.Duration(500 * time.Millisecond)
		policies, clients[p.Name] = append(policies, p), c.client
	}
	answers := answertest.Run(t, func(e inforce.Entry) (workers.Handler, error) {
		client := cmp.Or(clients[e.Policy.Name], httptarget.Client())
		return httptarget.New(httptarget.Options{Client: client})(e)
	}, policies...)
	for i, c := range cases {
		if got := answers[policies[i].Name]; got != c.want {
			t.Errorf("%s: answer %q, want %q", c.name, got, c.want)
		}
	}
}

// A request that waits for a connection is given up after a second, before others pile up that
// arrive together with it.
func TestARequestWaitsForAConnectionForASecond(t *testing.T) {
	client := httptarget.Client()
	client.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (
		net.Conn, error) {

		<-t.Context().Done()
		return nil, net.ErrClosed
	}
	p := workerstest.Policy("api", "1000/s")
	p.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: "http://192.0.2.1"}}
	p.Timeout = policy.Duration(10 * time.Minute)
	p.Limits = policy.Limits{{Name: "arrivals", CountFrom: policy.CountFromAnswer,
		Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 10,
			Window: policy.Duration(time.Second)}}}
	answers := answertest.Run(t, httptarget.New(httptarget.Options{Client: client}), p)
	if got := answers["api"]; got != "unsent" {
		t.Errorf("answer %q, want unsent", got)
	}
}

// bare calls no hooks of httptrace.
type bare struct{ http.RoundTripper }

func (b bare) RoundTrip(r *http.Request) (*http.Response, error) {
	return b.RoundTripper.RoundTrip(r.Clone(context.WithoutCancel(context.Background())))
}
