//go:build unix

package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/server/audit"
)

// limited is a target that counts arrivals in each of its windows, requests and tokens, as third
// parties do.
type limited struct {
	mu       sync.Mutex
	arrivals []arrival
	jobs     map[string]bool
}

type arrival struct {
	at     time.Time
	tokens int
}

// ServeHTTP returns the job's actual cost, which is below its estimate.
func (l *limited) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	id := r.Header.Get(job.HeaderJob)
	l.jobs[id] = true
	used := 4 + len(id)%3
	l.arrivals = append(l.arrivals, arrival{now, used})
	fmt.Fprintf(w, `{"usage": {"total_tokens": %d}}`, used)
}

func (l *limited) done() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.jobs)
}

func (l *limited) violations(window time.Duration, most int, units func(arrival) int) (n int) {
	first, held := 0, 0
	for _, a := range l.arrivals {
		for held += units(a); a.at.Sub(l.arrivals[first].at) >= window; first++ {
			held -= units(l.arrivals[first])
		}
		if held > most {
			n++
		}
	}
	return n
}

// A target counts requests and tokens in three windows, for a bucket that is always busy, while two
// drainers are killed.
func TestATargetSeesNoneOfItsLimitsBroken(t *testing.T) {
	const jobs = 100
	target := &limited{jobs: map[string]bool{}}
	server := httptest.NewServer(target)
	defer server.Close()
	c := newCluster(t, `  - name: llm
    algorithm: leaking_bucket
    capacity: 1000
    target: {http: {url: "`+server.URL+`", cost_from_response: {tokens: {json: usage.total_tokens}}}}
    window_margin: 250ms # a busy machine is as a slow network
    limits:
      - {name: requests, algorithm: sliding_log, limit: 20, window: 2s}
      - {name: tokens, algorithm: sliding_log, limit: 150, window: 3s, cost: tokens}
      - {name: account, algorithm: sliding_log, limit: 50, window: 6s}`)
	c.admitter()
	js, err := c.connect().JetStream(nats.MaxWait(waittest.Patience()))
	if err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		m := nats.NewMsg("penstock.jobs.llm.key")
		m.Header.Set("Penstock-Cost-Tokens", strconv.Itoa(7+i%5))
		if _, err := js.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	auditor := c.auditor()
	for _, some := range []int{jobs / 4, jobs / 2} {
		owner := c.drainer()
		c.until("some jobs are done", func() bool { return target.done() > some })
		owner.Kill()
	}
	c.drainer()
	for n := target.done(); n < jobs; n = target.done() {
		c.until("more jobs are done", func() bool { return target.done() > n })
	}

	for _, b := range auditor.Breaches() {
		t.Errorf("key %s: %s", b.Key.Raw(), b)
	}
	seen, known := auditor.Bucket("llm", "key")
	if !known || len(seen.Worst) != 3 || !seen.Incomplete {
		t.Errorf("the auditor saw %+v: want three windows, and that one drainer followed another",
			seen)
	}
	slices.SortFunc(target.arrivals, func(a, b arrival) int { return a.at.Compare(b.at) })
	one := func(arrival) int { return 1 }
	tokens := func(a arrival) int { return a.tokens }
	for _, v := range []int{
		target.violations(2*time.Second, 20, one),
		target.violations(3*time.Second, 150, tokens),
		target.violations(6*time.Second, 50, one),
	} {
		if v != 0 {
			t.Errorf("%d violations", v)
		}
	}
}

func (c *cluster) auditor() *audit.Auditor {
	c.t.Helper()
	broker, err := jet.NewBroker(c.connect(), jet.Options{})
	if err != nil {
		c.t.Fatal(err)
	}
	auditor := audit.New(broker, audit.Options{})
	go auditor.Run(c.t.Context())
	c.until("the starts are audited", func() bool {
		select {
		case <-auditor.Ready():
			return true
		default:
			return false
		}
	})
	return auditor
}
