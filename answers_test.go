package penstock_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/admission/permits"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
)

// arrivals is paced, with a limit that counts from the answer.
func arrivals(name string) policy.Policy {
	p := paced(name, 1000, 1000)
	p.WindowMargin = policy.Duration(time.Millisecond)
	p.MaxDelay = policy.Duration(20 * time.Millisecond)
	p.Limits = policy.Limits{{Name: "arrivals", CountFrom: policy.CountFromAnswer,
		Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 1000,
			Window: policy.Duration(time.Second)}}}
	return p
}

// reports returns the claimants' reports about policies, as they reach their valves.
func reports(t *testing.T, p *penstock.Penstock) (next func() string) {
	t.Helper()
	nc, err := p.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	heard := make(chan *nats.Msg, 1000)
	if _, err := nc.ChanSubscribe("penstock.claim.>", heard); err != nil || nc.Flush() != nil {
		t.Fatal(err, nc.LastError())
	}
	return func() string {
		t.Helper()
		for patience := time.After(waittest.Patience()); ; {
			select {
			case m := <-heard:
				if c, err := job.ReadClaim(m.Data); err == nil && c.Op != job.OpClaim {
					return strings.TrimSpace(c.Op + " " + c.Status + " " + c.Answer)
				}
			case <-patience:
				t.Fatal("no report came")
			}
		}
	}
}

// A call's answer is reported at its header, before its body; the end says that there was none, or
// that nothing was sent.
func TestTransportReportsAnswers(t *testing.T) {
	released := make(chan struct{})
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/stream":
			w.WriteHeader(http.StatusEarlyHints)
			w.(http.Flusher).Flush()
			fmt.Fprint(w, "begin")
			w.(http.Flusher).Flush()
			<-released
		case "/500":
			w.WriteHeader(http.StatusInternalServerError)
			w.(http.Flusher).Flush()
			<-released
		case "/504":
			w.WriteHeader(http.StatusGatewayTimeout)
		case "/503":
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/broken":
			panic(http.ErrAbortHandler)
		case "/hint":
			w.WriteHeader(http.StatusEarlyHints)
			panic(http.ErrAbortHandler)
		}
	}))
	defer target.Close()
	defer close(released)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	p := open(t, penstock.Options{Policies: []policy.Policy{arrivals("api"),
		withoutArrivals("plain")}})
	run(t, p)
	next := reports(t, p)
	for _, c := range []struct {
		policy, url string
		want        []string
	}{
		{"api", target.URL + "/stream", []string{"answered", "settle done seen"}},
		{"api", target.URL + "/500", []string{"answered", "settle unavailable seen"}},
		{"api", target.URL + "/504", []string{"settle unavailable none"}},
		{"api", target.URL + "/503", []string{"settle retry-after none"}},
		{"api", target.URL + "/broken", []string{"settle unavailable"}},
		{"api", target.URL + "/hint", []string{"settle unavailable"}},
		{"api", "http://" + closed.Addr().String(), []string{"settle unreached"}},
		{"plain", target.URL + "/stream", []string{"settle done"}},
		{"plain", target.URL + "/504", []string{"settle unavailable"}},
	} {
		client := &http.Client{Transport: &penstock.Transport{Permits: p, Policy: c.policy,
			Call: func(*http.Request) permits.Request { return permits.Request{Key: c.url} }}}
		request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		for i, want := range c.want {
			if i == len(c.want)-1 && err == nil {
				if strings.HasSuffix(c.url, "/stream") || strings.HasSuffix(c.url, "/500") {
					released <- struct{}{}
				}
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
			if got := next(); got != want {
				t.Errorf("%s of %s: report %q, want %q", c.url, c.policy, got, want)
			}
		}
	}
}

// A call that waits for a connection is given up after a second, before others pile up that arrive
// together with it.
func TestACallWaitsForAConnectionForASecond(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{arrivals("api")}})
	run(t, p)
	next := reports(t, p)
	base := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		<-t.Context().Done()
		return nil, net.ErrClosed
	}}
	client := &http.Client{Transport: &penstock.Transport{Permits: p, Policy: "api", Base: base}}
	response, err := client.Get("http://192.0.2.1")
	if err == nil {
		response.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "no connection within 1s") {
		t.Errorf("the call ended with %v", err)
	}
	if got := next(); got != "settle unreached" {
		t.Errorf("report %q, want unreached", got)
	}
}

