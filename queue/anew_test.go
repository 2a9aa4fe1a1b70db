package queue

import (
	"errors"
	"sync"
	"testing"
)

// remake deletes a table's stream, as an operator may, and lets Setup make it again.
func remake(t *testing.T, b *Broker, table *Table) {
	t.Helper()
	if err := b.js.DeleteStream(testContext(t), table.stream); err != nil {
		t.Fatal(err)
	}
	if err := b.Setup(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

// Who compares revisions, and epochs made of them, need not know that a table was made anew.
func TestRevisionsGoOnInATableThatWasMadeAnew(t *testing.T) {
	b := newBroker(t)
	ctx, table := testContext(t), b.Partitions()
	if err := b.Apply(ctx, paced("api", 10, 1)); err != nil {
		t.Fatal(err)
	}
	var first uint64
	for range 10 {
		var err error
		if first, err = table.Put(ctx, "api.0", []byte("a"), first); err != nil {
			t.Fatal(err)
		}
	}
	old, err := b.OpenBacklog(ctx, BacklogOptions{Policy: "api", Partitions: 1, Epoch: first})
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Close(ctx); err != nil {
		t.Fatal(err)
	}
	remake(t, b, table)
	if _, err := table.Put(ctx, "api.0", []byte("b"), first); !errors.Is(err, ErrConflict) {
		t.Errorf("over a revision of the former table: %v, want ErrConflict", err)
	}
	second, err := table.Put(ctx, "api.0", []byte("b"), 0)
	if err != nil || second <= first {
		t.Errorf("revision %d after %d, %v", second, first, err)
	}
	l, err := b.OpenBacklog(ctx, BacklogOptions{Policy: "api", Partitions: 1, Epoch: second})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(ctx); err != nil {
		t.Error(err)
	}
}

func TestAWatchOutlivesItsTable(t *testing.T) {
	b := newBroker(t)
	ctx, table := testContext(t), b.policies
	for _, key := range []string{"stays", "goes"} {
		for range 5 {
			if err := table.Set(ctx, key, []byte("first")); err != nil {
				t.Fatal(err)
			}
		}
	}
	var mu sync.Mutex
	now := map[string]string{}
	watching, synced := make(chan error, 1), make(chan struct{})
	go func() {
		watching <- table.Watch(ctx, ">", func(r Record) {
			mu.Lock()
			defer mu.Unlock()
			if now[r.Key] = string(r.Value); r.Deleted {
				delete(now, r.Key)
			}
		}, func() { close(synced) })
	}()
	<-synced
	remake(t, b, table)
	if err := table.Set(ctx, "stays", []byte("second")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the watch knows what is there now", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(now) == 1 && now["stays"] == "second"
	})
}

// Any number of processes make the tables at once, each with another first revision in mind.
func TestSetupsAtTheSameTimeMakeTheSameTables(t *testing.T) {
	b := newBroker(t)
	for range 5 {
		if err := b.js.DeleteStream(testContext(t), b.Drainers().stream); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := b.Setup(testContext(t)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}
