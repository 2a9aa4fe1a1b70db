package penstock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/admission/permits"
	"github.com/penstock-mq/penstock/internal/kit/certtest"
	"github.com/penstock-mq/penstock/internal/kit/h2test"
	"github.com/penstock-mq/penstock/internal/kit/overlaptest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
)

// A pause requested by one answer holds all requests, and a body that is being read counts against
// the concurrency.
func TestATargetsPauseHoldsAllCallsOfItsKey(t *testing.T) {
	api := paced("api", 100, 100)
	api.Concurrency = 1
	p := open(t, penstock.Options{Policies: []policy.Policy{api}})
	run(t, p)
	var mu sync.Mutex
	var starts []time.Time
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		starts = append(starts, time.Now())
		first := len(starts) == 1
		mu.Unlock()
		if first {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
		fmt.Fprint(w, "answer")
	}))
	defer target.Close()
	client := &http.Client{Transport: &penstock.Transport{Permits: p, Policy: "api"}}
	get := func() *http.Response {
		t.Helper()
		response, err := client.Get(target.URL)
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	first := get()
	if body, err := io.ReadAll(first.Body); first.StatusCode != 429 || string(body) != "answer" ||
		err != nil {
		t.Fatalf("%v %q %v", first.Status, body, err)
	}
	first.Body.Close()
	second := get()
	if waited := starts[1].Sub(starts[0]); waited < 990*time.Millisecond {
		t.Errorf("the next began after %v", waited)
	}
	third := make(chan *http.Response)
	go func() {
		response, err := client.Get(target.URL)
		if err != nil {
			t.Error(err)
		}
		third <- response
	}()
	waiting(t, p, "api", target.Listener.Addr().String(), 1)
	second.Body.Close()
	(<-third).Body.Close()
}

// A reverse proxy writes to an answer of status 101 if it can, in a goroutine of its own.
func TestOnlyUpgradedConnectionsCanBeWritten(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("api", 1000, 100)}})
	run(t, p)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, out, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprint(out, "HTTP/1.1 101 Switching Protocols\r\n", r.URL.Query().Get("more"), "\r\n")
		out.Flush()
	}))
	defer target.Close()
	client := &http.Client{Transport: &penstock.Transport{Permits: p, Policy: "api"}}
	for more, want := range map[string]bool{"": false,
		"Connection: Upgrade\r\nUpgrade: x\r\n": true} {
		response, err := client.Get(target.URL + "?more=" + url.QueryEscape(more))
		if err != nil {
			t.Fatal(err)
		}
		connection, open := response.Body.(io.Writer)
		if open != want {
			t.Errorf("%q: can be written: %v", more, open)
		}
		if open {
			if _, err := connection.Write([]byte("x")); err != nil {
				t.Error(err)
			}
		}
		response.Body.Close()
	}
}

// The stream's headers report an exhausted limit long before its end.
func TestThePauseOfAStreamBeginsAtOnce(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Ratelimit-Remaining", "0")
		w.Header().Set("X-Ratelimit-Reset", "60")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer target.Close()
	for name, concurrency := range map[string]int{"free": 0, "leased": 3} {
		api := paced("api", 1000, 100)
		api.Concurrency = concurrency
		p := open(t, penstock.Options{Policies: []policy.Policy{api}})
		run(t, p)
		client := &http.Client{Transport: &penstock.Transport{Permits: p, Policy: "api",
			Call: func(*http.Request) penstock.Call { return penstock.Call{Key: "a"} }}}
		response, err := client.Get(target.URL)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, name+": the bucket pauses", func() bool {
			w := httptest.NewRecorder()
			p.Handler().ServeHTTP(w, httptest.NewRequest("GET",
				"http://localhost/v1/buckets/api/a", nil))
			return strings.Contains(w.Body.String(), `"throttled_ms":`)
		})
		response.Body.Close()
	}
}

// net/http would repeat these on another connection.
// lending lends permits without a limit, and receives what their calls report.
type lending chan job.Settlement

func (l lending) Acquire(context.Context, permits.Request) (*permits.Permit, error) {
	tell := func(_ string, s job.Settlement) error {
		l <- s
		return nil
	}
	return permits.Lent("id", time.Now().Add(time.Minute), time.Hour, tell), nil
}

