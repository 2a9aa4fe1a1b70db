package kv

import (
	"sync"
	"testing"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

func remake(t *testing.T, table *Table) {
	t.Helper()
	if err := table.js.DeleteStream(natstest.Context(t), table.stream); err != nil {
		t.Fatal(err)
	}
	if err := table.Ensure(natstest.Context(t), 1, 0); err != nil {
		t.Fatal(err)
	}
}

func TestAWatchOutlivesItsTable(t *testing.T) {
	ctx, table := natstest.Context(t), newTable(t)
	for _, key := range []string{"stays", "goes"} {
		for range 5 {
			if err := table.Set(ctx, key, []byte("first"), 0); err != nil {
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
	remake(t, table)
	if err := table.Set(ctx, "stays", []byte("second"), 0); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the watch knows what is there now", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(now) == 1 && now["stays"] == "second"
	})
}

// Each process would choose another first revision.
func TestTablesCreatedConcurrentlyAreEqual(t *testing.T) {
	table := newTable(t)
	for range 5 {
		if err := table.js.DeleteStream(natstest.Context(t), table.stream); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := table.Ensure(natstest.Context(t), 1, 0); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}