// withoutArrivals is leased, and counts from the start.
func withoutArrivals(name string) policy.Policy {
	p := paced(name, 1000, 1000)
	p.Concurrency = 10
	return p
}

func TestClientsReportAnswers(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{arrivals("api")}})
	run(t, p)
	next := reports(t, p)
	for name, c := range clients(t, p) {
		permit, err := c.Acquire(t.Context(), penstock.Call{Policy: "api", Key: name})
		if err != nil || permit.MaxDelay != 20*time.Millisecond {
			t.Fatal(name, permit, err)
		}
		permit.Answered()
		got := next()
		permit.Answered()
		permit.Settle(permits.Result{Status: permits.Unavailable})
		if got += ", " + next(); got != "answered, settle unavailable seen" {
			t.Errorf("over %s: reports %q", name, got)
		}
	}
}

// An HTTP status tells whether there was an answer.
func TestSettlementsOverHTTPSayWhetherThereWasAnAnswer(t *testing.T) {
	p := open(t, penstock.Options{Policies: []policy.Policy{arrivals("api")}})
	run(t, p)
	next := reports(t, p)
	for body, want := range map[string]string{
		`{"status":200}`:                      "settle done seen",
		`{"status":500}`:                      "settle unavailable seen",
		`{"status":504}`:                      "settle unavailable none",
		`{"status":"fail"}`:                   "settle fail",
		`{"status":"fail","answer":"unsent"}`: "settle fail unsent",
		`{"status":"unreached"}`:              "settle unreached",
		`{"status":"answered"}`:               "answered",
	} {
		_, given := ask(t, p, "POST", "/v1/permits/api/a", "")
		var permit struct {
			Permit string `json:"permit"`
			Delay  int64  `json:"max_delay_ms"`
		}
		if err := json.Unmarshal([]byte(given), &permit); err != nil || permit.Delay != 20 {
			t.Fatal(given, err)
		}
		status, text := ask(t, p, "PUT", "/v1/permits/api/a?permit="+permit.Permit, body)
		if status != http.StatusNoContent {
			t.Fatal(body, status, text)
		}
		if got := next(); got != want {
			t.Errorf("%s: report %q, want %q", body, got, want)
		}
	}
}

// Whether the caller reads the body, or looks at the status alone.
func TestATransportReadsThrottlesInOtherWords(t *testing.T) {
	api := paced("api", 1000, 100)
	api.Concurrency, api.Retry.MaxCooldown = 1, policy.Duration(time.Second)
	p := open(t, penstock.Options{Policies: []policy.Policy{api}})
	run(t, p)
	for name, c := range map[string]struct {
		like, body string
		status     int
		read       bool
	}{
		"a 403": {"github", `{"message": "You have exceeded a secondary rate limit."}`, 403, false},
		"a 200 in parts": {"shopify", `{"errors": [{"extensions": {"code": "THROTTLED"}}],
			"extensions": {"cost": {"requestedQueryCost": 9, "throttleStatus":
			{"currentlyAvailable": 0, "restoreRate": 1}}}}`, 200, true},
	} {
		var starts []time.Time
		target := httptest.NewServer(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				if starts = append(starts, time.Now()); len(starts) > 1 {
					return
				}
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.body[:9])
				w.(http.Flusher).Flush()
				fmt.Fprint(w, c.body[9:])
			}))
		client := &http.Client{Transport: &penstock.Transport{Permits: p, Policy: "api",
			Like: c.like}}
		for range 2 {
			response, err := client.Get(target.URL)
			if err != nil {
				t.Fatal(err)
			}
			if c.read {
				if body, err := io.ReadAll(response.Body); err != nil ||
					len(starts) == 1 && string(body) != c.body {
					t.Errorf("%s: %q, %v", name, body, err)
				}
			}
			if err := response.Body.Close(); err != nil {
				t.Error(err)
			}
		}
		if pause := starts[1].Sub(starts[0]); pause < time.Second {
			t.Errorf("%s: the next began after %v", name, pause)
		}
		target.Close()
	}
}

func TestATransportRefusesRulesThatMakeNoSense(t *testing.T) {
	client := &http.Client{Transport: &penstock.Transport{Like: "githob",
		Answers: []policy.AnswerRule{{Means: "done"}}}}
	_, err := client.Get("http://127.0.0.1:1/")
	if err == nil || !strings.Contains(err.Error(), "like: ") ||
		!strings.Contains(err.Error(), "answers[0]: requires a status") {
		t.Error(err)
	}
}