func TestATargetIsNotBlamedForTheCallersBody(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer target.Close()
	broken := errors.New("the file is gone")
	calls := make(lending, 1)
	client := &http.Client{Transport: &penstock.Transport{Permits: calls}}
	body := io.MultiReader(strings.NewReader("a part"), iotest.ErrReader(broken))
	if _, err := client.Post(target.URL, "text/plain", body); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	if c := <-calls; c.Status != job.SettledFailed {
		t.Errorf("reported %+v", c)
	}
}

func TestAPermitIsForOneRequest(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("api", 1000, 100)}})
	run(t, p)
	type nth struct{}
	var requests atomic.Int64
	target := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request) {
		requests.Add(1)
		if r.Context().Value(nth{}).(*atomic.Int64).Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
	}))
	target.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, nth{}, new(atomic.Int64))
	}
	target.Start()
	defer target.Close()
	client := &http.Client{Transport: &penstock.Transport{Permits: p, Policy: "api"}}
	for method, body := range map[string]string{"GET": "", "POST": "x", "PUT": ""} {
		for n := range 2 {
			before := requests.Load()
			r, err := http.NewRequestWithContext(t.Context(), method, target.URL,
				strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Idempotency-Key", "k")
			response, err := client.Do(r)
			if err == nil {
				response.Body.Close()
			}
			if requests.Load() != before+1 || (err != nil) != (n == 1) {
				t.Errorf("%s %d: %d requests, %v", method, n, requests.Load()-before, err)
			}
		}
	}
}

// It did not process the calls, so they count neither against it nor as starts.
func TestAServerThatEndsItsConnectionIsNotDown(t *testing.T) {
	authority := certtest.New(t)
	target := h2test.Serve(t, authority, func(uint32) []byte { return h2test.Leave(0) })
	p := open(t, penstock.Options{Policies: []policy.Policy{paced("api", 1000, 100)}})
	run(t, p)
	base := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: authority.Client("")}
	client := &http.Client{Transport: &penstock.Transport{Permits: p, Policy: "api", Base: base}}
	for range 10 { // five open a breaker
		response, err := client.Get(target)
		if err == nil {
			response.Body.Close()
		}
		if err == nil || !strings.HasSuffix(err.Error(), "graceful shutdown GOAWAY") {
			t.Fatal(err)
		}
	}
}

func waiting(t *testing.T, p *penstock.Penstock, policy, key string, calls int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d calls wait", calls), func() bool {
		r := httptest.NewRequest("GET", "http://localhost/v1/buckets/"+policy+"/"+key, nil)
		w := httptest.NewRecorder()
		p.Handler().ServeHTTP(w, r)
		return strings.Contains(w.Body.String(), fmt.Sprintf(`"calls":%d`, calls))
	})
}

// An SDK with an http.Client: its calls of all processes keep one rate.
func ExampleTransport() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	p, err := penstock.Open(ctx, penstock.Options{Policies: []policy.Policy{{Name: "api",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Outflow: penstock.MustRate("96/s"),
			Capacity: 5000}}}})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	go p.Run(ctx)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "a charge")
	}))
	defer target.Close()

	sdk := &http.Client{Transport: &penstock.Transport{Permits: p, Policy: "api",
		Call: func(*http.Request) penstock.Call { return penstock.Call{Key: "account 1"} }}}
	response, err := sdk.Get(target.URL)
	if err != nil {
		log.Fatal(err) // a *penstock.RefusedError has the time to retry
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	fmt.Println(string(body), err)
	// Output: a charge <nil>
}

// A call of any kind; examples/grpc has an interceptor for gRPC.
func ExamplePenstock_Acquire() {
	call := func(ctx context.Context, p penstock.Acquirer, ask func(context.Context) error) error {
		permit, err := p.Acquire(ctx, penstock.Call{Policy: "llm", Key: "openai",
			Costs: map[string]int64{"tokens": 1200}, Wait: time.Minute})
		if err != nil {
			return err // such as a *penstock.RefusedError, with the time to retry
		}
		result := permits.Result{Status: permits.Done}
		if err = ask(ctx); err != nil {
			result = permits.Result{Status: permits.Failed, Err: err}
		}
		permit.Settle(result)
		return err
	}
	_ = call
}

