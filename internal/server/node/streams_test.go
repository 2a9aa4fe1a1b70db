package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/base/notice"
	"github.com/penstock-mq/penstock/internal/kit/brokertest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

type fakeStreams struct {
	mu      sync.Mutex
	fail    map[string]error
	full    map[string]bool
	hang    string // a stream whose change ends with its context only
	applied []string
	drained []string
	rations [][]string
}

func (f *fakeStreams) Ration(_ context.Context, coming ...policy.Policy) (jet.Storage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for _, p := range coming {
		names = append(names, p.Name)
	}
	f.rations = append(f.rations, names)
	return jet.Storage{}, nil
}

func (f *fakeStreams) Fits(policy.Policy) bool { return false }

func (f *fakeStreams) Apply(ctx context.Context, p policy.Policy) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.Name == f.hang {
		f.mu.Unlock()
		<-ctx.Done()
		f.mu.Lock()
		return ctx.Err()
	}
	f.applied = append(f.applied, p.Name)
	return f.fail[p.Name]
}

func (f *fakeStreams) Forget(_ context.Context, name string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drained = append(f.drained, name)
	return !f.full[name], nil
}

func (f *fakeStreams) AllDepths(context.Context) (map[string]uint64, error) {
	return map[string]uint64{"abc": 3, "old": 3, "door": 1, "gone": 1}, f.fail["depths"]
}

func (f *fakeStreams) take() (applied, drained []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	applied, drained = f.applied, f.drained
	f.applied, f.drained = nil, nil
	slices.Sort(applied)
	return applied, drained
}

func paced(name string) policy.Policy {
	return policy.Policy{Name: name, Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 1,
		Outflow: algorithms.Rate{Count: 1, Per: time.Second}}}
}

func quietStreams(broker streamBroker, known *known) *streams {
	log := slog.New(slog.DiscardHandler)
	return newStreams(broker, known, notice.New(log), queue.Sinks{}, log)
}

// Sharing once per policy would lower all bounds each time.
func TestTheStoreIsSharedOnceWhilePoliciesAreWritten(t *testing.T) {
	f, known := &fakeStreams{}, &known{}
	s := quietStreams(f, known)
	s.own = []policy.Policy{paced("a"), paced("b"), paced("c")}
	set := inforce.Entries{"a": {Policy: paced("a"), Revision: 1},
		"x": {Policy: paced("x"), Revision: 2}}
	known.take(set)
	s.pass(t.Context())
	close(s.whole)
	set = maps.Clone(set)
	set["b"] = &inforce.Entry{Policy: paced("b"), Revision: 3}
	set["c"] = &inforce.Entry{Policy: paced("c"), Revision: 4}
	known.take(set)
	s.pass(t.Context())
	s.late.Wait()
	want := [][]string{{"a", "x", "a", "b", "c"}, {"b", "c"}}
	if !slices.EqualFunc(f.rations, want, slices.Equal[[]string]) {
		t.Errorf("the store was shared among %v, want %v", f.rations, want)
	}
}

// Whatever follows the policies gets the names that changed, also those that come between two
// passes, and the change takes one pass.
func TestOneMorePolicyConcernsNoOther(t *testing.T) {
	f, followed := &fakeStreams{}, [][]string{}
	known := &known{follow: func(_ inforce.Entries, changed []string) {
		followed = append(followed, changed)
	}}
	s := quietStreams(f, known)
	close(s.whole)
	known.followInstead(func() inforce.Entries { return inforce.Entries{"old": {}} })
	set := inforce.Entries{}
	for revision := range uint64(300) {
		name := fmt.Sprint("p", revision)
		set[name] = &inforce.Entry{Policy: paced(name), Revision: revision}
	}
	known.take(set)
	s.pass(t.Context())
	s.late.Wait()
	f.take()
	followed = nil
	for _, name := range []string{"new", "newer"} {
		set = maps.Clone(set)
		set[name] = &inforce.Entry{Policy: paced(name), Revision: 400}
		known.take(set)
	}
	set = maps.Clone(set)
	delete(set, "p7")
	known.take(set)
	s.pass(t.Context())
	s.late.Wait()
	want := [][]string{{"new"}, {"newer"}, {"p7"}}
	if !slices.EqualFunc(followed, want, slices.Equal[[]string]) {
		t.Errorf("followed %v, want %v", followed, want)
	}
	applied, _ := f.take()
	slices.Sort(applied)
	if !slices.Equal(applied, []string{"new", "newer"}) || len(f.rations) != 1 {
		t.Errorf("applied %v, looked at all streams %d times", applied, len(f.rations))
	}
	if s.work["p7"] != nil {
		t.Error("there is work of a policy that is gone")
	}
	if left := inforce.Changed(s.seen, set); len(left) > 0 || len(s.due) > 0 {
		t.Errorf("the next pass would look at %v again, and is due: %t", left, len(s.due) > 0)
	}
}

