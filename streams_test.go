package penstock

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/brokertest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/policy/store"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// fakeStreams remembers what was asked of it, and fails while fail says so.
type fakeStreams struct {
	mu      sync.Mutex
	fail    map[string]error
	full    map[string]bool // a retired stream that still holds jobs
	applied []string
	retired []string
}

func (f *fakeStreams) Ration(context.Context, ...policy.Policy) (queue.Storage, error) {
	return queue.Storage{}, nil
}

func (f *fakeStreams) Apply(_ context.Context, p policy.Policy) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applied = append(f.applied, p.Name)
	return f.fail[p.Name]
}

func (f *fakeStreams) Retire(_ context.Context, name string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.retired = append(f.retired, name)
	return !f.full[name], nil
}

func (f *fakeStreams) Forget(ctx context.Context, name string) (bool, error) {
	return f.Retire(ctx, name)
}

func (f *fakeStreams) Depth(ctx context.Context, name string) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fail[name]; err != nil {
		return 0, err
	}
	return uint64(len(name)), ctx.Err()
}

// take returns what was applied and retired since the last call, sorted.
func (f *fakeStreams) take() (applied, retired []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	applied, retired = f.applied, f.retired
	f.applied, f.retired = nil, nil
	slices.Sort(applied)
	return applied, retired
}

func paced(name string) policy.Policy {
	return policy.Policy{Name: name, Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 1,
		Outflow: algorithms.Rate{Count: 1, Per: time.Second}}}
}

func TestStreamsFollowThePolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStreams{
			fail: map[string]error{"stuck": &queue.CapacityInUseError{Policy: "stuck"}},
			full: map[string]bool{"old": true}}
		known := &known{}
		s := newStreams(f, known, func(string, bool) {}, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.run(ctx) }()
		expect := func(when string, applied, retired []string) {
			t.Helper()
			synctest.Wait()
			gotApplied, gotRetired := f.take()
			if !slices.Equal(gotApplied, applied) || !slices.Equal(gotRetired, retired) {
				t.Errorf("%s: applied %v, retired %v; want %v, %v", when, gotApplied, gotRetired,
					applied,
					retired)
			}
		}
		expect("without a set", nil, nil)
		if s.applied.isClosed() {
			t.Error("applied before the policies are known")
		}
		door := policy.Policy{Name: "door",
			Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: 1,
				Refill: paced("").Outflow}}
		set := policy.Entries{
			"a":     {Policy: paced("a"), Revision: 1},
			"stuck": {Policy: paced("stuck"), Revision: 2},
			"old":   {Policy: paced("old"), Revision: 3, Retired: true},
			"door":  {Policy: door, Revision: 4},
		}
		known.take(set)
		expect("at first", []string{"a", "stuck"}, []string{"old"})
		if !s.applied.isClosed() {
			t.Error("a policy that cannot be applied holds the others up")
		}

		set = maps.Clone(set)
		set["a"] = policy.Entry{Policy: paced("a"), Revision: 5}
		known.take(set)
		expect("after one change", []string{"a"}, nil)

		time.Sleep(applyFirst)
		expect("a second later", []string{"stuck"}, nil)
		f.mu.Lock()
		delete(f.fail, "stuck")
		delete(f.full, "old")
		f.mu.Unlock()
		time.Sleep(2 * applyFirst)
		expect("when the bucket has drained", []string{"stuck"}, nil)
		time.Sleep(retireAgain - 3*applyFirst)
		expect("when the retired stream is empty", nil, []string{"old"})

		time.Sleep(applyAgain - retireAgain)
		expect("from time to time", []string{"a"}, nil)
		time.Sleep(3 * applyFirst)
		expect("from time to time", []string{"stuck"}, nil)

		// A deletion that its admitter did not end goes on, also of a policy without a stream.
		set["door"] = policy.Entry{Policy: door, Revision: 7, Retired: true, Deleting: true}
		known.take(maps.Clone(set))
		expect("after a deletion", nil, []string{"door"})

		// The retired one comes back, another is gone altogether.
		known.take(policy.Entries{"old": {Policy: paced("old"), Revision: 6}})
		expect("after its return", []string{"old"}, nil)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestDepths(t *testing.T) {
	f := &fakeStreams{fail: map[string]error{"new": queue.ErrNoStream, "odd": errors.New("odd")}}
	known := &known{}
	s := newStreams(f, known, func(string, bool) {}, slog.New(slog.DiscardHandler))
	if got := s.depths(t.Context()); len(got) != 0 {
		t.Errorf("got %v", got)
	}
	known.take(policy.Entries{
		"new":  {Policy: paced("new")},
		"odd":  {Policy: paced("odd")},
		"abc":  {Policy: paced("abc")},
		"old":  {Policy: paced("old"), Retired: true},
		"door": {Policy: policy.Policy{Rule: policy.Rule{Algorithm: policy.TokenBucket}}},
	})
	if got := s.depths(t.Context()); !maps.Equal(got, map[string]uint64{"abc": 3, "old": 3}) {
		t.Errorf("got %v", got)
	}
}

// TestAStaleAdmitterDoesNotBringADeletedPolicysStreamBack: one that has not heard of the deletion
// yet looks at its streams.
func TestAStaleAdmitterDoesNotBringADeletedPolicysStreamBack(t *testing.T) {
	_, nc := brokertest.Start(t, embedded.Options{})
	broker := brokertest.Open(t, nc)
	p := policy.Policy{Name: "acme", Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 5,
		Outflow: algorithms.Rate{Count: 1, Per: time.Second}}}
	if _, err := store.New(broker, nil).Put(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	stale, err := store.New(broker, nil).Policies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := newStreams(recorded{broker, store.New(broker, nil)}, &known{}, func(string, bool) {},
		slog.New(slog.DiscardHandler))
	s.pass(t.Context(), stale)
	if _, err := broker.Depth(t.Context(), "acme"); err != nil {
		t.Errorf("no stream: %v", err)
	}
	if err := store.New(broker, nil).Delete(t.Context(), "acme", false, nil); err != nil {
		t.Fatal(err)
	}
	if gone, err := store.New(broker, nil).Forget(t.Context(), "acme"); err != nil || !gone {
		t.Fatalf("gone %t, %v", gone, err)
	}
	again := newStreams(recorded{broker, store.New(broker, nil)}, &known{}, func(string, bool) {},
		slog.New(slog.DiscardHandler))
	again.pass(t.Context(), stale)
	if _, err := broker.Depth(t.Context(), "acme"); !errors.Is(err, queue.ErrNoStream) {
		t.Errorf("the stream is back: %v", err)
	}
}
