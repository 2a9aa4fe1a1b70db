package main

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// outage makes TestATargetThatIsDownBuriesNoJobs use the default retries: make outage.
var outage = flag.Duration("outage", 0,
	"how long the target is down, with the default retries; 0: for seconds, with short ones")

// A target refuses connections for much longer than every job's attempts would last; without
// breakers 30 of 30 jobs became dead letters within 13 s. The outage must be visible everywhere,
// and afterwards all jobs run, each bucket at its rate.
func TestATargetThatIsDownBuriesNoJobs(t *testing.T) {
	const keys, each, rate = 4, 12, 5
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	retry, toBack := "{max_attempts: 3, backoff: 100ms, max_backoff: 200ms}", waittest.Patience()
	if *outage > 0 {
		retry, toBack = "{}", 3*time.Minute
	}
	p := launch(t, "--drain", "--config", configure(t, fmt.Sprintf(`
log: {level: debug}
policies:
  - name: api
    algorithm: leaking_bucket
    outflow: %d/s
    capacity: 100
    partitions: 1
    target: {http: {url: "http://%s"}}
    retry: %s
`, rate, address, retry))).ready()
	down := time.After(*outage)

	nc, err := nats.Connect(p.nats)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	var mu sync.Mutex
	told := map[string]int{}
	if _, err := nc.Subscribe("penstock.event.api.>", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		told[regexp.MustCompile(`"type":"(\w+)"`).FindStringSubmatch(string(m.Data))[1]]++
	}); err != nil {
		t.Fatal(err)
	}
	count := func(event string) int {
		mu.Lock()
		defer mu.Unlock()
		return told[event]
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for n := range keys * each {
		if status, body := p.post(fmt.Sprintf("/v1/jobs/api/key-%d", n%keys),
			strconv.Itoa(n)); status != 202 {
			t.Fatalf("job %d: %d %s", n, status, body)
		}
	}

	type state struct {
		By        string    `json:"blocked_by"`
		Until     time.Time `json:"until"`
		LastError string    `json:"last_error"`
		Attempts  int       `json:"attempts"`
	}
	eventually(t, "a bucket and a job tell that the target is down", func() bool {
		b := operate[state](p, "GET", "/v1/buckets/api/key-0", "", 200)
		j := operate[state](p, "GET", fmt.Sprintf("/v1/jobs/api:%d", keys*each), "", 200)
		return b.By == "breaker" && !b.Until.IsZero() &&
			strings.Contains(b.LastError, "connection refused") && j.By == "breaker"
	})
	eventually(t, "the target was probed for a while", func() bool {
		return *outage > 0 || count("failed") >= 20
	})
	<-down
	p.says(`penstock_queue_jobs{policy="api"} ` + strconv.Itoa(keys*each))
	p.says(`penstock_jobs_total{outcome="dead",policy="api"} 0`)
	if _, metrics := p.get("/metrics"); strings.Contains(metrics,
		`penstock_breaker_open{policy="api"} 0`) ||
		!strings.Contains(metrics, "penstock_breaker_open") {
		t.Error("the metric says that no breaker is open")
	}

	arrived := map[string]bool{}
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		arrived[r.Header.Get("Penstock-Job")] = true
	})}
	eventually(t, "the target is back", func() bool {
		listener, err = net.Listen("tcp", address)
		return err == nil
	})
	back := time.Now()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-served
	}()
	within(t, toBack, "not all jobs are done", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return told["done"] == keys*each
	})
	done := time.Now()
	p.says(fmt.Sprintf(`penstock_jobs_total{outcome="done",policy="api"} %d`, keys*each))
	p.says(`penstock_breaker_open{policy="api"} 0`)
	mu.Lock()
	t.Logf("events: %v; all done %v after the target was back", told,
		done.Sub(back).Round(time.Second))
	if len(arrived) != keys*each || told["dead"] > 0 || told["breaker_opened"] == 0 ||
		told["breaker_closed"] == 0 {
		t.Errorf("%d of %d jobs arrived; events: %v", len(arrived), keys*each, told)
	}
	mu.Unlock()
	eventually(t, "the log tells that the target is back", func() bool {
		return strings.Contains(p.Log.String(), `level=INFO msg="target is back`)
	})
	log := p.Log.String()
	for _, line := range []string{`level=WARN msg="target is down`,
		`level=INFO msg="target is back`} {
		if n := strings.Count(log, line); n == 0 || n > 5 {
			t.Errorf("%d lines %s", n, line)
		}
	}
	starts := map[string][]time.Time{}
	for _, m := range regexp.MustCompile(`msg=start .*key=(\S+) .*started=(\S+)`).
		FindAllStringSubmatch(log, -1) {
		at, err := time.Parse(time.RFC3339Nano, m[2])
		if err != nil {
			t.Fatal(err)
		}
		if at.After(back) {
			starts[m[1]] = append(starts[m[1]], at)
		}
	}
	if len(starts) != keys {
		t.Errorf("starts of %d buckets are in the log", len(starts))
	}
	for key, all := range starts {
		slices.SortFunc(all, time.Time.Compare)
		for i, from := range all {
			n := 0
			for n < len(all)-i && all[i+n].Sub(from) <= time.Second {
				n++
			}
			if n > rate+1 {
				t.Errorf("%s: %d starts within a second of %v, at %d/s", key, n, from, rate)
			}
		}
	}
	p.stop()
}
