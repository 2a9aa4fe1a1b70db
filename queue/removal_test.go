package queue

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/penstock-mq/penstock/policy"
)

// TestADeletedPolicyComesBackFromItsFileOnlyWhenItsTextChanges: as with any other change through the API, a restart does
// not undo it.
func TestADeletedPolicyComesBackFromItsFileOnlyWhenItsTextChanges(t *testing.T) {
	b := newBroker(t)
	ctx := testContext(t)
	load := func(capacity int64, gone bool) {
		t.Helper()
		result, err := b.PutFilePolicies(ctx, FileSet{Policies: []policy.Policy{paced("stripe", capacity, 1)}})
		if err != nil {
			t.Fatal(err)
		}
		if deleted := len(result.Deleted) > 0; deleted != gone {
			t.Errorf("deleted %q, want %t", result.Deleted, gone)
		}
	}
	load(10, false)
	if _, err := b.SetPaused(ctx, "stripe", true); err != nil {
		t.Fatal(err)
	}
	w := watchPolicies(t, b)
	w.see(t, "the policy is there", func(set PolicySet) bool { return len(set) == 1 })
	if err := b.DeletePolicy(ctx, "stripe", false, nil); err != nil {
		t.Fatal(err)
	}
	w.see(t, "the policy is on its way out", func(set PolicySet) bool { return set["stripe"].Deleting && set["stripe"].Retired })
	if gone, err := b.ForgetPolicy(ctx, "stripe"); err != nil || !gone {
		t.Fatalf("gone %t, %v", gone, err)
	}
	if gone, err := b.ForgetPolicy(ctx, "stripe"); err != nil || !gone {
		t.Errorf("again: gone %t, %v", gone, err)
	}
	load(10, true)
	w.see(t, "the policy stays away", func(set PolicySet) bool { return len(set) == 0 })
	if _, err := b.Policy(ctx, "stripe"); !errors.Is(err, ErrNotFound) {
		t.Errorf("the policy is back: %v", err)
	}
	if _, err := b.SetPaused(ctx, "stripe", false); !errors.Is(err, ErrNotFound) {
		t.Errorf("paused what is gone: %v", err)
	}
	if err := b.DeletePolicy(ctx, "stripe", false, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted what is gone: %v", err)
	}
	load(20, false)
	w.see(t, "the changed text brings it back", func(set PolicySet) bool {
		return set["stripe"].Policy.Capacity == 20 && !set["stripe"].Paused && !set["stripe"].Retired
	})

	// What the API writes in its place is the API's.
	if err := b.DeletePolicy(ctx, "stripe", false, nil); err != nil {
		t.Fatal(err)
	}
	if gone, err := b.ForgetPolicy(ctx, "stripe"); err != nil || !gone {
		t.Fatalf("gone %t, %v", gone, err)
	}
	var created bool
	_, err := b.ChangePolicy(ctx, "stripe", func(current *PolicyEntry) (policy.Policy, error) {
		created = current == nil
		return paced("stripe", 30, 4), nil
	})
	if err != nil || !created {
		t.Errorf("created %t, %v", created, err)
	}
	load(20, false)
	if entry, err := b.Policy(ctx, "stripe"); err != nil || entry.Policy.Capacity != 30 || entry.Source != SourceAPI {
		t.Errorf("%+v, %v", entry, err)
	}
}

// TestAPolicyIsNotDeletedUnderItsProducers: what was accepted while somebody tried to delete its policy is there.
func TestAPolicyIsNotDeletedUnderItsProducers(t *testing.T) {
	b := newBroker(t)
	ctx := testContext(t)
	p := paced("stripe", 1000, 4)
	if _, err := b.PutPolicy(ctx, p); err != nil {
		t.Fatal(err)
	}
	apply(t, b, p)
	producer := b.NewProducer(ProducerOptions{})
	accepted := uint64(0)
	var publishing sync.WaitGroup
	stop := make(chan struct{})
	begun := make(chan struct{})
	publishing.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := producer.Publish(ctx, Submission{Policy: "stripe", Key: mustKey(t, fmt.Sprint(n%7))}); err != nil {
				if !errors.Is(err, ErrFull) {
					t.Errorf("publish: %v", err)
				}
				continue
			}
			if accepted++; accepted == 1 {
				close(begun)
			}
		}
	})
	<-begun
	var used *PolicyInUseError
	for range 10 {
		if err := b.DeletePolicy(ctx, "stripe", false, nil); !errors.As(err, &used) || used.Jobs == 0 {
			t.Errorf("deleted: %v", err)
		}
	}
	close(stop)
	publishing.Wait()
	if depth, err := b.Depth(ctx, "stripe"); err != nil || depth != accepted {
		t.Errorf("%d jobs, %v, want %d", depth, err, accepted)
	}
}

func TestThereIsACapOnPoliciesAndOnOverrides(t *testing.T) {
	b := newBroker(t)
	ctx := testContext(t)
	if n, err := b.policies.count(ctx, "stripe.>"); err != nil || n != 0 {
		t.Errorf("counted %d, %v", n, err)
	}
	fill := func(value string, n int, format string) {
		t.Helper()
		for i := range n {
			if err := b.nc.Publish(b.policies.prefix+fmt.Sprintf(format, i), []byte(value)); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "the records are there", func() bool {
			info, err := b.streamInfo(ctx, b.policies.stream, "")
			return err == nil && info.State.Msgs >= uint64(n)
		})
	}
	fill(`{"v":1,"key":"k","override":{"paused":true}}`, MaxOverrides, "stripe.k%d")
	ctx = testContext(t)
	if n, err := b.policies.count(ctx, "stripe.>"); err != nil || n != MaxOverrides {
		t.Errorf("counted %d, %v", n, err)
	}
	paused := policy.Override{Paused: true}
	if _, err := b.PutOverride(ctx, "stripe", "other", paused); !errors.Is(err, ErrTooMany) {
		t.Errorf("one too many: %v", err)
	}
	if _, err := b.PutOverride(ctx, "stripe2", "k", paused); err != nil {
		t.Errorf("another policy's: %v", err)
	}

	b = newBroker(t)
	fill(`{"v":1,"policy":{"name":"x","algorithm":"fixed_window","limit":1,"window":"1s"},"source":"api"}`, MaxPolicies, "p%d")
	ctx = testContext(t)
	if _, err := b.PutPolicy(ctx, paced("stripe", 1, 1)); !errors.Is(err, ErrTooMany) {
		t.Errorf("one too many: %v", err)
	}
	if err := b.policies.Delete(ctx, "p7", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := b.PutPolicy(ctx, paced("stripe", 1, 1)); err != nil {
		t.Errorf("the last that fits: %v", err)
	}
	if _, err := b.PutPolicy(ctx, paced("stripe", 2, 1)); err != nil {
		t.Errorf("a change of one: %v", err)
	}
}
