package store

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
	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/kv"
	"github.com/penstock-mq/penstock/queue"
)

func perSecond(n int64) *algorithms.Rate { return &algorithms.Rate{Count: n, Per: time.Second} }

func (s *Store) PutOverride(ctx context.Context, policyName string, key queue.Key,
	o inforce.Override) (uint64, error) {
	put, err := s.ChangeOverride(ctx, policyName, key,
		func(Override) (inforce.Override, error) { return o, nil })
	return put.Revision, err
}

func (s *Store) DeleteOverride(ctx context.Context, policyName string, key queue.Key) error {
	_, err := s.PutOverride(ctx, policyName, key, inforce.Override{})
	return err
}

func TestOverrides(t *testing.T) {
	s := newStore(t)
	ctx := natstest.Context(t)
	k := queue.Key("tenant%207/%C3%A9")
	if _, err := s.Override(ctx, "stripe", k); !errors.Is(err, jet.ErrNotFound) {
		t.Errorf("before: %v", err)
	}
	if err := s.DeleteOverride(ctx, "stripe", k); err != nil {
		t.Errorf("delete what is not: %v", err)
	}
	weight := int64(5)
	want := inforce.Override{Outflow: perSecond(5), Weight: &weight}
	first, err := s.PutOverride(ctx, "stripe", k, want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Override(ctx, "stripe", k); err != nil ||
		!reflect.DeepEqual(got.Override, want) ||
		got.Revision != first {
		t.Errorf("got %+v, %v", got, err)
	}
	if again, err := s.PutOverride(ctx, "stripe", k, want); err != nil || again != first {
		t.Errorf("the same again: revision %d, %v, want %d", again, err, first)
	}
	if _, err := s.Override(ctx, "stripe", "other"); !errors.Is(err, jet.ErrNotFound) {
		t.Errorf("another key: %v", err)
	}
	if second, err := s.PutOverride(ctx, "stripe", k, inforce.Override{Paused: true}); err != nil ||
		second <= first {
		t.Errorf("revision %d, %v", second, err)
	}
	if _, err := s.PutOverride(ctx, "stripe", k, inforce.Override{}); err != nil {
		t.Errorf("the zero override: %v", err)
	}
	if _, err := s.Override(ctx, "stripe", k); !errors.Is(err, jet.ErrNotFound) {
		t.Errorf("the zero override is kept: %v", err)
	}
	if _, err := s.PutOverride(ctx, "stripe", k, want); err != nil {
		t.Errorf("over a deleted one: %v", err)
	}
	if err := s.DeleteOverride(ctx, "stripe", k); err != nil {
		t.Error(err)
	}
	for _, bad := range []queue.Key{"", "%", "*", "a.>", "%2a", "%!.x", "a..b"} {
		if _, err := s.PutOverride(ctx, "stripe", bad, want); !errors.Is(err, queue.ErrInvalidKey) {
			t.Errorf("key %q: %v", bad, err)
		}
	}
	for _, bad := range []string{"", "*", "a.b", "a b", ">"} {
		if _, err := s.PutOverride(ctx, bad, k, want); err == nil {
			t.Errorf("policy %q is taken", bad)
		}
		if _, err := s.Policy(ctx, bad); !errors.Is(err, jet.ErrNotFound) {
			t.Errorf("policy %q: %v", bad, err)
		}
	}
}

func TestChangeOverrideTogether(t *testing.T) {
	s := newStore(t)
	ctx := natstest.Context(t)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			_, err := s.ChangeOverride(ctx, "stripe", "a", func(current Override) (inforce.Override,
				error) {
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
	if o, err := s.Override(ctx, "stripe", "a"); err != nil || o.Override.Burst == nil ||
		*o.Override.Burst != 10 {
		t.Errorf("got %+v, %v", o, err)
	}
	refusal := errors.New("no")
	_, err := s.ChangeOverride(ctx, "stripe", "a", func(Override) (inforce.Override, error) {
		return inforce.Override{}, refusal
	})
	if !errors.Is(err, refusal) {
		t.Errorf("got %v", err)
	}
}

func TestOverridesInPages(t *testing.T) {
	s := newStore(t)
	ctx := natstest.Context(t)
	for i := range 25 {
		k := queue.Key(fmt.Sprintf("k%02d", i))
		if _, err := s.PutOverride(ctx, "stripe", k, inforce.Override{Paused: true}); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []queue.Key{"k03", "k24"} {
		if err := s.DeleteOverride(ctx, "stripe", key); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.PutOverride(ctx, "stripe2", "x", inforce.Override{Paused: true}); err != nil {
		t.Fatal(err)
	}
	if err := s.table.Set(ctx, "stripe.k05", []byte(`{"v":2}`), 0); err != nil {
		t.Fatal(err)
	}
	var all []queue.Key
	for after := queue.Key(""); ; {
		page, err := s.Overrides(ctx, "stripe", after, 10)
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
	if page, err := s.Overrides(ctx, "nobody", "", 10); err != nil || len(page) != 0 {
		t.Errorf("no overrides: %v, %v", page, err)
	}
	if page, err := s.Overrides(ctx, "stripe", "k035", 1); err != nil || len(page) != 1 ||
		page[0].Key != "k04" {
		t.Errorf("after a key without one: %v, %v", page, err)
	}
}

type overrideLog struct {
	mu      sync.Mutex
	current map[string]inforce.Override
	synced  bool
}

func (l *overrideLog) follow(t *testing.T, s *Store) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- s.WatchOverrides(ctx, func(name string, key queue.Key, o inforce.Override,
			exists bool) {
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

func (l *overrideLog) says(name string, want *inforce.Override) func() bool {
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		got, exists := l.current[name]
		return l.synced && exists == (want != nil) && (want == nil || reflect.DeepEqual(got, *want))
	}
}

func TestWatchOverrides(t *testing.T) {
	s := newStore(t)
	ctx := natstest.Context(t)
	paused := inforce.Override{Paused: true}
	slow := inforce.Override{Outflow: perSecond(1)}
	put := func(policyName, key string, o inforce.Override) {
		t.Helper()
		if _, err := s.PutOverride(ctx, policyName, queue.Key(key), o); err != nil {
			t.Fatal(err)
		}
	}
	put("stripe", "a=b.c", paused)
	if _, err := s.Put(ctx, paced("stripe", 5, 1)); err != nil {
		t.Fatal(err)
	}
	l := &overrideLog{current: map[string]inforce.Override{}}
	l.follow(t, s)
	waittest.Until(t, "what was there arrives", l.says("stripe a=b.c", &paused))
	put("other", "_", slow)
	waittest.Until(t, "the empty key's override arrives", l.says("other ", &slow))
	put("stripe", "a=b.c", slow)
	waittest.Until(t, "a change arrives", l.says("stripe a=b.c", &slow))
	if err := s.table.Set(ctx, "stripe.a=3Db.c", []byte(`{"v":9}`), 0); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "what cannot be understood counts as none", l.says("stripe a=b.c", nil))
	if _, err := s.PutOverride(ctx, "stripe", "a=b.c", slow); !errors.Is(err, job.ErrVersion) {
		t.Errorf("written over a newer format: %v", err)
	}
	for _, strange := range []string{"stripe.=", "stripe.=4", "stripe.=zz", "stripe.=41",
		"stripe.=2A"} {
		if err := s.table.Set(ctx, strange, []byte(`{}`), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.DeleteOverride(ctx, "other", "_"); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "a deletion arrives", l.says("other ", nil))
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.current) != 0 {
		t.Errorf("still known: %v", l.current)
	}
}

func FuzzOverrideName(f *testing.F) {
	for _, seed := range []string{"", "_", "a", ".", "a..b", "a=b", "=41", "tenant 7", "é", "*",
		">", "%", "\x00", "a/b"} {
		f.Add(seed, seed+"x")
	}
	f.Fuzz(func(t *testing.T, raw, other string) {
		k, err := queue.EncodeKey(raw)
		if err != nil {
			return
		}
		name, err := overrideName("p", k)
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		if !kv.ValidKey(name) || !strings.HasPrefix(name, "p.") || len(name) > 1300 {
			t.Fatalf("%q: %q is not a record's name", raw, name)
		}
		if p, back, err := parseOverrideName(name); err != nil || p != "p" || back != k {
			t.Fatalf("%q became %q, %q, %v", raw, name, back, err)
		}
		if o, err := queue.EncodeKey(other); err == nil && other != raw {
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
