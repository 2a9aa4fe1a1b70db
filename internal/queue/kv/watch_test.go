package kv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
)

func TestAWatchMissesNoChangeWhileItSyncs(t *testing.T) {
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

// A table may see any number of keys over time.
func TestAWatchForgetsKeysThatWereDeletedLongAgo(t *testing.T) {
	const each = time.Minute
	reported := 0
	w := &watch{known: map[string]uint64{}, changed: func(Record) { reported++ }}
	at, revision := time.Now(), uint64(0)
	report := func(key string, deleted bool) {
		at, revision = at.Add(each), revision+1
		w.report(Record{Key: key, Revision: revision, Stored: at, Deleted: deleted})
	}
	report("stays", false)
	report("back", true)
	for i := range 1000 {
		report(fmt.Sprint(i), false)
		report(fmt.Sprint(i), true)
		report("back", false)
	}
	if most := int(tombstoneTTL/each) + 3; len(w.known) > most || len(w.deleted) > most {
		t.Errorf("%d keys are known, %d of them deleted; want at most %d", len(w.known),
			len(w.deleted), most)
	}
	if w.known["stays"] != 1 || w.known["back"] != revision || reported != int(revision) {
		t.Errorf("known are %v after %d of %d reports", w.known, reported, revision)
	}
	last := fmt.Sprint(999)
	w.report(Record{Key: last, Revision: revision - 2, Stored: at})
	if reported != int(revision) {
		t.Error("an older value came after the deletion")
	}
}
