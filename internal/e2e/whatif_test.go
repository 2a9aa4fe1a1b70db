//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/whatif"
)

const scale = 4

type asked struct {
	at      time.Duration
	sent    time.Duration // by the clock that all processes share
	job     string
	allowed bool
}

// TestSimulationMatchesRealProcesses replays a trace of 100 seconds at four times the speed against
// a real admitter and two drainers, over HTTP, and compares the simulation of the same trace:
// refusals and quantiles of waits must agree within 5 %.
//
// Tolerances exclude the load of the machine: the peak makes up for late starts, refusals may
// differ by 1 % of the requests, and waits by 50 ms and this process's stalls.
func TestSimulationMatchesRealProcesses(t *testing.T) {
	c := newCluster(t, `  - {name: api, algorithm: leaking_bucket, outflow: 16/s, peak: 48/s,
     capacity: 50}
  - {name: door, algorithm: token_bucket, capacity: 20, refill: 12/s}`)
	c.admitter()
	c.drainer()
	c.drainer()
	c.publish(c.connect(), "another", 1, 0)
	c.ended(1)
	trace := drawn()
	stalled := stalls()
	replay(t, "http://"+c.http, trace)
	slices.SortFunc(trace, func(a, b *asked) int { return int(a.sent - b.sent) })
	accepted := 0
	for _, a := range trace {
		if a.job != "" {
			accepted++
		}
	}
	c.until("all have started", func() bool { return c.record.started() >= 1+accepted })

	stood := stalled()
	t.Logf("this process stood still for %v at most", stood)

	starts := map[string]time.Duration{}
	for _, s := range c.record.starts {
		starts[s.job] = s.at
	}
	var waits []time.Duration
	refused, denied := 0, 0
	for _, a := range trace {
		if a.job == "" {
			refused++
		} else {
			waits = append(waits, max(0, starts[a.job]-a.sent))
		}
		if !a.allowed {
			denied++
		}
	}
	slices.Sort(waits)
	at := func(q float64) time.Duration {
		return waits[max(0, int(math.Ceil(q*float64(len(waits))))-1)]
	}

	foretold := played(t, trace, `{"name": "api", "algorithm": "leaking_bucket",
		"outflow": "4/s", "peak": "12/s", "capacity": 50}`)
	within := func(what string, is, should, floor float64) {
		t.Helper()
		t.Logf("%s: %.4g, foretold %.4g", what, is, should)
		if math.Abs(is-should) > max(0.05*should, floor) {
			t.Errorf("%s: %.4g, and it was foretold to be %.4g", what, is, should)
		}
	}
	some := float64(len(trace)) / 100
	within("refused jobs", float64(refused), float64(foretold.Refused), some)
	for _, w := range []struct {
		what   string
		is     time.Duration
		should whatif.Millis
	}{{"p50", at(0.5), foretold.Wait.P50},
		{"p99", at(0.99), foretold.Wait.P99}, {"max", at(1), foretold.Wait.Max}} {
		within("wait "+w.what+", s", w.is.Seconds(), time.Duration(w.should).Seconds()/scale,
			0.05+stood.Seconds())
	}
	foretold = played(t, trace, `{"name": "door", "algorithm": "token_bucket",
		"capacity": 20, "refill": "3/s"}`)
	within("refused checks", float64(denied), float64(foretold.Refused), some)
}

func drawn() (all []*asked) {
	rng := rand.New(rand.NewPCG(14, 4))
	for s := 0.0; s < 100; {
		s += rng.ExpFloat64() / (4.5 * (1 + 0.8*math.Sin(s/40*2*math.Pi)))
		n := 1
		if rng.IntN(60) == 0 {
			n = 30
		}
		for range n {
			all = append(all, &asked{at: time.Duration(s * float64(time.Second))})
		}
	}
	return all
}

func replay(t *testing.T, server string, trace []*asked) {
	transport := &http.Transport{MaxIdleConnsPerHost: 64, MaxConnsPerHost: 64}
	client := &http.Client{Transport: transport, Timeout: waittest.Patience()}
	defer transport.CloseIdleConnections()
	post := func(path, body string) (status int, answer []byte) {
		r, err := client.Post(server+path, "", strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0, nil
		}
		defer r.Body.Close()
		answer, err = io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		return r.StatusCode, answer
	}
	var all sync.WaitGroup
	begin := time.Now()
	for _, a := range trace {
		after(time.Until(begin.Add(a.at / scale)))
		a.sent = monotonic()
		all.Go(func() {
			status, answer := post("/v1/jobs/api/key", "0s")
			if status/100 == 2 {
				var is struct{ Job string }
				if err := json.Unmarshal(answer, &is); err != nil {
					t.Errorf("%s: %v", answer, err)
				}
				a.job = is.Job
			}
		})
		all.Go(func() {
			status, _ := post("/v1/check/door/key", "")
			a.allowed = status == http.StatusOK
		})
	}
	all.Wait()
}

func played(t *testing.T, trace []*asked, text string) *whatif.Report {
	t.Helper()
	p, err := policy.Read([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	requests := func(yield func(whatif.Request) bool) {
		for _, a := range trace {
			at := 1_900_000_000*int64(time.Second) + int64(a.sent-trace[0].sent)*scale
			if !yield(whatif.Request{At: at, Key: "key", Cost: 1}) {
				return
			}
		}
	}
	r, err := whatif.Play(p, requests, whatif.Options{})
	if err != nil {
		t.Fatal(fmt.Errorf("play: %w", err))
	}
	return r
}
