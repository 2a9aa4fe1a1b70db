//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/proctest"
)

// TestCallsOutliveTheirOwner kills the owner of a bucket in which calls wait, through the proxy and
// for permits over HTTP, beside jobs. Each caller finds the next owner within its wait and none
// fails, and law 2 holds over calls and jobs together.
func TestCallsOutliveTheirOwner(t *testing.T) {
	const callers, each = 3, 40 // of each kind
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

// send sends a request, and reads the answer of success into a document unless that is nil.
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
