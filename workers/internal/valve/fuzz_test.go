package valve

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/pace/pacetest"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

var checkpointSeed = record.Encode(record.Checkpoint{V: record.Version, Owner: "old", Epoch: 7,
	Handover: record.Handover{
		Rate: "100/s", Total: "5/s", Crashed: 5, Partial: true,
		Clocks: []record.Clock{{Due: 5},
			{Key: "a", Due: 1_000_000, Tat: 2_000_000, Cool: 500_000, Throttles: 3, Rate: "7/s"}},
		Running: []record.Run{{Seq: 1, Holder: "old"}, {Seq: 2, Holder: "other"}},
		Done:    []uint64{3},
	}})

func FuzzRecords(f *testing.F) {
	for _, seed := range []any{
		record.Lease{V: record.Version, Nonce: 1, Lease: 5000, Host: "h", PID: 1,
			Policies: []string{"api"},
			Leaving:  true},
		record.Owner{V: record.Version, Owner: "me", Released: true, After: 3,
			Handover: record.Handover{Done: []uint64{1}}},
		record.Attempt{V: record.Version, Attempts: 2, DueIn: 5, LastError: "no", Crashes: 1},
		record.Attempt{V: record.Version + 1},
	} {
		f.Add(record.Encode(seed))
	}
	f.Add(checkpointSeed)
	f.Add([]byte(`{"V":1,"v":2,"clocks":[null],"running":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, r := range []any{&record.Lease{}, &record.Owner{}, &record.Checkpoint{},
			&record.Attempt{}} {
			err := record.Decode(data, r)
			v := reflect.ValueOf(r).Elem().FieldByName("V").Int()
			switch {
			case err != nil && v != 0 && errors.Is(err, record.ErrVersion):
				t.Fatalf("%s is of another version, and yet read as %+v", data, r)
			case err != nil:
				continue
			case v != record.Version:
				t.Fatalf("%s is read as %+v", data, r)
			}
			written := record.Encode(r)
			again := reflect.New(reflect.TypeOf(r).Elem()).Interface()
			if err := record.Decode(written, again); err != nil ||
				!bytes.Equal(record.Encode(again), written) {
				t.Fatalf("%s is read as %s, %v", written, record.Encode(again), err)
			}
		}
	})
}

func FuzzInheritance(f *testing.F) {
	f.Add(checkpointSeed, true, uint32(0))
	f.Add(checkpointSeed, false, uint32(1000))
	f.Add(
		[]byte(
			`{"v":1,"rate":"1/w","clocks":[{"k":"a","d":-9223372036854775808,"t":9223372036854775807}]}`), false, uint32(1))
	f.Add(
		[]byte(
			`{"v":1,"clocks":[{"k":"a","f":9223372036854775807,"p":9223372036854775807,"s":1e308},{"k":"b","f":1,"s":-1}]}`), true, uint32(1))
	f.Fuzz(func(t *testing.T, data []byte, crashed bool, elapsed uint32) {
		var c record.Checkpoint
		if record.Decode(data, &c) != nil {
			return
		}
		b := unownedValve(t,
			leaky("api", "100/s")).inheritFrom(inheritance.State{Crashed: crashed, Owner: "old",
			Elapsed: time.Duration(elapsed) * time.Microsecond, Handover: c.Handover})
		for range 150 {
			b.arrive("a")
		}
		starts := b.until(1200*ms, b.done)
		if why := pacetest.Exceeds(starts, 100, 1); why != "" {
			t.Fatalf("%s: %s", data, why)
		}
		h := b.p.Handover(b.now)
		h.Fit(record.MostBytes)
		written := record.Encode(record.Checkpoint{V: record.Version, Handover: h})
		if err := record.Decode(written, &c); err != nil ||
			len(written) > record.MostBytes+len(data)*6 {
			t.Fatalf("%d bytes are handed on, %v", len(written), err)
		}
	})
}
