//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/admission/permits"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
)

// TestCallsOutliveTheirOwner kills the owner of a bucket with waiting calls and jobs, through the
// proxy and for permits over HTTP. Each caller finds the next owner within its wait, and law 2
// holds over calls and jobs together.
func TestCallsOutliveTheirOwner(t *testing.T) {
	const callers, each = 3, 40
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	proxy := proctest.FreeAddress(t)
	c := newCluster(t, fmt.Sprintf(`  - {name: api, algorithm: leaking_bucket, outflow: 20/s,
     capacity: 5000, concurrency: 10}
outbound:
  - {listen: %q, routes: [{upstream: %q, policy: api, key: key, max_wait: 5m}]}`, proxy,
		upstream.URL))
	c.admitter()
	auditor := c.auditor()
	c.drainer()
	c.drainer()
	if n := c.publish(c.connect(), "key", 30, 0); n != 30 {
		t.Fatalf("%d jobs accepted", n)
	}
	c.until("a job starts", func() bool { return c.record.started() > 0 })

	var begun atomic.Int32
	var longest atomic.Int64
	var wait sync.WaitGroup
	call := func(how func(context.Context) error) {
		wait.Go(func() {
			for range each {
				began := time.Now()
				if err := how(t.Context()); err != nil {
					t.Error(err)
					return
				}
				begun.Add(1)
				for took := int64(time.Since(began)); ; {
					if most := longest.Load(); took <= most || longest.CompareAndSwap(most, took) {
						break
					}
				}
			}
		})
	}
	permits := "http://" + c.http + "/v1/permits/api/key"
	for range callers {
		call(func(ctx context.Context) error {
			return send(ctx, http.MethodGet, "http://"+proxy+"/", nil)
		})
		call(func(ctx context.Context) error {
			var permit struct{ Permit string }
			if err := send(ctx, http.MethodPost, permits+"?wait=5m", &permit); err != nil {
				return err
			}
			return send(ctx, http.MethodDelete, permits+"?permit="+permit.Permit, nil)
		})
	}
	c.until("calls begin", func() bool { return begun.Load() >= callers*each/4 })
	c.record.lastBy().Kill()
	wait.Wait()
	if n := begun.Load(); n != 2*callers*each {
		t.Errorf("%d calls began", n)
	}
	t.Logf("the longest wait: %v; the lease: %v", time.Duration(longest.Load()), lease)
	for _, b := range auditor.Breaches() {
		t.Errorf("%s, key %s: %s", b.Policy, b.Key.Raw(), b)
	}
	if seen, known := auditor.Bucket("api", "key"); !known || len(seen.Worst) == 0 {
		t.Errorf("the auditor saw %+v", seen)
	}
}

func send(ctx context.Context, method, url string, document any) error {
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, url, response.Status, body)
	}
	if err != nil || document == nil {
		return err
	}
	return json.Unmarshal(body, document)
}

