package kv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/queue/embedded"
)

func TestTableCompareAndSet(t *testing.T) {
	ctx, table := natstest.Context(t), newTable(t)
	if r, err := table.Read(ctx, "stripe.1"); !errors.Is(err, ErrNotFound) || r.Revision != 0 {
		t.Errorf("a missing key: %+v, %v", r, err)
	}
	first, err := table.Put(ctx, "stripe.1", []byte("a"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Put(ctx, "stripe.1", []byte("b"), 0); !errors.Is(err, ErrConflict) {
		t.Errorf("creating what exists: %v, want ErrConflict", err)
	}
	second, err := table.Put(ctx, "stripe.1", []byte("b"), first)
	if err != nil || second <= first {
		t.Fatalf("revision %d after %d, %v", second, first, err)
	}
	if _, err := table.Put(ctx, "stripe.1", []byte("c"), first); !errors.Is(err, ErrConflict) {
		t.Errorf("an old revision: %v, want ErrConflict", err)
	}
	r, err := table.Read(ctx, "stripe.1")
	if err != nil || r.Key != "stripe.1" || string(r.Value) != "b" || r.Revision != second ||
		r.Deleted ||
		time.Since(r.Stored) > time.Minute || r.Stored.IsZero() {
		t.Errorf("got %+v, %v", r, err)
	}

	if err := table.Delete(ctx, "stripe.1", first); !errors.Is(err, ErrConflict) {
		t.Errorf("deleting an old revision: %v, want ErrConflict", err)
	}
	if err := table.Delete(ctx, "stripe.1", second); err != nil {
		t.Fatal(err)
	}
	if r, err = table.Read(ctx, "stripe.1"); !errors.Is(err, ErrNotFound) || !r.Deleted ||
		r.Revision <= second || r.Value != nil {
		t.Errorf("a deleted key: %+v, %v", r, err)
	}
	if _, err := table.Put(ctx, "stripe.1", []byte("d"), second); !errors.Is(err, ErrConflict) {
		t.Errorf("a revision from before the deletion: %v, want ErrConflict", err)
	}
	if third, err := table.Put(ctx, "stripe.1", []byte("d"), 0); err != nil || third <= r.Revision {
		t.Errorf("creating a deleted key: %d, %v", third, err)
	}
	for range 2 {
		if err := table.Delete(ctx, "stripe.1", 0); err != nil {
			t.Errorf("deleting whatever there is: %v", err)
		}
	}
	for _, key := range []string{"", ".", "a.", ".a", "a..b", "*", ">", "a b", "é", "a%2E"} {
		if _, err := table.Put(ctx, key, nil, 0); err == nil {
			t.Errorf("key %q is accepted", key)
		}
		if _, err := table.Read(ctx, key); err == nil || errors.Is(err, ErrNotFound) {
			t.Errorf("key %q is looked for", key)
		}
	}
}

func TestOneOfManyWins(t *testing.T) {
	s := natstest.Start(t, embedded.Options{})
	table := tableOver(t, natstest.Connect(t, s))
	revision := uint64(0)
	for round := range 20 {
		var mu sync.Mutex
		var wg sync.WaitGroup
		winners, next := 0, uint64(0)
		for i := range 8 {
			wg.Go(func() {
				won, err := table.Put(natstest.Context(t), "d", []byte(fmt.Sprint(round, i)),
					revision)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					winners++
					next = won
				} else if !errors.Is(err, ErrConflict) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if winners != 1 {
			t.Fatalf("round %d has %d winners", round, winners)
		}
		revision = next
	}
}

func TestTableList(t *testing.T) {
	ctx, table := natstest.Context(t), newTable(t)
	if records, err := table.List(ctx, ">"); err != nil || len(records) != 0 {
		t.Errorf("an empty table: %v, %v", records, err)
	}
	want := map[string]bool{}
	for i := range 100 {
		key := fmt.Sprintf("stripe.%d.%d", i%4, i)
		if _, err := table.Put(ctx, key, []byte(key), 0); err != nil {
			t.Fatal(err)
		}
		want[key] = i%4 == 3
	}
	if err := table.Delete(ctx, "stripe.3.99", 0); err != nil {
		t.Fatal(err)
	}
	records, err := table.List(ctx, "stripe.3.*")
	if err != nil || len(records) != 24 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	if !slices.IsSortedFunc(records, func(a, b Record) int {
		return strings.Compare(a.Key, b.Key)
	}) {
		t.Error("not sorted")
	}
	for _, r := range records {
		if !want[r.Key] || string(r.Value) != r.Key || r.Revision == 0 || r.Deleted {
			t.Errorf("got %+v", r)
		}
	}
}

type follower struct {
	mu       sync.Mutex
	values   map[string]string
	revision map[string]uint64
	synced   int
	errs     []string
}

func follow(t *testing.T, table *Table, filter string) *follower {
	t.Helper()
	f := &follower{values: map[string]string{}, revision: map[string]uint64{}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- table.Watch(ctx, filter, func(r Record) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if r.Revision < f.revision[r.Key] || r.Revision == f.revision[r.Key] && !r.Deleted {
				f.errs = append(f.errs,
					fmt.Sprintf("%s went from revision %d to %d", r.Key, f.revision[r.Key],
						r.Revision))
			}
			f.revision[r.Key] = r.Revision
			if r.Deleted {
				delete(f.values, r.Key)
			} else {
				f.values[r.Key] = string(r.Value)
			}
		}, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.synced++
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the watch ended with %v", err)
		}
		if f.synced > 1 || len(f.errs) > 0 {
			t.Errorf("synced %d times; %v", f.synced, f.errs)
		}
	})
	return f
}

func (f *follower) equals(want map[string]string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.synced == 1 && maps.Equal(f.values, want)
}

func TestWatch(t *testing.T) {
	ctx, table := natstest.Context(t), newTable(t)
	empty := follow(t, table, "nothing.*")
	waittest.Until(t, "a watch of nothing is in sync", func() bool { return empty.equals(nil) })
	want := map[string]string{}
	put := func(key, value string) {
		t.Helper()
		r, err := table.read(ctx, key)
		if err != nil && !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		if _, err := table.Put(ctx, key, []byte(value), r.Revision); err != nil {
			t.Fatal(err)
		}
		want[key] = value
	}
	for i := range 50 {
		put(fmt.Sprint("stripe.", i), "a")
	}
	if _, err := table.Put(ctx, "other.1", nil, 0); err != nil {
		t.Fatal(err)
	}
	f := follow(t, table, "stripe.*")
	waittest.Until(t, "all values came", func() bool { return f.equals(want) })
	put("stripe.7", "b")
	put("stripe.new", "c")
	if err := table.Delete(ctx, "stripe.8", 0); err != nil {
		t.Fatal(err)
	}
	delete(want, "stripe.8")
	waittest.Until(t, "the changes came", func() bool { return f.equals(want) })
}

// Connections break and the server restarts while records change. In the end the watcher has the
// stored values, and has seen deletions whose markers are gone.
func TestWatchMissesNothing(t *testing.T) {
	dir, address := t.TempDir(), proctest.FreeAddress(t)
	s := natstest.Start(t, embedded.Options{Dir: dir, Listen: address})
	dial := func() *nats.Conn { return natstest.Reconnecting(t, "nats://"+address) }
	watching, writing := dial(), dial()
	over := tableOver(t, writing)
	f := follow(t, tableOver(t, watching), ">")
	table, want := over, map[string]string{}
	change := func(round int) {
		t.Helper()
		for i := range 20 {
			key, value := fmt.Sprint("d", i), fmt.Sprint(round)
			r, err := table.read(natstest.Context(t), key)
			if err != nil && !errors.Is(err, ErrNotFound) {
				t.Fatal(err)
			}
			if (round+i)%5 == 0 {
				err = table.Delete(natstest.Context(t), key, 0)
				delete(want, key)
			} else {
				_, err = table.Put(natstest.Context(t), key, []byte(value), r.Revision)
				want[key] = value
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	change(0)
	waittest.Until(t, "the first values came", func() bool { return f.equals(want) })
	for round := 1; round <= 3; round++ {
		if err := watching.ForceReconnect(); err != nil {
			t.Fatal(err)
		}
		change(round)
		waittest.Until(t, "what changed around a reconnect came", func() bool {
			return f.equals(want)
		})
	}

	s.Shutdown()
	// The watcher misses changes, and a deletion whose marker has expired.
	quiet := natstest.Start(t, embedded.Options{Dir: dir})
	hidden := tableOver(t, natstest.Connect(t, quiet))
	table = hidden
	change(4)
	if _, ok := want["d2"]; !ok {
		t.Fatal("d2 should have a value")
	}
	stream, err := hidden.js.Stream(natstest.Context(t), table.stream)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(natstest.Context(t),
		jetstream.WithPurgeSubject(table.prefix+"d2")); err != nil {
		t.Fatal(err)
	}
	delete(want, "d2")
	quiet.Shutdown()

	natstest.Start(t, embedded.Options{Dir: dir, Listen: address})
	table = over
	waittest.Until(t, "the connections are back", func() bool {
		return watching.IsConnected() && writing.IsConnected()
	})
	waittest.Until(t, "what changed around a restart came", func() bool { return f.equals(want) })
	change(5)
	waittest.Until(t, "changes after a restart came", func() bool { return f.equals(want) })
}

func TestTombstonesExpire(t *testing.T) {
	table := newTable(t)
	if _, err := table.publish(natstest.Context(t), "a.1.1", nil, nil,
		nats.Header{headerOperation: {"DEL"}, headerTTL: {"1s"}}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the marker is gone", func() bool {
		info, err := table.js.StreamInfo(natstest.Context(t), table.stream, "")
		return err == nil && info.State.Msgs == 0
	})
	if _, err := table.Put(natstest.Context(t), "a.1.1", nil, 0); err != nil {
		t.Errorf("creating the key again: %v", err)
	}
	if err := table.Delete(natstest.Context(t), "a.1.1", 0); err != nil {
		t.Fatal(err)
	}
	m, err := table.js.Message(natstest.Context(t), table.stream,
		map[string]any{"last_by_subj": table.prefix + "a.1.1"})
	if err != nil || m.Header.Get(headerTTL) != "1h0m0s" {
		t.Errorf("a marker is stored with %v, %v", m.Header, err)
	}
}
