package queue

import (
	"fmt"
	"testing"
)

// Records by the thousand are read by pages: a takeover must not ask once for each.
func TestAListAsksByPages(t *testing.T) {
	b := newBroker(t)
	ctx, table := testContext(t), b.Attempts()
	const all = 3000
	key := func(i int) string { return fmt.Sprintf("stripe.0.%d", i) }
	for i := range all {
		if err := b.nc.Publish(table.prefix+key(i), []byte(key(i))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 { // beside the others, whose marker is found as well
		if err := table.Delete(ctx, key(i*100), 0); err != nil {
			t.Fatal(err)
		}
	}
	before := b.nc.Stats().OutMsgs
	records, err := table.List(ctx, "stripe.0.*")
	if err != nil || len(records) != all-10 {
		t.Fatalf("%d records, want %d; %v", len(records), all-10, err)
	}
	for _, r := range records {
		if string(r.Value) != r.Key || r.Revision == 0 || r.Deleted || r.Stored.IsZero() {
			t.Fatalf("got %+v", r)
		}
	}
	// It takes 8 questions, unless some are not answered in time.
	if asked := b.nc.Stats().OutMsgs - before; asked > all/2 {
		t.Errorf("asked %d times for %d records", asked, all)
	}
}

func BenchmarkList(b *testing.B) {
	broker := newBroker(b)
	table := broker.Attempts()
	const all = 50_000
	for i := range all {
		subject := fmt.Sprintf("%sstripe.0.%d", table.prefix, i)
		if err := broker.nc.Publish(subject, []byte(`{"v":1,"attempts":1}`)); err != nil {
			b.Fatal(err)
		}
	}
	eventually(b, "all are stored", func() bool {
		names, err := table.keys(testContext(b), "stripe.0.*")
		return err == nil && len(names) == all
	})
	for b.Loop() {
		records, err := table.List(testContext(b), "stripe.0.*")
		if err != nil || len(records) != all {
			b.Fatalf("%d records, %v", len(records), err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/all, "µs/record")
}
