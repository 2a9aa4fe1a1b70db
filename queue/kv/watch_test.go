package kv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/penstock-mq/penstock/internal/natstest"
	"github.com/penstock-mq/penstock/queue/internal/jsapi"
)

// What is written while a watch reads all values for the first time may come as it was or as it is,
// and is there in any case.
func TestAWatchIsInSyncWithWhatChangesMeanwhile(t *testing.T) {
	const keys, watches = 500, 40
	table := newTable(t)
	for i := range keys {
		if err := table.Set(natstest.Context(t), fmt.Sprint("k.", i), []byte("a"), 0); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(natstest.Context(t))
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := w; ctx.Err() == nil; i += 4 {
				if err := table.Set(ctx, fmt.Sprint("k.", i%keys), []byte("b"), 0); err != nil &&
					ctx.Err() == nil && !errors.Is(err, jsapi.ErrUnavailable) {
					t.Error(err)
				}
			}
		})
	}
	for n := range watches {
		found := map[string]bool{}
		watching, inSync := context.WithCancelCause(ctx)
		whole := errors.New("in sync")
		err := table.Watch(watching, "k.*", func(r Record) { found[r.Key] = true }, func() {
			inSync(whole)
		})
		if err != nil || !errors.Is(context.Cause(watching), whole) {
			t.Fatalf("watch %d: %v, %v", n, err, context.Cause(watching))
		}
		if len(found) < keys {
			t.Errorf("watch %d: in sync with %d keys of %d", n, len(found), keys)
		}
	}
	stop()
	writers.Wait()
}
