package outbound_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/admission/outbound"
	"github.com/penstock-mq/penstock/internal/admission/permits"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
)

// policies: slow starts one call in five minutes; its peak is high, because a start that comes too
// late on a busy machine is given back except for its slot of the peak. Failing upstreams use
// separate policies, because their breakers may open.
const policies = `
policies:
  - &api
    name: api
    algorithm: leaking_bucket
    outflow: 1000/s
    burst: 1000
    capacity: 1000
    limits: [{name: tokens, algorithm: token_bucket, capacity: 1000000, refill: 1000000/s,
              cost: tokens}]
  - {<<: *api, name: slow, outflow: 12/h, peak: 1000/s, burst: 1}
  - {<<: *api, name: resets}
  - {<<: *api, name: one, concurrency: 1}
  - {<<: *api, name: alone, concurrency: 1}
  - {<<: *api, name: unreached}
  - {<<: *api, name: errors}
  - {<<: *api, name: arrivals, window_margin: 1ms, max_delay: 20ms, limits: [{name: requests,
     algorithm: sliding_log, limit: 1000, window: 1s, count_from: answer}]}
  - {<<: *api, name: down, retry: {backoff: 1s, max_backoff: 1s}}
`

var shared *penstock.Penstock

func TestMain(m *testing.M) {
	status := 1
	defer func() { os.Exit(status) }()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	dir, err := os.MkdirTemp("", "outbound")
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "policies.yaml")
	if err == nil {
		err = os.WriteFile(file, []byte(policies), 0o600)
	}
	set, err2 := penstock.LoadPolicies(file)
	if err = errors.Join(err, err2); err == nil {
		shared, err = penstock.Open(ctx, penstock.Options{Policies: set})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer shared.Close()
	go func() {
		if err := shared.Run(ctx); err != nil {
			panic(err)
		}
	}()
	<-shared.Ready()
	status = m.Run()
}

type world struct {
	t         *testing.T
	upstream  *httptest.Server
	transport *http.Transport
	proxy     *outbound.Proxy
	url       string
	client    *http.Client
	stop      context.CancelFunc
	key       string

	mu    sync.Mutex
	calls []permits.Request
	late  map[string]bool
	ends  []job.Claim
}

func begin(t *testing.T, handle http.HandlerFunc, o outbound.Options,
	routes ...outbound.Route) *world {

	t.Helper()
	w := &world{t: t, upstream: httptest.NewServer(handle), key: rand.Text(),
		late: map[string]bool{}}
	t.Cleanup(w.upstream.Close)
	for i := range routes {
		r := &routes[i]
		for _, missing := range []struct {
			field *string
			value string
		}{{&r.Upstream, w.upstream.URL}, {&r.Policy, "api"}, {&r.Key, w.key}} {
			if *missing.field == "" {
				*missing.field = missing.value
			}
		}
		r.Check(func(field, format string, args ...any) {
			t.Errorf("route %d, %s: "+format, append([]any{i, field}, args...)...)
		})
	}
	w.listen()
	w.transport = outbound.NewTransport()
	o.Routes, o.Acquire, o.Transport = routes, w.acquire, w.transport
	var err error
	if w.proxy, err = outbound.New(o); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.url = "http://" + listener.Addr().String()
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	context.AfterFunc(ctx, w.proxy.Stop)
	stopped := make(chan error, 1)
	go func() {
		stopped <- lifecycle.HTTP(listener, w.proxy, lifecycle.HTTPOptions{
			Stall: cmp.Or(o.Stall, waittest.Patience()), Grace: waittest.Patience()})(ctx)
	}()
	w.client = &http.Client{Transport: &http.Transport{DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}
	t.Cleanup(func() {
		w.client.CloseIdleConnections()
		w.transport.CloseIdleConnections()
		w.stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) acquire(ctx context.Context, r permits.Request) (*permits.Permit, error) {
	w.mu.Lock()
	w.calls = append(w.calls, r)
	w.mu.Unlock()
	for {
		permit, err := shared.Acquire(ctx, r)
		if err != nil || time.Until(permit.StartBy) > job.ClaimWindow/2 {
			return permit, err
		}
		w.mu.Lock()
		w.late[permit.ID] = true
		w.mu.Unlock()
		permit.Return()
		r.Wait = permits.MaxWait // the bucket may get the start back after the next question
	}
}

func (w *world) listen() {
	w.t.Helper()
	nc, err := shared.Connect("test")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	if _, err = nc.Subscribe("penstock.>", func(m *nats.Msg) {
		c, err := job.ReadClaim(m.Data)
		if err != nil || c.Key.Raw() != w.key ||
			c.Op != job.OpSettle && c.Op != job.OpAnswered &&
				(c.Op != job.OpProgress || c.RetryAfterMS == 0) {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.late[c.ID] {
			w.ends = append(w.ends, c)
		}
	}); err != nil {
		w.t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) ask(method, path, body string, header ...string) *http.Response {
	w.t.Helper()
	return w.askWith(w.t.Context(), method, path, body, header...)
}

func (w *world) askWith(ctx context.Context, method, path, body string,
	header ...string) *http.Response {

	w.t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, w.url+path, reader)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			r.Host = value
		} else {
			r.Header.Add(name, value)
		}
	}
	response, err := w.client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { response.Body.Close() })
	return response
}

func (w *world) dial() (net.Conn, *bufio.Reader) {
	w.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	return conn, bufio.NewReader(conn)
}

func (w *world) upgraded() (net.Conn, *bufio.Reader) {
	w.t.Helper()
	conn, in := w.dial()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"+
		"Upgrade: websocket\r\n\r\n")
	if response, err := http.ReadResponse(in, nil); err != nil || response.StatusCode != 101 {
		w.t.Fatal(response, err)
	}
	return conn, in
}

func (w *world) call(n int) permits.Request {
	w.t.Helper()
	waittest.Until(w.t, fmt.Sprintf("call %d is made", n), func() bool { return w.count() >= n })
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[n-1]
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.calls)
}

func (w *world) end(n int) job.Claim {
	w.t.Helper()
	waittest.Until(w.t, fmt.Sprintf("call %d is settled", n), func() bool {
		return w.ended() >= n
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ends[n-1]
}

func (w *world) ended() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ends)
}

func text(t *testing.T, response *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func says(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, name, " ", r.URL.EscapedPath(), "?", r.URL.RawQuery)
	}
}

// patient exceeds the interval of the policy slow.
const patient = 10 * time.Minute
