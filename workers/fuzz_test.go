package workers

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue"
)

var checkpointSeed = encode(checkpoint{V: version, Owner: "old", Epoch: 7, handover: handover{
	Rate: "100/s", Total: "5/s", Crashed: 5, Partial: true,
	Clocks:  []clockRecord{{Due: 5}, {Key: "a", Due: 1_000_000, Tat: 2_000_000, Cool: 500_000, Throttles: 3, Rate: "7/s"}},
	Running: []runRecord{{1, "old"}, {2, "other"}}, Done: []uint64{3},
}})

// Records are read as they were written, and those of another format are not read at all.
func FuzzRecords(f *testing.F) {
	for _, seed := range []any{
		leaseRecord{V: version, Nonce: 1, Lease: 5000, Host: "h", PID: 1, Policies: []string{"api"}, Leaving: true},
		ownerRecord{V: version, Owner: "me", Nonce: 1, Released: true, After: 3, handover: handover{Done: []uint64{1}}},
		attemptRecord{V: version, Attempts: 2, DueIn: 5, LastError: "no", Crashes: 1},
		attemptRecord{V: version + 1},
	} {
		f.Add(encode(seed))
	}
	f.Add(checkpointSeed)
	f.Add([]byte(`{"V":1,"v":2,"clocks":[null],"running":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, r := range []any{&leaseRecord{}, &ownerRecord{}, &checkpoint{}, &attemptRecord{}} {
			err := decode(data, r)
			v := reflect.ValueOf(r).Elem().FieldByName("V").Int()
			switch {
			case err != nil && v != 0 && errors.Is(err, errVersion):
				t.Fatalf("%s is of another version, and yet read as %+v", data, r)
			case err != nil:
				continue
			case v != version:
				t.Fatalf("%s is read as %+v", data, r)
			}
			written := encode(r)
			again := reflect.New(reflect.TypeOf(r).Elem()).Interface()
			if err := decode(written, again); err != nil || !bytes.Equal(encode(again), written) {
				t.Fatalf("%s is read as %s, %v", written, encode(again), err)
			}
		}
	})
}

// Whatever a checkpoint says, its successor keeps to the rate, and what it hands on can be read.
func FuzzInheritance(f *testing.F) {
	f.Add(checkpointSeed, true, uint32(0))
	f.Add(checkpointSeed, false, uint32(1000))
	f.Add([]byte(`{"v":1,"rate":"1/w","clocks":[{"k":"a","d":-9223372036854775808,"t":9223372036854775807}]}`), false, uint32(1))
	f.Add([]byte(`{"v":1,"clocks":[{"k":"a","f":9223372036854775807,"p":9223372036854775807,"s":1e308},{"k":"b","f":1,"s":-1}]}`), true, uint32(1))
	f.Fuzz(func(t *testing.T, data []byte, crashed bool, elapsed uint32) {
		var c checkpoint
		if decode(data, &c) != nil {
			return
		}
		b := unownedValve(t, leaky("api", "100/s")).inheritFrom(inheritance{crashed: crashed, owner: "old",
			elapsed: time.Duration(elapsed) * time.Microsecond, handover: c.handover})
		for range 150 {
			b.arrive("a")
		}
		starts := b.until(1200*ms, b.done)
		if why := exceeds(starts, 100, 1); why != "" {
			t.Fatalf("%s: %s", data, why)
		}
		h := b.v.handover(b.p, b.now, 0)
		h.fit(mostRecordBytes)
		written := encode(checkpoint{V: version, handover: h})
		if err := decode(written, &c); err != nil || len(written) > mostRecordBytes+len(data)*6 {
			t.Fatalf("%d bytes are handed on, %v", len(written), err)
		}
	})
}

// Every question to a valve gets one answer, which can be written and is bounded by what was asked.
func FuzzValveQuestion(f *testing.F) {
	for _, q := range []queue.ValveQuestion{
		{Op: queue.OpExpect, Jobs: []uint64{1, 2, 99}}, {Op: queue.OpRoom, Key: "a"}, {Op: queue.OpBuckets, Limit: 5, Offset: -1},
		{Op: queue.OpBuckets, Limit: math.MaxInt, Offset: math.MaxInt}, {Op: queue.OpBucket, Key: "b"}, {Op: queue.OpJob, Jobs: []uint64{2}},
		{Op: queue.OpCancel, Jobs: []uint64{3}}, {Op: queue.OpPurge, Key: "a"}, {Op: "dance"},
		{Op: queue.OpOutcome, Outcome: json.RawMessage(`{"seq":1,"kind":"failed","attempts":-5,"retry_after":-1}`)},
		{Op: queue.OpOutcome, Outcome: json.RawMessage(`{"seq":1,"kind":"throttled","retry_after":9223372036854775807}`)},
		{Op: queue.OpOutcome, Outcome: json.RawMessage(`{"seq":9,"kind":"permanent","holder":"old"}`)},
	} {
		data, err := json.Marshal(q)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var q queue.ValveQuestion
		if json.Unmarshal(data, &q) != nil {
			return
		}
		p := leaky("api", "100/s")
		p.Partitions = 1
		c := coreBench(t, p)
		part, now := takeOver(c, opened{checkpoint: checkpoint{V: version, Owner: "old", Epoch: 1,
			handover: handover{Running: []runRecord{{1, "old"}, {9, "old"}}}}})
		var jobs []queue.Arrived
		for seq := uint64(1); seq < 5; seq++ {
			jobs = append(jobs, queue.Arrived{Seq: seq, Key: "a", Cost: 1, Stored: originWall, Body: []byte{}})
		}
		c.arrived(part, part.epoch, jobs, now)

		d, answers := &Drainer{core: c}, 0
		d.answer(part, q, func(a queue.ValveAnswer) {
			answers++
			if _, err := json.Marshal(a); err != nil {
				t.Fatalf("%s: the answer %+v: %v", data, a, err)
			}
			if len(a.Starts) > len(q.Jobs) || len(a.Buckets) > 1 || a.Removed > 4 || a.DelayMS < 0 {
				t.Fatalf("%s is answered %+v", data, a)
			}
		}, now)
		d.ponder(func() instant { return now.add(askPatience) })
		if answers != 1 {
			t.Fatalf("%s gets %d answers", data, answers)
		}
		c.run(now, second, nil) // an outcome that was reported has its effect
	})
}

// What a worker elsewhere says is an outcome within bounds, or refused; and a job comes to it as it was sent.
func FuzzWorkerMessages(f *testing.F) {
	for _, status := range []string{statusDone, statusFail, statusPermanent, statusRetryAfter, statusLate, statusReturned, statusGo, "maybe"} {
		f.Add(status, "1500", "an error\r\nof two lines", []byte("body"))
	}
	f.Add(statusRetryAfter, "-9223372036854775808", "\xff", []byte{})
	f.Add(statusFail, "true", "down", []byte{})
	f.Fuzz(func(t *testing.T, status, number, text string, body []byte) {
		m := message("to", status)
		for _, name := range []string{headerRetryAfter, headerAttempt, headerTimeout, headerUnavailable} {
			m.Header[name] = []string{number}
		}
		m.Header[headerError], m.Header[headerJob], m.Header["Own"] = []string{text}, []string{text}, []string{text}
		m.Header[headerV], m.Header[headerAccepted] = []string{protocolVersion}, []string{"2030-01-01T00:00:00Z"}
		m.Data = body

		if o, err := readOutcome(7, m); err == nil {
			if o.RetryAfter < 0 || o.RetryAfter > mostRetryAfter || len(o.Error) > 1100 {
				t.Fatalf("%q: outcome %+v", status, o)
			}
			o.Error = oneLine(o.Error)
			again, err := readOutcome(7, outcomeMessage("to", o))
			if o.Error == "" {
				again.Error = ""
			}
			if err != nil || again != o {
				t.Fatalf("outcome %+v is read as %+v, %v", o, again, err)
			}
		}
		job, timeout, err := readJob(m)
		if err != nil {
			return
		}
		again, sameTimeout, err := readJob(jobMessage("to", "reply", job, timeout))
		if err != nil || timeout <= 0 || sameTimeout != timeout {
			t.Fatalf("time-out %v is read as %v, %v", timeout, sameTimeout, err)
		}
		if job.Header == nil {
			job.Header = nats.Header{}
		}
		job.Header[headerIdempotent] = []string{job.Idempotency}
		if !reflect.DeepEqual(again, job) {
			t.Fatalf("job %+v\nis read as %+v", job, again)
		}
	})
}
