package store

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// Producers of a policy that is deleted lose no job that was accepted: it drains with them, and
// goes once they have ended.
func TestADeletedPolicyDrainsUnderItsProducers(t *testing.T) {
	s := newStore(t)
	ctx := natstest.Context(t)
	p := paced("stripe", 1000, 4)
	if _, err := s.Put(ctx, p); err != nil {
		t.Fatal(err)
	}
	apply(t, s, p)
	producer := s.broker.NewProducer(jet.ProducerOptions{})
	accepted := uint64(0)
	var publishing sync.WaitGroup
	begun := make(chan struct{})
	publishing.Go(func() {
		for n := 0; ; n++ {
			if _, err := producer.Publish(ctx, jet.Submission{Policy: "stripe",
				Key: queue.Key(fmt.Sprint(n % 7))}); err != nil {
				if accepted == 0 || !errors.Is(err, jet.ErrNoStream) {
					t.Errorf("publish: %v", err)
				}
				return
			}
			if accepted++; accepted == 1 {
				close(begun)
			}
		}
	})
	<-begun
	do(t, s, "stripe", Change{Act: Delete})
	if gone, err := s.Forget(ctx, "stripe"); err != nil || gone {
		t.Errorf("gone %t, %v", gone, err)
	}
	publishing.Wait()
	if depth, err := s.broker.Depth(ctx, "stripe"); err != nil || depth != accepted {
		t.Errorf("%d jobs, %v, want %d", depth, err, accepted)
	}
}

func TestThereIsACapOnPoliciesAndOnOverrides(t *testing.T) {
	s := newStore(t)
	s.overrides = 20
	ctx := natstest.Context(t)
	if n, err := s.table.Count(ctx, "stripe.>"); err != nil || n != 0 {
		t.Errorf("counted %d, %v", n, err)
	}
	fill := func(value string, n int, format string) {
		t.Helper()
		for i := range n {
			if err := s.table.Set(ctx, fmt.Sprintf(format, i), []byte(value), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(`{"v":1,"key":"k","override":{"paused":true}}`, int(s.overrides), "stripe.k%d")
	if n, err := s.table.Count(ctx, "stripe.>"); err != nil || n != s.overrides {
		t.Errorf("counted %d, %v", n, err)
	}
	paused := inforce.Override{Paused: true}
	if _, err := s.PutOverride(ctx, "stripe", "other", paused); !errors.Is(err, ErrTooMany) {
		t.Errorf("one too many: %v", err)
	}
	if _, err := s.PutOverride(ctx, "stripe2", "k", paused); err != nil {
		t.Errorf("another policy's: %v", err)
	}

	s = newStore(t)
	s.policies = 20
	fill(
		`{"v":1,"policy":{"name":"x","algorithm":"fixed_window","limit":1,"window":"1s"},"source":"api"}`, s.policies, "p%d")
	if _, err := s.Put(ctx, paced("stripe", 1, 1)); !errors.Is(err, ErrTooMany) {
		t.Errorf("one too many: %v", err)
	}
	if err := s.table.Delete(ctx, "p7", 0); err != nil {
		t.Fatal(err)
	}
	both := Set{Policies: []policy.Policy{paced("stripe", 1, 1), paced("other", 1, 1)}}
	if _, err := s.Replace(ctx, both); !errors.Is(err, ErrTooMany) {
		t.Errorf("a file with one too many: %v", err)
	}
	if _, err := s.Policy(ctx, "stripe"); !errors.Is(err, jet.ErrNotFound) {
		t.Errorf("a file with one too many has written the other: %v", err)
	}
	if _, err := s.Put(ctx, paced("stripe", 1, 1)); err != nil {
		t.Errorf("the last that fits: %v", err)
	}
	if _, err := s.Put(ctx, paced("stripe", 2, 1)); err != nil {
		t.Errorf("a change of one: %v", err)
	}
}

func TestRecordsOfDeletedPoliciesAreSwept(t *testing.T) {
	s := newStore(t)
	ctx := natstest.Context(t)
	table := s.broker.Tables().Partitions
	stays := []string{"=account.0", "damaged.PENSTOCK_PARTITIONS.gone.0", "kept.0", "kept.0.clocks",
		"orphan.0", "streamless.0"}
	put := func(key string) {
		t.Helper()
		if err := table.Set(ctx, key, []byte(`{"v":1}`), 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range append([]string{"gone.0", "gone.0.clocks", "gone.11"}, stays...) {
		put(key)
	}
	policyOf := func(name string) uint64 {
		t.Helper()
		revision, err := s.Put(ctx, paced(name, 10, 1))
		if err == nil {
			err = s.broker.Apply(ctx, paced(name, 10, 1))
		}
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	policyOf("kept")
	if _, err := s.Put(ctx, paced("streamless", 10, 1)); err != nil {
		t.Fatal(err)
	}
	if err := s.table.Delete(ctx, "orphan", policyOf("orphan")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		age  time.Duration
		want int
	}{{time.Hour, len(stays) + 3}, {0, len(stays)}} {
		if _, err := s.Inventory(ctx, test.age); err != nil {
			t.Fatal(err)
		}
		left, err := table.List(ctx, ">")
		if err != nil || len(left) != test.want {
			t.Errorf("%d records are left of those older than %v, want %d: %v, %v", len(left),
				test.age, test.want, left, err)
		}
	}
}
