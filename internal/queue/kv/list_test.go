package kv

import (
	"errors"
	"fmt"
	"testing"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
)

// A takeover must not read thousands of records one by one.
func TestAListAsksByPages(t *testing.T) {
	ctx, table := natstest.Context(t), newTable(t)
	const all = 3000
	key := func(i int) string { return fmt.Sprintf("stripe.0.%d", i) }
	for i := range all {
		if err := table.js.NATS.Publish(table.prefix+key(i), []byte(key(i))); err != nil {
			t.Fatal(err)
		}
	}
	waittest.Until(t, "all are stored", func() bool {
		names, err := table.Keys(ctx, "stripe.0.*")
		return err == nil && len(names) == all
	})
	for i := range 10 {
		if err := table.Delete(ctx, key(i*100), 0); err != nil {
			t.Fatal(err)
		}
	}
	// It takes 8 requests, or more after slow answers.
	waittest.Until(t, "a list is told for few questions", func() bool {
		before := table.js.NATS.Stats().OutMsgs
		records, err := table.List(ctx, "stripe.0.*")
		if errors.Is(err, jsapi.ErrUnavailable) {
			return false
		}
		if err != nil || len(records) != all-10 {
			t.Fatalf("%d records, want %d; %v", len(records), all-10, err)
		}
		for _, r := range records {
			if string(r.Value) != r.Key || r.Revision == 0 || r.Deleted || r.Stored.IsZero() {
				t.Fatalf("got %+v", r)
			}
		}
		return table.js.NATS.Stats().OutMsgs-before < all/2
	})
}

func BenchmarkList(b *testing.B) {
	table := newTable(b)
	const all = 50_000
	for i := range all {
		subject := fmt.Sprintf("%sstripe.0.%d", table.prefix, i)
		if err := table.js.NATS.Publish(subject, []byte(`{"v":1,"attempts":1}`)); err != nil {
			b.Fatal(err)
		}
	}
	waittest.Until(b, "all are stored", func() bool {
		names, err := table.Keys(natstest.Context(b), "stripe.0.*")
		return err == nil && len(names) == all
	})
	for b.Loop() {
		records, err := table.List(natstest.Context(b), "stripe.0.*")
		if err != nil || len(records) != all {
			b.Fatalf("%d records, %v", len(records), err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/all, "µs/record")
}
