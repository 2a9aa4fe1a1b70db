package queue

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
)

func perSecond(n int64) *algorithms.Rate { return &algorithms.Rate{Count: n, Per: time.Second} }

func TestOverrides(t *testing.T) {
	b := newBroker(t)
	ctx := testContext(t)
	k := mustKey(t, "tenant 7/é")
	if _, err := b.Override(ctx, "stripe", k); !errors.Is(err, ErrNotFound) {
		t.Errorf("before: %v", err)
	}
	if err := b.DeleteOverride(ctx, "stripe", k); err != nil {
		t.Errorf("delete what is not: %v", err)
	}
	weight := int64(5)
	want := policy.Override{Outflow: perSecond(5), Weight: &weight}
	first, err := b.PutOverride(ctx, "stripe", k, want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := b.Override(ctx, "stripe", k); err != nil || !reflect.DeepEqual(got.Override, want) ||
		got.Revision != first {
		t.Errorf("got %+v, %v", got, err)
	}
	if again, err := b.PutOverride(ctx, "stripe", k, want); err != nil || again != first {
		t.Errorf("the same again: revision %d, %v, want %d", again, err, first)
	}
	if _, err := b.Override(ctx, "stripe", "other"); !errors.Is(err, ErrNotFound) {
		t.Errorf("another key: %v", err)
	}
	if second, err := b.PutOverride(ctx, "stripe", k, policy.Override{Paused: true}); err != nil || second <= first {
		t.Errorf("revision %d, %v", second, err)
	}
	if _, err := b.PutOverride(ctx, "stripe", k, policy.Override{}); err != nil {
		t.Errorf("the zero override: %v", err)
	}
	if _, err := b.Override(ctx, "stripe", k); !errors.Is(err, ErrNotFound) {
		t.Errorf("the zero override is kept: %v", err)
	}
	if _, err := b.PutOverride(ctx, "stripe", k, want); err != nil {
		t.Errorf("over a deleted one: %v", err)
	}
	if err := b.DeleteOverride(ctx, "stripe", k); err != nil {
		t.Error(err)
	}
	for _, bad := range []Key{"", "%", "*", "a.>", "%2a", "%!.x", "a..b"} {
		if _, err := b.PutOverride(ctx, "stripe", bad, want); !errors.Is(err, ErrInvalidKey) {
			t.Errorf("key %q: %v", bad, err)
		}
	}
	for _, bad := range []string{"", "*", "a.b", "a b", ">"} {
		if _, err := b.PutOverride(ctx, bad, k, want); err == nil {
			t.Errorf("policy %q is taken", bad)
		}
		if _, err := b.Policy(ctx, bad); !errors.Is(err, ErrNotFound) {
			t.Errorf("policy %q: %v", bad, err)
		}
	}
}

// TestChangeOverrideTogether: nobody's change is lost.
func TestChangeOverrideTogether(t *testing.T) {
	b := newBroker(t)
	ctx := testContext(t)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			_, err := b.ChangeOverride(ctx, "stripe", "a", func(current KeyOverride) (policy.Override, error) {
				o, burst := current.Override, int64(1)
				if o.Burst != nil {
					burst += *o.Burst
				}
				o.Burst = &burst
				return o, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if o, err := b.Override(ctx, "stripe", "a"); err != nil || o.Override.Burst == nil || *o.Override.Burst != 10 {
		t.Errorf("got %+v, %v", o, err)
	}
	refusal := errors.New("no")
	_, err := b.ChangeOverride(ctx, "stripe", "a", func(KeyOverride) (policy.Override, error) {
		return policy.Override{}, refusal
	})
	if !errors.Is(err, refusal) {
		t.Errorf("got %v", err)
	}
}

func TestOverridesInPages(t *testing.T) {
	b := newBroker(t)
	ctx := testContext(t)
	for i := range 25 {
		k := mustKey(t, fmt.Sprintf("k%02d", i))
		if _, err := b.PutOverride(ctx, "stripe", k, policy.Override{Paused: true}); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []Key{"k03", "k24"} {
		if err := b.DeleteOverride(ctx, "stripe", key); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.PutOverride(ctx, "stripe2", "x", policy.Override{Paused: true}); err != nil {
		t.Fatal(err)
	}
	if err := b.policies.Set(ctx, "stripe.k05", []byte(`{"v":2}`)); err != nil {
		t.Fatal(err)
	}
	var all []Key
	for after := Key(""); ; {
		page, err := b.Overrides(ctx, "stripe", after, 10)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, o := range page {
			if !o.Override.Paused || o.Revision == 0 {
				t.Errorf("%+v", o)
			}
			all = append(all, o.Key)
		}
		after = all[len(all)-1]
	}
	if len(all) != 22 || all[0] != "k00" || all[3] != "k04" || all[4] != "k06" || all[21] != "k23" {
		t.Errorf("got %q", all)
	}
	if page, err := b.Overrides(ctx, "nobody", "", 10); err != nil || len(page) != 0 {
		t.Errorf("no overrides: %v, %v", page, err)
	}
	if page, err := b.Overrides(ctx, "stripe", "k035", 1); err != nil || len(page) != 1 || page[0].Key != "k04" {
		t.Errorf("after a key without one: %v, %v", page, err)
	}
}

// overrideLog follows the overrides as a process does.
type overrideLog struct {
	mu      sync.Mutex
	current map[string]policy.Override
	synced  bool
}

func (l *overrideLog) follow(t *testing.T, b *Broker) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- b.WatchOverrides(ctx, func(name string, key Key, o policy.Override, exists bool) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if !exists {
				delete(l.current, name+" "+key.Raw())
				if !o.IsZero() {
					t.Errorf("%s.%s is gone, and says %+v", name, key, o)
				}
				return
			}
			l.current[name+" "+key.Raw()] = o
		}, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.synced = true
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (l *overrideLog) says(name string, want *policy.Override) func() bool {
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		got, exists := l.current[name]
		return l.synced && exists == (want != nil) && (want == nil || reflect.DeepEqual(got, *want))
	}
}

func TestWatchOverrides(t *testing.T) {
	dir := t.TempDir()
	const listen = "127.0.0.1:0"
	s := startServer(t, embedded.Options{Dir: dir, Listen: listen})
	b := brokerOver(t, connect(t, s))
	ctx := testContext(t)
	paused := policy.Override{Paused: true}
	slow := policy.Override{Outflow: perSecond(1)}
	put := func(policyName, key string, o policy.Override) {
		t.Helper()
		if _, err := b.PutOverride(ctx, policyName, mustKey(t, key), o); err != nil {
			t.Fatal(err)
		}
	}
	put("stripe", "a=b.c", paused)
	if _, err := b.PutPolicy(ctx, paced("stripe", 5, 1)); err != nil { // no override
		t.Fatal(err)
	}
	l := &overrideLog{current: map[string]policy.Override{}}
	l.follow(t, b)
	eventually(t, "what was there is told", l.says("stripe a=b.c", &paused))
	put("other", "", slow)
	eventually(t, "the empty key's override is told", l.says("other ", &slow))
	put("stripe", "a=b.c", slow)
	eventually(t, "a change is told", l.says("stripe a=b.c", &slow))
	if err := b.policies.Set(ctx, "stripe.a=3Db.c", []byte(`{"v":9}`)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what cannot be understood counts as none", l.says("stripe a=b.c", nil))
	if _, err := b.PutOverride(ctx, "stripe", "a=b.c", slow); !errors.Is(err, ErrVersion) {
		t.Errorf("written over a newer format: %v", err)
	}
	for _, strange := range []string{"stripe.=", "stripe.=4", "stripe.=zz", "stripe.=41", "stripe.=2A"} {
		if err := b.policies.Set(ctx, strange, []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.DeleteOverride(ctx, "other", "_"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a deletion is told", l.says("other ", nil))
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.current) != 0 {
		t.Errorf("still known: %v", l.current)
	}
}

func TestPausedPolicies(t *testing.T) {
	b := newBroker(t)
	ctx := testContext(t)
	if _, err := b.SetPaused(ctx, "stripe", true); !errors.Is(err, ErrNotFound) {
		t.Errorf("an unknown policy: %v", err)
	}
	file := paced("stripe", 5, 1)
	if _, err := b.PutFilePolicies(ctx, FileSet{Policies: []policy.Policy{file}}); err != nil {
		t.Fatal(err)
	}
	expect := func(when string, paused, retired bool, source string) uint64 {
		t.Helper()
		e, err := b.Policy(ctx, "stripe")
		if err != nil || e.Paused != paused || e.Retired != retired || e.Source != source {
			t.Errorf("%s: %+v, %v", when, e, err)
		}
		set, err := b.Policies(ctx)
		if err != nil || !reflect.DeepEqual(set["stripe"], e) {
			t.Errorf("%s: %+v, %v", when, set, err)
		}
		return e.Revision
	}
	expect("at first", false, false, SourceFile)
	revision, err := b.SetPaused(ctx, "stripe", true)
	if err != nil || expect("paused", true, false, SourceFile) != revision {
		t.Errorf("revision %d, %v", revision, err)
	}
	if again, err := b.SetPaused(ctx, "stripe", true); err != nil || again != revision {
		t.Errorf("paused again: revision %d, %v", again, err)
	}
	file.Outflow.Count++
	if _, err := b.PutFilePolicies(ctx, FileSet{Policies: []policy.Policy{file}}); err != nil {
		t.Fatal(err)
	}
	expect("after the file changed", true, false, SourceFile)
	if _, err := b.PutPolicy(ctx, paced("stripe", 6, 1)); err != nil {
		t.Fatal(err)
	}
	expect("after the API changed it", true, false, SourceAPI)
	if _, err := b.PutFilePolicies(ctx, FileSet{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.RetireAbsent(ctx, policy.DefaultSet); err != nil {
		t.Fatal(err)
	}
	expect("retired", true, true, SourceAPI)
	if _, err := b.SetPaused(ctx, "stripe", false); err != nil {
		t.Fatal(err)
	}
	expect("resumed", false, true, SourceAPI)
}

// Names of overrides' records are one to one with policies and keys, and fit records.
func FuzzOverrideName(f *testing.F) {
	for _, seed := range []string{"", "_", "a", ".", "a..b", "a=b", "=41", "tenant 7", "é", "*", ">", "%", "\x00", "a/b"} {
		f.Add(seed, seed+"x")
	}
	f.Fuzz(func(t *testing.T, raw, other string) {
		k, err := EncodeKey(raw)
		if err != nil {
			return
		}
		name, err := overrideName("p", k)
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		if !validRecordKey(name) || !strings.HasPrefix(name, "p.") || len(name) > 1300 {
			t.Fatalf("%q: %q is not a record's name", raw, name)
		}
		if p, back, err := parseOverrideName(name); err != nil || p != "p" || back != k {
			t.Fatalf("%q became %q, %q, %v", raw, name, back, err)
		}
		if o, err := EncodeKey(other); err == nil && other != raw {
			if same, _ := overrideName("p", o); same == name {
				t.Fatalf("%q and %q share %q", raw, other, name)
			}
		}
		if p, k, err := parseOverrideName(raw); err == nil {
			if again, err := overrideName(p, k); err != nil || again != raw {
				t.Fatalf("%q is read as %q and %q, which is %q", raw, p, k, again)
			}
		}
	})
}
