package penstock_test

import (
	"context"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/waittest"
	"github.com/penstock-mq/penstock/policy"
)

func paced(name string, perSecond, capacity int64) policy.Policy {
	return policy.Policy{Name: name,
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: capacity,
			Outflow: algorithms.Rate{Count: perSecond, Per: time.Second}}}
}

func door(name string) policy.Policy {
	return policy.Policy{Name: name, Rule: policy.Rule{Algorithm: policy.FixedWindow, Limit: 2,
		Window: policy.Duration(24 * time.Hour)}}
}

func open(t *testing.T, o penstock.Options) *penstock.Penstock {
	t.Helper()
	if o.URL == "" && o.Server.Dir == "" {
		o.Server.Dir = t.TempDir()
	}
	p, err := penstock.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func run(t *testing.T, p *penstock.Penstock) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(cancel)
	select {
	case <-p.Ready():
	case err := <-ended:
		t.Fatalf("Run returned %v", err)
	case <-time.After(waittest.Patience()):
		t.Fatal("not ready in time")
	}
	return func() error {
		cancel()
		return receive(t, ended)
	}
}

func depth(t *testing.T, p *penstock.Penstock, policy string) uint64 {
	t.Helper()
	depths, err := p.Depths(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return depths[policy]
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(waittest.Patience()):
		t.Fatal("nothing came in time")
	}
	panic("unreachable")
}

var eventually = waittest.Until
