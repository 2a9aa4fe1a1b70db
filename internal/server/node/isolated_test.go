package node_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/admission/permits"
	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
)

// All connections of a program begin at a server that is then cut off; the drainer is elsewhere.
func TestAProgramLeavesAServerThatIsCutOff(t *testing.T) {
	t.Parallel()
	cluster := natstest.StartCluster(t, true)
	urls := cluster.URLs()
	ran := make(chan struct{}, 1000)
	drainer := open(t, penstock.Options{URL: urls[1], Replicas: 3,
		Policies: []policy.Policy{paced("api", 1000, 1000)}})
	drainer.Handle("api", func(context.Context, workers.Job) error {
		ran <- struct{}{}
		return nil
	})
	run(t, drainer)
	p := open(t, penstock.Options{URL: urls[0], Replicas: 3, AdmitOnly: true})
	run(t, p)
	within := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		t.Cleanup(cancel)
		return ctx
	}
	submits := func() bool {
		_, err := p.Submit(within(), penstock.Job{Policy: "api", Key: "a"})
		return err == nil
	}
	acquires := func() bool {
		permit, err := p.Acquire(within(), penstock.Call{Policy: "api", Key: "b"})
		if err == nil {
			permit.Settle(permits.Result{Status: permits.Done})
		}
		return err == nil
	}
	waittest.Until(t, "a job is taken", submits)
	waittest.Until(t, "a call is permitted", acquires)
	cluster.Isolate(0, true)
	waittest.Until(t, "jobs are refused", func() bool { return !submits() })
	waittest.Until(t, "jobs are taken again", submits)
	waittest.Until(t, "calls are permitted again", acquires)
	waittest.Until(t, "it is well", func() bool { return p.Health() == nil })
	for len(ran) > 0 {
		<-ran
	}
	waittest.Until(t, "jobs run", func() bool { return submits() && len(ran) > 0 })

	for i := range cluster.Servers {
		cluster.Isolate(i, true)
	}
	for _, p := range []*penstock.Penstock{p, drainer} {
		waittest.Until(t, "it is not ready", func() bool {
			err := p.Health()
			return err != nil && strings.Contains(err.Error(), "stored nothing")
		})
	}
	for i := range cluster.Servers {
		cluster.Isolate(i, false)
	}
	for _, p := range []*penstock.Penstock{p, drainer} {
		waittest.Until(t, "it is well again", func() bool { return p.Health() == nil })
	}
}