// TestCallsLeaveNothingBehind ends calls in every way: given up, refused, settled, returned,
// abandoned, or cut off. Goroutines, places, buckets and metrics are as before.
func TestCallsLeaveNothingBehind(t *testing.T) {
	const calls = 1000
	c := newCluster(t, `  - {name: free, algorithm: leaking_bucket, outflow: 1000/s, capacity: 5000}
  - {name: leased, algorithm: leaking_bucket, outflow: 1000/s, capacity: 20, concurrency: 2,
     timeout: 1s}
  - {name: hourly, algorithm: leaking_bucket, outflow: 1/h, capacity: 20}`)
	spawnAdmitter(t, "admitter", "--drain", "--config", c.config())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(ctx context.Context, method, path, body string) (status int, answer string) {
		r, err := http.NewRequestWithContext(ctx, method, "http://"+c.http+path,
			strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		response, err := client.Do(r)
		if err != nil {
			return 0, ""
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(text)
	}
	acquired := func(path string) string {
		var permit struct{ Permit string }
		_, answer := ask(t.Context(), http.MethodPost, path, "")
		if err := json.Unmarshal([]byte(answer), &permit); err != nil || permit.Permit == "" {
			t.Errorf("%s: %s", path, answer)
		}
		path, _, _ = strings.Cut(path, "?")
		return path + "?permit=" + permit.Permit
	}
	settled := func(path, body string) {
		if status, answer := ask(t.Context(), http.MethodPut, path, body); status != 204 {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
	cutOff := func() {
		nc, err := nats.Connect(c.url(), nats.Name("caller"))
		if err != nil {
			t.Error(err)
			return
		}
		names, _ := jet.NewNames("")
		callers, err := permits.New(nc, names)
		if err != nil {
			t.Error(err)
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		defer nc.Close()
		_, _ = callers.Acquire(ctx, permits.Request{Policy: "leased", Key: "b"})
	}
	call := func(i int) {
		free := fmt.Sprintf("/v1/permits/free/%d", i)
		switch i % 10 {
		case 0:
			ask(t.Context(), http.MethodDelete, acquired(free), "")
		case 1:
			settled(acquired(free), `{"status":"done"}`)
		case 2:
			settled(acquired(free), `{"status":429,"retry_after_ms":5,"used":{"tokens":1}}`)
		case 3:
			acquired(free)
		case 4:
			settled(acquired("/v1/permits/leased/a?wait=2m"), `{"status":"fail"}`)
		case 5:
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%7)*time.Millisecond)
			defer cancel()
			ask(ctx, http.MethodPost, "/v1/permits/leased/a?wait=1m", "")
		case 6:
			ask(t.Context(), http.MethodPost, "/v1/permits/hourly/a?wait=10ms", "")
			ask(t.Context(), http.MethodPost, free, `{"cost":100000}`)
		case 7:
			ask(t.Context(), http.MethodPut, "/v1/permits/leased/a?permit="+strconv.Itoa(i),
				`{"status":"progress"}`)
		case 8:
			ask(t.Context(), http.MethodPost, "/v1/permits/none/a", "")
			long := strings.Repeat("k", 1<<(20+i/500))
			if status, _ := ask(t.Context(), http.MethodPost, free+long, ""); status/100 == 2 {
				t.Errorf("a key of %d bytes: %d", len(long), status)
			}
		case 9:
			cutOff()
		}
	}
	scraped := func() (goroutines, series int) {
		_, text := ask(t.Context(), http.MethodGet, "/metrics", "")
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "#") {
				series++
			}
			_, _ = fmt.Sscanf(line, "go_goroutines %d", &goroutines)
		}
		return goroutines, series
	}
	idle := func() bool {
		for _, policy := range []string{"free", "leased"} {
			_, text := ask(t.Context(), http.MethodGet, "/v1/buckets/"+policy, "")
			if !strings.Contains(text, `"buckets":[]`) {
				return false
			}
		}
		return true
	}
	play := func(from, to int) {
		var next atomic.Int64
		var wait sync.WaitGroup
		next.Store(int64(from))
		for range 16 {
			wait.Go(func() {
				for i := int(next.Add(1)) - 1; i < to; i = int(next.Add(1)) - 1 {
					call(i)
				}
			})
		}
		wait.Wait()
		c.until("no bucket has calls", idle)
	}
	play(0, 100)
	goroutines, series := scraped()
	if goroutines == 0 || series == 0 {
		t.Fatalf("%d goroutines, %d series", goroutines, series)
	}
	play(100, 100+calls)
	var after, more int
	const drift = 10 // goroutines of the runtime and the server; an answer's first 503
	c.until("what calls took is free", func() bool {
		after, more = scraped()
		return after <= goroutines+drift && more <= series+drift
	})
	t.Logf("%d goroutines, %d before; %d series, %d before", after, goroutines, more, series)
}
