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

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
)

type policyWatch struct {
	mu    sync.Mutex
	set   inforce.Entries
	names []string // with the last set
	calls int
}

func watchPolicies(t *testing.T, s *Store) *policyWatch {
	t.Helper()
	w := &policyWatch{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- s.Watch(ctx, func(set inforce.Entries, names []string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, name := range inforce.Changed(w.set, set) {
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

func (w *policyWatch) see(t *testing.T, what string, condition func(inforce.Entries) bool) {
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
	w.see(t, "the empty set came", func(set inforce.Entries) bool { return len(set) == 0 })
	p := paced("stripe", 10, 4)
	revision, err := s.Put(natstest.Context(t), p)
	if err != nil {
		t.Fatal(err)
	}
	w.see(t, "the policy came", func(set inforce.Entries) bool {
		p := set["stripe"]
		return p != nil && p.Revision == revision && p.Policy.Capacity == 10 && !p.Draining
	})
	if _, err := s.Put(natstest.Context(t), paced("other", 10, 4)); err != nil {
		t.Fatal(err)
	}
	w.see(t, "another came", func(set inforce.Entries) bool { return len(set) == 2 })
	p.Capacity = 20
	if revision, err = s.Put(natstest.Context(t), p); err != nil {
		t.Fatal(err)
	}
	w.see(t, "the change came", func(set inforce.Entries) bool {
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
	do(t, s, "stripe", Change{Act: Offer, Set: "default"})
	result := load(t, s, "", p)
	if len(result.Changes) != 1 {
		t.Fatalf("%+v", result)
	}
	change := result.Changes[0]
	diff := inforce.Diff(change.Before.Written, change.After.Written)
	if diff.String() != "capacity 20 → 30" {
		t.Errorf("the file changed %s", diff)
	}
	kept()
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
	w.see(t, "the known policy came", func(set inforce.Entries) bool {
		return slices.Equal(slices.Collect(maps.Keys(set)), []string{"stripe"})
	})
	for _, name := range []string{"newer", "strange", "nonsense"} {
		if !strings.Contains(log.String(), "policy="+name) {
			t.Errorf("nothing is said about %s", name)
		}
	}
	result, err := s.Replace(natstest.Context(t),
		Set{Policies: []policy.Policy{paced("other", 10, 4)}})
	if err != nil || len(result.Unreadable) != 3 || len(result.Changes) != 1 {
		t.Errorf("a file with none of the names of records that cannot be read: %+v, %v", result,
			err)
	}
	_, err = s.Replace(natstest.Context(t),
		Set{Name: "new", Policies: []policy.Policy{paced("newer", 10, 4)}})
	if !errors.Is(err, job.ErrVersion) || !strings.Contains(err.Error(), "newer") {
		t.Errorf("a file over a record of a newer format: %v", err)
	}
	if _, err := s.Put(natstest.Context(t), paced("newer", 10, 4)); err == nil {
		t.Error("a newer record was overwritten")
	}
	found, err := s.Inventory(natstest.Context(t), time.Hour)
	if err != nil || found.OK != 2 || found.Draining != 0 || len(found.Unreadable) != 3 {
		t.Errorf("%+v, %v", found, err)
	}
	// A damaged record is replaced when the policy is written again.
	load(t, s, "more", paced("nonsense", 10, 4))
	if _, err := s.Put(natstest.Context(t), paced("strange", 10, 4)); err != nil {
		t.Error(err)
	}
	w.see(t, "they are back", func(set inforce.Entries) bool { return len(set) == 4 })
	if err := s.table.Delete(natstest.Context(t), "stripe", 0); err != nil {
		t.Fatal(err)
	}
	w.see(t, "the deletion came", func(set inforce.Entries) bool { return len(set) == 3 })
}

// DESIGN.md promises it for every process.
func TestPolicyChangesApplyWithinASecond(t *testing.T) {
	s := newStore(t)
	w := watchPolicies(t, s)
	w.see(t, "the empty set came", func(set inforce.Entries) bool { return len(set) == 0 })
	if _, err := s.Put(natstest.Context(t), paced("stripe", 10, 4)); err != nil {
		t.Fatal(err)
	}
	waittest.Within(t, time.Second, "the policy came", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.set) == 1
	})
}

func TestAStreamWithoutAPolicyIsFound(t *testing.T) {
	s := newStore(t)
	for _, name := range []string{"stripe", "lost"} {
		apply(t, s, paced(name, 10, 4))
		if _, err := s.Put(natstest.Context(t), paced(name, 10, 4)); err != nil {
			t.Fatal(err)
		}
	}
	look := func(ok int, orphaned map[string]jet.Stream) {
		t.Helper()
		found, err := s.Inventory(natstest.Context(t), time.Hour)
		for name, stream := range found.Orphaned {
			if stream.Bytes.Used == 0 {
				t.Errorf("%s takes no bytes", name)
			}
			stream.Bytes = jet.Fill{} // the server's matter, and the disk's
			found.Orphaned[name] = stream
		}
		if err != nil || found.OK != ok || len(found.Unreadable) != 0 ||
			!maps.Equal(found.Orphaned, orphaned) {
			t.Errorf("%+v, %v", found, err)
		}
	}
	producer := s.broker.NewProducer(jet.ProducerOptions{})
	if _, err := producer.Publish(natstest.Context(t),
		jet.Submission{Policy: "lost", Key: "a"}); err != nil {
		t.Fatal(err)
	}
	look(2, nil)
	if err := s.table.Delete(natstest.Context(t), "lost", 0); err != nil {
		t.Fatal(err)
	}
	look(1, map[string]jet.Stream{"lost": {Name: "PENSTOCK_lost", Jobs: 1, Partitions: "4",
		Last: 1}})
	if _, err := s.Put(natstest.Context(t), paced("lost", 10, 4)); err != nil {
		t.Fatal(err)
	}
	look(2, nil)
}
