package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/waittest"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/natstest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

type policyWatch struct {
	mu    sync.Mutex
	set   policy.Entries
	names []string // with the last set
	calls int
}

func watchPolicies(t *testing.T, s *Store) *policyWatch {
	t.Helper()
	w := &policyWatch{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- s.Watch(ctx, func(set policy.Entries, names []string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, name := range policy.Changed(w.set, set) {
				if w.calls > 0 && !slices.Contains(names, name) {
					t.Errorf("%s changed, but the names are %q", name, names)
				}
			}
			w.set, w.names = set, names
			w.calls++
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *policyWatch) see(t *testing.T, what string, condition func(policy.Entries) bool) {
	t.Helper()
	waittest.Until(t, what, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.calls > 0 && condition(w.set)
	})
}

func TestPutPolicy(t *testing.T) {
	s := newStore(t)
	w := watchPolicies(t, s)
	w.see(t, "the empty set came", func(set policy.Entries) bool { return len(set) == 0 })
	p := paced("stripe", 10, 4)
	revision, err := s.Put(natstest.Context(t), p)
	if err != nil {
		t.Fatal(err)
	}
	w.see(t, "the policy came", func(set policy.Entries) bool {
		p := set["stripe"]
		return p != nil && p.Revision == revision && p.Policy.Capacity == 10 && !p.Retired
	})
	if _, err := s.Put(natstest.Context(t), paced("other", 10, 4)); err != nil {
		t.Fatal(err)
	}
	w.see(t, "another came", func(set policy.Entries) bool { return len(set) == 2 })
	p.Capacity = 20
	if revision, err = s.Put(natstest.Context(t), p); err != nil {
		t.Fatal(err)
	}
	w.see(t, "the change came", func(set policy.Entries) bool {
		return set["stripe"].Revision == revision && set["stripe"].Policy.Capacity == 20
	})
	w.mu.Lock()
	got := w.set["stripe"].Policy
	if !slices.Equal(w.names, []string{"stripe"}) {
		t.Errorf("the names that changed are %q", w.names)
	}
	w.mu.Unlock()
	if want := p.WithDefaults(); !samePolicy(t, got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	p.Partitions = 8
	if _, err := s.Put(natstest.Context(t), p); err == nil {
		t.Error("other partitions are accepted")
	}
	if _, err := s.Put(natstest.Context(t), paced("bad name", 10, 1)); err == nil {
		t.Error("an invalid policy is accepted")
	}
}

func samePolicy(t *testing.T, a, b policy.Policy) bool {
	t.Helper()
	x, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(x, y)
}

func TestPutPolicyFromManyAtOnce(t *testing.T) {
	s := newStore(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if _, err := s.Put(natstest.Context(t), paced("stripe", int64(10+i), 4)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestFilePolicies(t *testing.T) {
	s := newStore(t)
	w := watchPolicies(t, s)
	put := func(ps ...policy.Policy) FileResult {
		t.Helper()
		result, err := s.PutFile(natstest.Context(t), File{Policies: ps})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	retire := func(name string) {
		t.Helper()
		if retired, waiting, err := s.RetireAbsent(natstest.Context(t),
			"default"); !slices.Equal(retired, []string{name}) ||
			len(waiting) != 0 || err != nil {
			t.Fatalf("retired %v, waiting %v, %v", retired, waiting, err)
		}
	}
	revisions := func() map[string]uint64 {
		t.Helper()
		records, err := s.table.List(natstest.Context(t), "*")
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]uint64{}
		for _, r := range records {
			all[r.Key] = r.Revision
		}
		return all
	}
	capacity := func(name string, n int64, retired bool) func(policy.Entries) bool {
		return func(set policy.Entries) bool {
			entry, ok := set[name]
			return ok && entry.Policy.Capacity == n && entry.Retired == retired
		}
	}
	stripe, github, fromAPI := paced("stripe", 10, 4), paced("github", 10, 4), paced("api", 10, 4)
	if _, err := s.Put(natstest.Context(t), fromAPI); err != nil {
		t.Fatal(err)
	}
	put(stripe, github)
	w.see(t, "all came", func(set policy.Entries) bool { return len(set) == 3 })

	before := revisions()
	put(stripe, github)
	if after := revisions(); !maps.Equal(before, after) {
		t.Errorf("a restart with the same file wrote: %v, %v", before, after)
	}

	changed := stripe
	changed.Capacity = 50
	if _, err := s.Put(natstest.Context(t), changed); err != nil {
		t.Fatal(err)
	}
	put(stripe, github)
	w.see(t, "the change stands", capacity("stripe", 50, false))
	stripe.Capacity = 11
	put(stripe, github)
	w.see(t, "the file's change came", capacity("stripe", 11, false))

	// A policy that left the file stays and is reported, until it is retired on request; it returns
	// with the file's entry.
	if absent := put(github).Absent; !slices.Equal(absent, []string{"stripe"}) {
		t.Errorf("absent: %v", absent)
	}
	w.see(t, "it stays", capacity("stripe", 11, false))
	before = revisions()
	put(github)
	if after := revisions(); !maps.Equal(before, after) {
		t.Errorf("leaving again wrote: %v, %v", before, after)
	}
	put(stripe, github)
	if retired, _, err := s.RetireAbsent(natstest.Context(t), "default"); len(retired) != 0 ||
		err != nil {
		t.Errorf("back in the file, and retired: %v, %v", retired, err)
	}
	put(github)
	retire("stripe")
	w.see(t, "it retires", capacity("stripe", 11, true))
	before = revisions()
	if absent := put(github).Absent; len(absent) != 0 {
		t.Errorf("a retired policy is reported again: %v", absent)
	}
	if after := revisions(); !maps.Equal(before, after) {
		t.Errorf("a retired policy was written: %v, %v", before, after)
	}
	if written := put(stripe, github).Written; len(written) != 1 || !written[0].Revived ||
		written[0].Before == nil {
		t.Errorf("written: %+v", written)
	}
	w.see(t, "it is back", capacity("stripe", 11, false))
	w.see(t, "the API's policy was left alone", capacity("api", 10, false))

	before = revisions()
	split := stripe
	split.Partitions = 16
	other := github
	other.Capacity = 12
	if _, err := s.PutFile(natstest.Context(t),
		File{Policies: []policy.Policy{other, split}}); err == nil ||
		!strings.Contains(err.Error(), "stripe") {
		t.Errorf("other partitions: %v", err)
	}
	if after := revisions(); !maps.Equal(before, after) {
		t.Errorf("a file with an error wrote: %v, %v", before, after)
	}

	// A retired policy without a stream may return as something else.
	put(github)
	retire("stripe")
	put(split, github)
	w.see(t, "it is back with other partitions", func(set policy.Entries) bool {
		p := set["stripe"]
		return p != nil && p.Policy.Partitions == 16
	})
}

func absentStripe(t *testing.T, s *Store) policy.Policy {
	t.Helper()
	stripe := paced("stripe", 10, 4)
	apply(t, s, stripe)
	for _, ps := range [][]policy.Policy{{stripe}, {}} {
		if _, err := s.PutFile(natstest.Context(t), File{Policies: ps}); err != nil {
			t.Fatal(err)
		}
	}
	return stripe
}

// Such a policy may stem from a version with another default.
func TestAPolicyThatNamesNoPartitionsKeepsItsOwn(t *testing.T) {
	s := newStore(t)
	p := paced("stripe", 10, 8)
	if _, err := s.Put(natstest.Context(t), p); err != nil {
		t.Fatal(err)
	}
	kept := func() {
		t.Helper()
		entry, err := s.Policy(natstest.Context(t), "stripe")
		if err != nil || entry.Policy.Partitions != 8 ||
			entry.Policy.QueueCapacity() != p.QueueCapacity() {
			t.Errorf("%+v, %v", entry.Policy, err)
		}
	}
	p.Partitions, p.Capacity = 0, 20
	if _, err := s.Put(natstest.Context(t), p); err != nil {
		t.Fatal(err)
	}
	kept()
	p.Capacity = 30
	result, err := s.PutFile(natstest.Context(t), File{Policies: []policy.Policy{p}})
	if err != nil || len(result.Written) != 1 {
		t.Fatalf("%+v, %v", result, err)
	}
	change := result.Written[0]
	if diff := policy.Diff(*change.Before, change.After); diff.String() != "capacity 20 → 30" {
		t.Errorf("the file changed %s", diff)
	}
	kept()
}

func TestRetiredPolicyWithAQueueKeepsItsShape(t *testing.T) {
	s := newStore(t)
	stripe := absentStripe(t, s)
	if retired, _, err := s.RetireAbsent(natstest.Context(t), "default"); len(retired) != 1 ||
		err != nil {
		t.Fatalf("retired %v, %v", retired, err)
	}
	stripe.Partitions = 8
	if _, err := s.Put(natstest.Context(t), stripe); err == nil {
		t.Error("other partitions are accepted")
	}
}

func TestUnknownRecordsAreLeftOut(t *testing.T) {
	var log waittest.Log
	s := New(newStore(t).broker, slog.New(slog.NewTextHandler(&log, nil)))
	for key, value := range map[string]string{
		"newer":    `{"v":2,"policy":{}}`,
		"strange":  `{"v":1,"policy":{"name":"strange","algorithm":"of-the-future"}}`,
		"nonsense": `{`,
		"stripe.a": `{"v":1}`,
	} {
		if _, err := s.table.Put(natstest.Context(t), key, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Put(natstest.Context(t), paced("stripe", 10, 4)); err != nil {
		t.Fatal(err)
	}
	w := watchPolicies(t, s)
	w.see(t, "the known policy came", func(set policy.Entries) bool {
		return slices.Equal(slices.Collect(maps.Keys(set)), []string{"stripe"})
	})
	for _, name := range []string{"newer", "strange", "nonsense"} {
		if !strings.Contains(log.String(), "policy="+name) {
			t.Errorf("nothing is said about %s", name)
		}
	}
	result, err := s.PutFile(natstest.Context(t),
		File{Policies: []policy.Policy{paced("other", 10, 4)}})
	if err != nil || len(result.Unreadable) != 2 || len(result.Written) != 1 {
		t.Errorf("a file with none of the names of records that cannot be read: %+v, %v", result,
			err)
	}
	_, err = s.PutFile(natstest.Context(t), File{Policies: []policy.Policy{paced("newer", 10, 4)}})
	if !errors.Is(err, job.ErrVersion) || !strings.Contains(err.Error(), "newer") {
		t.Errorf("a file over a record of a newer format: %v", err)
	}
	if _, err := s.Put(natstest.Context(t), paced("newer", 10, 4)); err == nil {
		t.Error("a newer record was overwritten")
	}
	set, err := s.Policies(natstest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	found, err := s.Inventory(natstest.Context(t), set)
	if err != nil || found.OK != 2 || found.Retired != 0 || len(found.Unreadable) != 3 {
		t.Errorf("%+v, %v", found, err)
	}
	// A damaged record is replaced when the policy is written again.
	_, err = s.PutFile(natstest.Context(t),
		File{Policies: []policy.Policy{paced("nonsense", 10, 4)}})
	if err != nil {
		t.Error(err)
	}
	if _, err := s.Put(natstest.Context(t), paced("strange", 10, 4)); err != nil {
		t.Error(err)
	}
	w.see(t, "they are back", func(set policy.Entries) bool { return len(set) == 4 })
	if err := s.table.Delete(natstest.Context(t), "stripe", 0); err != nil {
		t.Fatal(err)
	}
	w.see(t, "the deletion came", func(set policy.Entries) bool { return len(set) == 3 })
}

// DESIGN.md promises it for every process.
func TestPolicyChangesApplyWithinASecond(t *testing.T) {
	s := newStore(t)
	w := watchPolicies(t, s)
	w.see(t, "the empty set came", func(set policy.Entries) bool { return len(set) == 0 })
	if _, err := s.Put(natstest.Context(t), paced("stripe", 10, 4)); err != nil {
		t.Fatal(err)
	}
	waittest.Within(t, time.Second, "the policy came", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.set) == 1
	})
}

func TestAPolicyWithWaitingJobsDoesNotRetire(t *testing.T) {
	s := newStore(t)
	absentStripe(t, s)
	producer := s.broker.NewProducer(queue.ProducerOptions{})
	for range 2 {
		if _, err := producer.Publish(natstest.Context(t),
			queue.Submission{Policy: "stripe", Key: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	retired, waiting, err := s.RetireAbsent(natstest.Context(t), "default")
	if len(retired) != 0 || waiting["stripe"] != 2 || err != nil {
		t.Errorf("retired %v, waiting %v, %v", retired, waiting, err)
	}
	js, err := jetstream.New(s.broker.Conn())
	if err == nil {
		err = js.DeleteStream(natstest.Context(t), s.broker.Names().Stream("stripe"))
	}
	if err != nil {
		t.Fatal(err)
	}
	if retired, waiting, err = s.RetireAbsent(natstest.Context(t),
		"default"); !slices.Equal(retired, []string{"stripe"}) ||
		len(waiting) != 0 || err != nil {
		t.Errorf("retired %v, waiting %v, %v", retired, waiting, err)
	}
}

func TestSetsAreIndependent(t *testing.T) {
	s := newStore(t)
	put := func(set string, names ...string) (FileResult, error) {
		t.Helper()
		file := File{Set: set}
		for _, name := range names {
			file.Policies = append(file.Policies, paced(name, 10, 4))
		}
		return s.PutFile(natstest.Context(t), file)
	}
	expect := func(when string, want FileResult, result FileResult, err error) {
		t.Helper()
		if err != nil || !slices.Equal(result.Absent, want.Absent) ||
			len(result.Written) != len(want.Written) {
			t.Errorf("%s: %+v, %v", when, result, err)
		}
		for _, set := range []string{"default", "tenants"} {
			if retired, _, err := s.RetireAbsent(natstest.Context(t), set); len(retired) != 0 &&
				when != "moved" || err != nil {
				t.Errorf("%s: retired %v, %v", when, retired, err)
			}
		}
	}
	result, err := put("", "a", "b")
	expect("the first", FileResult{Written: make([]FileChange, 2)}, result, err)
	result, err = put("tenants", "c")
	expect("another", FileResult{Written: make([]FileChange, 1)}, result, err)
	result, err = put("", "a", "b")
	expect("the first again", FileResult{}, result, err)

	_, err = put("tenants", "a", "c")
	if _, invalid := errors.AsType[*policy.InvalidError](err); !invalid ||
		!strings.Contains(err.Error(), "set: default") ||
		!strings.Contains(err.Error(), "set: tenants") {
		t.Errorf("a policy of both: %v", err)
	}
	if result, err = put("", "b"); err != nil || !slices.Equal(result.Absent, []string{"a"}) {
		t.Errorf("%+v, %v", result, err)
	}
	result, err = put("tenants", "a", "c")
	expect("moved", FileResult{Written: make([]FileChange, 1)}, result, err)
	result, err = put("", "b")
	expect("after the move", FileResult{}, result, err)
	if entry, err := s.Policy(natstest.Context(t), "a"); err != nil || entry.Set != "tenants" ||
		entry.Retired {
		t.Errorf("%+v, %v", entry, err)
	}
}

func TestAStreamWithoutAPolicyIsFound(t *testing.T) {
	s := newStore(t)
	for _, name := range []string{"stripe", "lost"} {
		apply(t, s, paced(name, 10, 4))
		if _, err := s.Put(natstest.Context(t), paced(name, 10, 4)); err != nil {
			t.Fatal(err)
		}
	}
	look := func(ok int, orphaned map[string]queue.Stream) {
		t.Helper()
		set, err := s.Policies(natstest.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		found, err := s.Inventory(natstest.Context(t), set)
		if err != nil || found.OK != ok || len(found.Unreadable) != 0 ||
			!maps.Equal(found.Orphaned, orphaned) {
			t.Errorf("%+v, %v", found, err)
		}
	}
	producer := s.broker.NewProducer(queue.ProducerOptions{})
	if _, err := producer.Publish(natstest.Context(t),
		queue.Submission{Policy: "lost", Key: "a"}); err != nil {
		t.Fatal(err)
	}
	look(2, nil)
	if err := s.table.Delete(natstest.Context(t), "lost", 0); err != nil {
		t.Fatal(err)
	}
	look(1, map[string]queue.Stream{"lost": {Name: "PENSTOCK_lost", Jobs: 1, Partitions: "4",
		Last: 1}})
	if _, err := s.Put(natstest.Context(t), paced("lost", 10, 4)); err != nil {
		t.Fatal(err)
	}
	look(2, nil)
}
