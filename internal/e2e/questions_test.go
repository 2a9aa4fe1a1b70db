//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// TestQuestionsCostNoDrainerItsLease asks a drainer for the states of 40,000 buckets under one
// outflow, while jobs are submitted with questions about their starts. If the lease expired,
// another drainer would take over.
func TestQuestionsCostNoDrainerItsLease(t *testing.T) {
	c := newCluster(t,
		`  - {name: api, algorithm: leaking_bucket, outflow: 1/s, outflow_total: 40/s,
     capacity: 100, partitions: 1}`)
	c.admitter()
	nc := c.connect()
	keys := make([]string, 40_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%d", i)
	}
	if n := c.publishTo(nc, keys, 0); n != len(keys) {
		t.Fatalf("%d jobs accepted", n)
	}
	c.drainer()
	c.until("jobs run", func() bool { return c.record.started() > 0 })
	c.drainer()
	owner := c.owner(nc)
	for range 3 {
		var accepted atomic.Int32
		var submitters sync.WaitGroup
		for i := range 8 {
			submitters.Go(func() {
				for j := range 12 {
					url := "http://" + c.http + "/v1/jobs/api/" + keys[100*i+j]
					response, err := http.Post(url, "", strings.NewReader("0s"))
					if err != nil {
						t.Error(err)
						return
					}
					response.Body.Close()
					if response.StatusCode == http.StatusAccepted {
						accepted.Add(1)
					}
				}
			})
		}
		c.until("500 buckets are listed", func() bool { return c.listed(500) == 500 })
		if submitters.Wait(); accepted.Load() == 0 {
			t.Error("no submission was accepted")
		}
	}
	// The drainer may have handed the partition over to its preferred owner.
	var lease struct {
		Tombstone bool `json:"tombstone"`
	}
	if c.read(nc, "PENSTOCK_DRAINERS", owner, &lease); lease.Tombstone {
		t.Errorf("%s owned the partition, and was declared dead after some questions", owner)
	}
}

func (c *cluster) listed(limit int) int {
	c.t.Helper()
	response, err := http.Get(fmt.Sprintf("http://%s/v1/buckets/api?limit=%d", c.http, limit))
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	var list struct {
		Buckets []struct {
			Key string `json:"key"`
		} `json:"buckets"`
	}
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		c.t.Fatal(err)
	}
	return len(list.Buckets)
}

func (c *cluster) owner(nc *nats.Conn) string {
	c.t.Helper()
	var record struct {
		Owner string `json:"owner"`
	}
	c.read(nc, "PENSTOCK_PARTITIONS", "api.0", &record)
	return record.Owner
}

func (c *cluster) read(nc *nats.Conn, bucket, key string, record any) {
	c.t.Helper()
	js, err := nc.JetStream(nats.MaxWait(waittest.Patience()))
	if err != nil {
		c.t.Fatal(err)
	}
	kv, err := js.KeyValue(bucket)
	if err != nil {
		c.t.Fatal(err)
	}
	entry, err := kv.Get(key)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := json.Unmarshal(entry.Value(), record); err != nil {
		c.t.Fatal(err)
	}
}