// A permit holds its place until it is settled, and a client that leaves gives up its turn.
func TestPermitsOverHTTP(t *testing.T) {
	api := paced("api", 1000, 100)
	api.Concurrency = 1
	p := open(t, penstock.Options{Policies: []policy.Policy{api}})
	run(t, p)
	server := httptest.NewServer(p.Handler())
	defer server.Close()
	ask := func(ctx context.Context, method, query, body string) (int, map[string]any) {
		r, err := http.NewRequestWithContext(ctx, method, server.URL+"/v1/permits/api/a/b?"+query,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, nil
		}
		defer response.Body.Close()
		var document map[string]any
		_ = json.NewDecoder(response.Body).Decode(&document)
		return response.StatusCode, document
	}
	status, first := ask(t.Context(), "POST", "wait=10s", "")
	if status != 200 || first["lease_ms"].(float64) < 1000 || first["start_within_ms"] == 0 {
		t.Fatal(status, first)
	}
	goes, leave := context.WithCancel(t.Context())
	gone, next := make(chan bool), make(chan map[string]any)
	go func() { ask(goes, "POST", "wait=1m", ""); gone <- true }()
	waiting(t, p, "api", "a/b", 1)
	go func() {
		_, second := ask(t.Context(), "POST", "wait=1m", "")
		next <- second
	}()
	waiting(t, p, "api", "a/b", 2)
	leave()
	<-gone
	waiting(t, p, "api", "a/b", 1)
	permit := fmt.Sprint("permit=", first["permit"])
	for _, body := range []string{`{"status":"progress"}`, `{"status":"done"}`} {
		if status, document := ask(t.Context(), "PUT", permit, body); status != 204 {
			t.Errorf("%s: %d %v", body, status, document)
		}
	}
	second := <-next
	if second["permit"] == nil || second["permit"] == first["permit"] {
		t.Errorf("the next got %v", second)
	}
	for _, bad := range []struct{ permit, body, want string }{
		{"a.b", `{"status":"done"}`, "want the permit"},
		{"*", `{"status":"done"}`, "want the permit"},
		{"a", `[]`, "body: has the wrong type, array"},
		{"a", `{"used":{"tokens":1e30}}`, "body: used: has the wrong type, number 1e30"},
	} {
		status, document := ask(t.Context(), "PUT", "permit="+url.QueryEscape(bad.permit), bad.body)
		text := fmt.Sprint(document["detail"])
		if status != 400 || !strings.Contains(text, bad.want) {
			t.Errorf("%+v: %d %s", bad, status, text)
		}
	}
	used := `{"status":200,"headers":{"x-ratelimit-remaining":"0","x-ratelimit-reset":"60"}}`
	if status, document := ask(t.Context(), "PUT", fmt.Sprint("permit=", second["permit"]),
		used); status != 204 {
		t.Errorf("%s: %d %v", used, status, document)
	}
	eventually(t, "the bucket pauses", func() bool {
		w := httptest.NewRecorder()
		p.Handler().ServeHTTP(w, httptest.NewRequest("GET",
			"http://localhost/v1/buckets/api/a/b", nil))
		return strings.Contains(w.Body.String(), `"throttled_ms":`)
	})
}

// Callers close bodies early, and cancel before the answer and in it. The target says whether it
// worked on one request at a time.
func TestACallEndsWhenTheTargetHasEndedIt(t *testing.T) {
	api := paced("api", 1000, 1000)
	api.Concurrency = 1
	p := open(t, penstock.Options{Policies: []policy.Policy{api}})
	run(t, p)
	for name, c := range map[string]struct {
		base  http.RoundTripper
		calls int
	}{
		"the usual connections": {nil, 120},
		"connections of others": {&http.Transport{}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			target := &overlaptest.Target{After: time.Millisecond}
			server := httptest.NewServer(target)
			defer server.Close()
			client := &http.Client{Transport: &penstock.Transport{Permits: p, Policy: "api",
				Base: c.base}}
			var callers sync.WaitGroup
			for range 4 {
				callers.Go(func() {
					for range c.calls / 4 {
						abort(t, client, server.URL)
					}
				})
			}
			callers.Wait()
			target.Check(t)
		})
	}
}

func abort(t *testing.T, client *http.Client, url string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if rand.IntN(2) == 0 {
		defer time.AfterFunc(time.Duration(rand.IntN(20))*time.Millisecond, cancel).Stop()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url,
		strings.NewReader("hello"))
	if err != nil {
		t.Error(err)
		return
	}
	response, err := client.Do(request)
	if err != nil {
		if ctx.Err() == nil {
			t.Error(err)
		}
		return
	}
	_, _ = io.CopyN(io.Discard, response.Body, rand.Int64N(30))
	response.Body.Close()
}
