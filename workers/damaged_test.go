package workers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/kv"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// A damaged record once stopped its partition until an operator deleted it, and the log and /readyz
// did not name it.
func TestDamagedRecordsAreSetAside(t *testing.T) {
	t.Parallel()
	const garbage = `{"v":1,"owner":"d4`
	p := leaky("api", "1000/s")
	p.Partitions = 1
	b := newBench(t, p)
	b.publish("api", "a", 0, 10)
	tables := b.broker.Tables()
	damage := map[string]*kv.Table{"api.0": tables.Partitions, "api.0.clocks": tables.Partitions,
		"api.0.7": tables.Attempts, "d-of-old": tables.Drainers}
	for key, table := range damage {
		if err := table.Set(t.Context(), key, []byte(garbage), 0); err != nil {
			t.Fatal(err)
		}
	}
	var ran seen
	told := &waittest.Log{}
	d, _ := b.drainer(Options{Lease: time.Second, Sink: on(jet.EventRecordDamaged,
		func(e queue.Event) { fmt.Fprintln(told, e.Name) })},
		map[string]Handler{"api": ran.handle})
	b.empty("api")
	for key, table := range damage {
		name := "damaged." + table.Bucket() + "." + key
		b.until(name+" is kept", func() bool {
			r, err := tables.Partitions.Read(t.Context(), name)
			return err == nil && string(r.Value) == garbage
		})
		b.until(key+" is told of", func() bool {
			return strings.Contains(strings.Join(d.Notes(), "\n"), key+" in KV "+table.Bucket())
		})
	}
	if told.Count("PENSTOCK_PARTITIONS\n") != 2 || told.Count("PENSTOCK_ATTEMPTS\n") != 1 ||
		told.Count("PENSTOCK_DRAINERS\n") != 1 {
		t.Errorf("the observer heard of\n%s", told)
	}
	if r := b.owner("api.0"); r.V != record.Version || r.Owner == "" {
		t.Errorf("the record is %+v", r)
	}
}

func TestARecordOfANewerFormatStopsItsPartition(t *testing.T) {
	t.Parallel()
	for key, bucket := range map[string]string{"api.0": "PARTITIONS", "api.0.clocks": "PARTITIONS",
		"api.0.7": "ATTEMPTS"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			p := leaky("api", "1000/s")
			p.Partitions = 1
			b := newBench(t, p)
			table := b.broker.Tables().Partitions
			if bucket == "ATTEMPTS" {
				table = b.broker.Tables().Attempts
			}
			if err := table.Set(t.Context(), key, []byte(`{"v":2,"at":"noon"}`), 0); err != nil {
				t.Fatal(err)
			}
			b.publish("api", "a", 0, 10)
			var ran seen
			told := &waittest.Log{}
			d, _ := b.drainer(Options{Lease: time.Second, Sink: on(jet.EventRecordsNewer,
				func(e queue.Event) { fmt.Fprintln(told, "newer:", e.Value) })},
				map[string]Handler{"api": ran.handle})
			b.until("it is named", func() bool {
				return strings.Contains(strings.Join(d.Notes(), "\n"),
					key+" in KV PENSTOCK_"+bucket+" has a newer format")
			})
			b.until("it is counted", func() bool { return told.Count("newer: 1") > 0 })
			if n := len(ran.all()); n > 0 {
				t.Errorf("%d jobs ran", n)
			}
			if err := table.Delete(t.Context(), key, 0); err != nil {
				t.Fatal(err)
			}
			b.empty("api")
			b.until("nothing is named any more", func() bool {
				return len(d.Notes()) == 0 && told.Count("newer: 0") > 0
			})
		})
	}
}
