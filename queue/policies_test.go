package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// policyWatch keeps the last set that a watch told.
type policyWatch struct {
	mu    sync.Mutex
	set   PolicySet
	calls int
}

func watchPolicies(t *testing.T, b *Broker) *policyWatch {
	t.Helper()
	w := &policyWatch{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- b.WatchPolicies(ctx, func(set PolicySet) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.set = set
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

func (w *policyWatch) see(t *testing.T, what string, condition func(PolicySet) bool) {
	t.Helper()
	eventually(t, what, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.calls > 0 && condition(w.set)
	})
}

func TestPutPolicy(t *testing.T) {
	b := newBroker(t)
	w := watchPolicies(t, b)
	w.see(t, "the empty set came", func(set PolicySet) bool { return len(set) == 0 })
	p := paced("stripe", 10, 4)
	revision, err := b.PutPolicy(testContext(t), p)
	if err != nil {
		t.Fatal(err)
	}
	w.see(t, "the policy came", func(set PolicySet) bool {
		return set["stripe"].Revision == revision && set["stripe"].Policy.Capacity == 10 && !set["stripe"].Retired
	})
	p.Capacity = 20
	if revision, err = b.PutPolicy(testContext(t), p); err != nil {
		t.Fatal(err)
	}
	w.see(t, "the change came", func(set PolicySet) bool {
		return set["stripe"].Revision == revision && set["stripe"].Policy.Capacity == 20
	})
	w.mu.Lock()
	got := w.set["stripe"].Policy
	w.mu.Unlock()
	if want := p.WithDefaults(); !samePolicy(t, got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	p.Partitions = 8
	if _, err := b.PutPolicy(testContext(t), p); err == nil {
		t.Error("other partitions are accepted")
	}
	if _, err := b.PutPolicy(testContext(t), paced("bad name", 10, 1)); err == nil {
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
	b := newBroker(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if _, err := b.PutPolicy(testContext(t), paced("stripe", int64(10+i), 4)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestFilePolicies(t *testing.T) {
	b := newBroker(t)
	w := watchPolicies(t, b)
	put := func(ps ...policy.Policy) {
		t.Helper()
		if err := b.PutFilePolicies(testContext(t), ps); err != nil {
			t.Fatal(err)
		}
	}
	revisions := func() map[string]uint64 {
		t.Helper()
		records, err := b.policies.List(testContext(t), "*")
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]uint64{}
		for _, r := range records {
			all[r.Key] = r.Revision
		}
		return all
	}
	capacity := func(name string, n int64, retired bool) func(PolicySet) bool {
		return func(set PolicySet) bool {
			entry, ok := set[name]
			return ok && entry.Policy.Capacity == n && entry.Retired == retired
		}
	}
	stripe, github, fromAPI := paced("stripe", 10, 4), paced("github", 10, 4), paced("api", 10, 4)
	if _, err := b.PutPolicy(testContext(t), fromAPI); err != nil {
		t.Fatal(err)
	}
	put(stripe, github)
	w.see(t, "all came", func(set PolicySet) bool { return len(set) == 3 })

	before := revisions()
	put(stripe, github)
	if after := revisions(); !maps.Equal(before, after) {
		t.Errorf("a restart with the same file wrote: %v, %v", before, after)
	}

	// A change by the API survives restarts, until the file's own content changes.
	changed := stripe
	changed.Capacity = 50
	if _, err := b.PutPolicy(testContext(t), changed); err != nil {
		t.Fatal(err)
	}
	put(stripe, github)
	w.see(t, "the change stands", capacity("stripe", 50, false))
	stripe.Capacity = 11
	put(stripe, github)
	w.see(t, "the file's change came", capacity("stripe", 11, false))

	// Removed from the file: retired, and back when it comes back.
	put(github)
	w.see(t, "it retires", capacity("stripe", 11, true))
	before = revisions()
	put(github)
	if after := revisions(); !maps.Equal(before, after) {
		t.Errorf("retiring again wrote: %v, %v", before, after)
	}
	put(stripe, github)
	w.see(t, "it is back", capacity("stripe", 11, false))
	w.see(t, "the API's policy was left alone", capacity("api", 10, false))

	// Nothing is written when anything is wrong.
	before = revisions()
	split := stripe
	split.Partitions = 16
	other := github
	other.Capacity = 12
	if err := b.PutFilePolicies(testContext(t), []policy.Policy{other, split}); err == nil || !strings.Contains(err.Error(), "stripe") {
		t.Errorf("other partitions: %v", err)
	}
	if after := revisions(); !maps.Equal(before, after) {
		t.Errorf("a file with an error wrote: %v, %v", before, after)
	}

	// A retired policy whose stream is gone may come back as something else.
	put(github)
	put(split, github)
	w.see(t, "it is back with other partitions", func(set PolicySet) bool { return set["stripe"].Policy.Partitions == 16 })
}

// TestRetiredPolicyWithAQueueKeepsItsShape: while jobs wait, the name cannot come back with other partitions.
func TestRetiredPolicyWithAQueueKeepsItsShape(t *testing.T) {
	b := newBroker(t)
	stripe := paced("stripe", 10, 4)
	apply(t, b, stripe)
	for _, ps := range [][]policy.Policy{{stripe}, {}} {
		if err := b.PutFilePolicies(testContext(t), ps); err != nil {
			t.Fatal(err)
		}
	}
	stripe.Partitions = 8
	if _, err := b.PutPolicy(testContext(t), stripe); err == nil {
		t.Error("other partitions are accepted")
	}
}

// TestUnknownRecordsAreLeftOut: who meets a format it does not know stands back and says so.
func TestUnknownRecordsAreLeftOut(t *testing.T) {
	var log lockedBuffer
	nc := connect(t, startServer(t, embedded.Options{}))
	b, err := NewBroker(nc, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Setup(testContext(t)); err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{
		"newer":    `{"v":2,"policy":{}}`,
		"strange":  `{"v":1,"policy":{"name":"strange","algorithm":"of-the-future"}}`,
		"nonsense": `{`,
		"stripe.a": `{"v":1}`,
	} {
		if _, err := b.policies.Put(testContext(t), key, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.PutPolicy(testContext(t), paced("stripe", 10, 4)); err != nil {
		t.Fatal(err)
	}
	w := watchPolicies(t, b)
	w.see(t, "the known policy came", func(set PolicySet) bool {
		return slices.Equal(slices.Collect(maps.Keys(set)), []string{"stripe"})
	})
	for _, name := range []string{"newer", "strange", "nonsense"} {
		if !strings.Contains(log.String(), "policy="+name) {
			t.Errorf("nothing is said about %s", name)
		}
	}
	if err := b.PutFilePolicies(testContext(t), nil); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Errorf("a file over records of a newer format: %v", err)
	}
	if _, err := b.PutPolicy(testContext(t), paced("newer", 10, 4)); err == nil {
		t.Error("a newer record was overwritten")
	}
	if err := b.policies.Delete(testContext(t), "stripe", 0); err != nil {
		t.Fatal(err)
	}
	w.see(t, "the deletion came", func(set PolicySet) bool { return len(set) == 0 })
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestPolicyChangesApplyWithinASecond is what DESIGN promises of every process.
func TestPolicyChangesApplyWithinASecond(t *testing.T) {
	b := newBroker(t)
	w := watchPolicies(t, b)
	w.see(t, "the empty set came", func(set PolicySet) bool { return len(set) == 0 })
	began := time.Now()
	if _, err := b.PutPolicy(testContext(t), paced("stripe", 10, 4)); err != nil {
		t.Fatal(err)
	}
	w.see(t, "the policy came", func(set PolicySet) bool { return len(set) == 1 })
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %s", took)
	}
}