// The bounds of a few new policies among many do not change until the next list of all streams.
func TestAFewOfManyPoliciesComeWithoutALookAtAllStreams(t *testing.T) {
	f, known := &fakeStreams{}, &known{}
	s := quietStreams(f, known)
	close(s.whole)
	set := inforce.Entries{}
	for revision := range uint64(30) {
		name := fmt.Sprint("p", revision)
		set[name] = &inforce.Entry{Policy: paced(name), Revision: revision}
	}
	known.take(set)
	s.pass(t.Context())
	set = maps.Clone(set)
	for _, name := range []string{"new", "newer", "p1", "p2", "p3", "p4", "p5"} {
		set[name] = &inforce.Entry{Policy: paced(name), Revision: 100}
	}
	known.take(set)
	s.pass(t.Context())
	s.late.Wait()
	if applied, _ := f.take(); len(f.rations) != 1 || len(applied) != 30+7 {
		t.Errorf("%d looks at all streams, %d applied", len(f.rations), len(applied))
	}
}

func TestStreamsFollowThePolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStreams{
			fail: map[string]error{"stuck": &jet.CapacityInUseError{Policy: "stuck"}},
			full: map[string]bool{"old": true}}
		known := &known{}
		s := quietStreams(f, known)
		close(s.whole)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.run(ctx) }()
		expect := func(when string, applied, drained []string) {
			t.Helper()
			synctest.Wait()
			gotApplied, gotDrained := f.take()
			if !slices.Equal(gotApplied, applied) || !slices.Equal(gotDrained, drained) {
				t.Errorf("%s: applied %v, drained %v; want %v, %v", when, gotApplied, gotDrained,
					applied,
					drained)
			}
		}
		expect("without a set", nil, nil)
		if s.applied.Closed() {
			t.Error("applied before the policies are known")
		}
		door := policy.Policy{Name: "door",
			Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: 1,
				Refill: paced("").Outflow}}
		set := inforce.Entries{
			"a":     {Policy: paced("a"), Revision: 1},
			"stuck": {Policy: paced("stuck"), Revision: 2},
			"old":   {Policy: paced("old"), Revision: 3, Draining: true},
			"door":  {Policy: door, Revision: 4},
		}
		known.take(set)
		wake(s.due)
		expect("at first", []string{"a", "stuck"}, []string{"old"})
		if !s.applied.Closed() {
			t.Error("a policy that cannot be applied holds the others up")
		}

		set = maps.Clone(set)
		set["a"] = &inforce.Entry{Policy: paced("a"), Revision: 5}
		known.take(set)
		wake(s.due)
		expect("after one change", []string{"a"}, nil)

		time.Sleep(applyFirst)
		expect("a second later", []string{"stuck"}, nil)
		f.mu.Lock()
		delete(f.fail, "stuck")
		delete(f.full, "old")
		f.mu.Unlock()
		time.Sleep(2 * applyFirst)
		expect("when the bucket has drained", []string{"stuck"}, nil)
		time.Sleep(drainAgain - 3*applyFirst)
		expect("when the draining stream is empty", nil, []string{"old"})

		time.Sleep(applyAgain - drainAgain)
		expect("from time to time", []string{"a"}, nil)
		time.Sleep(3 * applyFirst)
		expect("from time to time", []string{"stuck"}, nil)

		// Another admitter completes a deletion, also of a policy without a stream.
		set = maps.Clone(set)
		set["door"] = &inforce.Entry{Policy: door, Revision: 7, Draining: true}
		known.take(set)
		wake(s.due)
		expect("after a deletion", nil, []string{"door"})

		// The draining policy returns, and another one is deleted.
		known.take(inforce.Entries{"old": {Policy: paced("old"), Revision: 6}})
		wake(s.due)
		expect("after its return", []string{"old"}, nil)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestASlowStreamDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStreams{hang: "b"}
		known := &known{}
		var failed sync.Map
		s := quietStreams(f, known)
		s.sink = queue.SinkFunc(func(e queue.Event) { failed.Store(e.Policy, e.Value > 0) })
		set := inforce.Entries{}
		for i, name := range []string{"a", "b", "c"} {
			set[name] = &inforce.Entry{Policy: paced(name), Revision: uint64(i + 1)}
		}
		known.take(set)
		wake(s.due)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.run(ctx) }()
		time.Sleep(2 * applyPatience)
		if s.applied.Closed() {
			t.Error("it is ready before the policies of its own are known")
		}
		close(s.whole)
		wake(s.due)
		synctest.Wait()
		if applied, _ := f.take(); !slices.Equal(applied, []string{"a", "c"}) {
			t.Errorf("applied %v", applied)
		}
		if !s.applied.Closed() {
			t.Error("one stream keeps it from being ready")
		}
		if got := s.notices.Notes(&unapplied); len(got) != 1 ||
			!strings.Contains(got[0], "stream of b") {
			t.Errorf("troubles: %q", got)
		}
		if is, _ := failed.Load("b"); is != true {
			t.Error("it does not count as failed")
		}
		set = maps.Clone(set)
		set["d"] = &inforce.Entry{Policy: paced("d"), Revision: 4}
		known.take(set)
		wake(s.due)
		synctest.Wait()
		if applied, _ := f.take(); !slices.Equal(applied, []string{"d"}) {
			t.Errorf("then applied %v", applied)
		}
		f.mu.Lock()
		f.hang = ""
		f.mu.Unlock()
		time.Sleep(applyTimeout)
		if applied, _ := f.take(); !slices.Equal(applied, []string{"b"}) {
			t.Errorf("at last applied %v", applied)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestDepths(t *testing.T) {
	f := &fakeStreams{}
	known := &known{}
	s := quietStreams(f, known)
	if got, err := s.depths(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
	known.take(inforce.Entries{
		"new":  {Policy: paced("new")},
		"abc":  {Policy: paced("abc")},
		"old":  {Policy: paced("old"), Draining: true},
		"door": {Policy: policy.Policy{Rule: policy.Rule{Algorithm: policy.TokenBucket}}},
	})
	got, err := s.depths(t.Context())
	if err != nil || !maps.Equal(got, map[string]uint64{"abc": 3, "old": 3}) {
		t.Errorf("got %v, %v", got, err)
	}
}

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
	known := &known{}
	known.take(stale)
	s := quietStreams(recorded{broker, store.New(broker, nil)}, known)
	s.pass(t.Context())
	s.late.Wait()
	if _, err := broker.Depth(t.Context(), "acme"); err != nil {
		t.Errorf("no stream: %v", err)
	}
	if _, _, err := store.New(broker, nil).Change(t.Context(), "acme",
		store.Change{Act: store.Delete}); err != nil {
		t.Fatal(err)
	}
	if gone, err := store.New(broker, nil).Forget(t.Context(), "acme"); err != nil || !gone {
		t.Fatalf("gone %t, %v", gone, err)
	}
	again := quietStreams(recorded{broker, store.New(broker, nil)}, known)
	again.pass(t.Context())
	if _, err := broker.Depth(t.Context(), "acme"); !errors.Is(err, jet.ErrNoStream) {
		t.Errorf("the stream is back: %v", err)
	}
}

func TestReadyNotesStreamsThatLackCopies(t *testing.T) {
	s := &storage{notices: notice.New(slog.New(slog.DiscardHandler))}
	s.warn(jet.Storage{Copies: map[string]jet.Copies{
		"jobs": {Lacking: 12, Current: 2, Wanted: 3}, "records": {}}})
	want := []string{"jobs: streams that lack copies: 12, with 2 of 3"}
	if got := s.notes(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	s.warn(jet.Storage{Copies: map[string]jet.Copies{"jobs": {}}})
	if got := s.notes(); len(got) > 0 {
		t.Errorf("%q once they have them again", got)
	}
}

// Account limits below the policies' needs are a note of /readyz and one warning, until they are
// raised.
func TestATooSmallAccountIsLoggedOnce(t *testing.T) {
	_, nc := brokertest.Start(t, embedded.Options{MaxStore: 64 << 20})
	large := paced("large")
	large.MaxBytes = policy.GiB
	known := &known{set: inforce.Entries{"large": {Policy: large}}}
	var log waittest.Log
	logger := slog.New(slog.NewTextHandler(&log, nil))
	s := &storage{broker: brokertest.Open(t, nc), log: logger, sink: queue.Sinks{}, known: known,
		notices: notice.New(logger)}
	for range 2 {
		s.ration(t.Context())
	}
	if notes := s.notes(); len(notes) != 1 || !strings.Contains(notes[0],
		"max_storage is 64MiB for each replica, and max_bytes") ||
		log.Count("level=WARN msg=\""+tooSmall) != 1 {
		t.Errorf("notes %q, log:\n%s", notes, &log)
	}
	known.set = inforce.Entries{"large": {Policy: paced("large")}}
	s.ration(t.Context())
	if notes := s.notes(); notes != nil {
		t.Errorf("without max_bytes: %q", notes)
	}
}
