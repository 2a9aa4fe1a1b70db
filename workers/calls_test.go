package workers

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/admission/permits"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
)

func (b *bench) callers() *permits.Client {
	b.t.Helper()
	c, err := permits.New(b.connect(), b.broker.Names())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(c.Close)
	return c
}

// TestCallersFindTheNextOwner crashes and hands over owners of every partition: no call fails, and
// jobs continue.
func TestCallersFindTheNextOwner(t *testing.T) {
	t.Parallel()
	p := leaky("api", "100/s")
	p.Partitions = 4
	b := newBench(t, p)
	var ran seen
	cut := b.cutDrainer(ran.handle)
	const callers, each = 8, 25
	b.publish("api", "0", 0, 20)
	var begun atomic.Int32
	var wait sync.WaitGroup
	c := b.callers()
	for i := range callers {
		wait.Go(func() {
			for range each {
				permit, err := c.Acquire(t.Context(), permits.Request{Policy: "api",
					Key: strconv.Itoa(i), Wait: deadline})
				if err != nil {
					t.Error(err)
					return
				}
				permit.Settle(permits.Result{Status: permits.Done})
				begun.Add(1)
			}
		})
	}
	b.until("calls begin", func() bool { return begun.Load() > callers })
	cut()
	stop := b.drain(Options{Lease: 4 * time.Second}, map[string]Handler{"api": ran.handle})
	before := begun.Load()
	b.until("they go on", func() bool { return begun.Load() > min(before+10, callers*each-20) })
	b.valve(Options{})
	stop()
	wait.Wait()
	if begun.Load() != callers*each {
		t.Errorf("%d of %d calls began", begun.Load(), callers*each)
	}
}

func TestALeaseCountsAtTheNextOwner(t *testing.T) {
	t.Parallel()
	p := leaky("api", "100/s")
	p.Partitions, p.Concurrency, p.Timeout = 1, 1, policy.Duration(3*time.Second)
	b := newBench(t, p)
	stop := b.drain(Options{}, map[string]Handler{"api": func(context.Context, Job) error {
		return nil
	}})
	c := b.callers()
	permit, err := c.Acquire(t.Context(), permits.Request{Policy: "api", Key: "a", Wait: deadline})
	if err != nil {
		t.Fatal(err)
	}
	var ran seen
	b.drain(Options{}, map[string]Handler{"api": ran.handle})
	stop() // progress goes to the next owner
	bucket := func(running, calls, waiting int) func() bool {
		return func() bool {
			a, err := b.broker.AskValve(t.Context(), "api", 0,
				job.Question{Op: job.OpBucket, Key: "a"})
			return err == nil && a.Bucket.Running == running && a.Bucket.Calls == calls &&
				a.Bucket.Waiting == waiting
		}
	}
	b.until("the next owner counts the call", bucket(1, 0, 0))
	b.publish("api", "a", 0, 1)
	second := make(chan error, 1)
	go func() {
		permit, err := c.Acquire(t.Context(), permits.Request{Policy: "api", Key: "a"})
		if err == nil {
			permit.Return()
		}
		second <- err
	}()
	b.until("a job and a call wait", bucket(1, 1, 1))
	permit.Settle(permits.Result{Status: permits.Done})
	b.until("the job runs", func() bool { return len(ran.bodies("a")) == 1 })
	if err := <-second; err != nil {
		t.Error(err)
	}
}
