package core

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func FuzzValveQuestion(f *testing.F) {
	for _, q := range []job.Question{
		{Op: job.OpExpect, Jobs: []uint64{1, 2, 99}}, {Op: job.OpRoom, Key: "a"},
		{Op: job.OpBuckets, Limit: 5, Offset: -1},
		{Op: job.OpBuckets, Limit: math.MaxInt, Offset: math.MaxInt}, {Op: job.OpBucket, Key: "b"},
		{Op: job.OpJob, Jobs: []uint64{2}}, {Op: job.OpJobs, Jobs: []uint64{2, 99, 1}},
		{Op: job.OpCancel, Jobs: []uint64{3}}, {Op: job.OpPurge, Key: "a"}, {Op: "dance"},
		{Op: job.OpOutcome,
			Outcome: json.RawMessage(`{"seq":1,"kind":"failed","attempts":-5,"retry_after":-1}`)},
		{Op: job.OpOutcome,
			Outcome: json.RawMessage(
				`{"seq":1,"kind":"throttled","retry_after":9223372036854775807}`)},
		{Op: job.OpOutcome,
			Outcome: json.RawMessage(`{"seq":9,"kind":"permanent","holder":"old"}`)},
	} {
		data, err := json.Marshal(q)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var q job.Question
		if json.Unmarshal(data, &q) != nil {
			return
		}
		c := coreBench(t, leaky("api", "100/s"))
		part, now := takeOver(c, Opened{Checkpoint: record.Checkpoint{V: record.Version,
			Owner: "old", Epoch: 1,
			Handover: record.Handover{Running: []record.Run{{Seq: 1, Holder: "old"},
				{Seq: 9, Holder: "old"}}}}})
		var jobs []job.Arrived
		for seq := uint64(1); seq < 5; seq++ {
			jobs = append(jobs,
				job.Arrived{Seq: seq, Key: "a", Cost: 1, Stored: originWall, Body: []byte{}})
		}
		c.Handle(Arrived{Part: part.Partition, Epoch: part.Epoch, Jobs: jobs}, now)

		answers := 0
		c.Handle(Asked{part.Partition, q, func(a job.Answer) {
			answers++
			if _, err := json.Marshal(a); err != nil {
				t.Fatalf("%s: the answer %+v: %v", data, a, err)
			}
			if len(a.Starts) > len(q.Jobs) || len(a.Buckets) > 1 || a.Removed > 4 || a.DelayMS < 0 {
				t.Fatalf("%s is answered %+v", data, a)
			}
		}}, now)
		c.Ponder(func() pace.Instant { return now.Add(15 * ms) })
		if answers != 1 {
			t.Fatalf("%s gets %d answers", data, answers)
		}
		c.run(now, second, nil)
	})
}

func FuzzClaim(f *testing.F) {
	for _, c := range []string{
		`{"v":1,"op":"claim","want":"permit","id":"x","n":1,"key":"a","partitions":1,"wait_ms":9}`,
		`{"v":1,"op":"claim","id":"x","key":"a","partitions":1,"age_ms":-1,"cost":9223372036854775807}`,
		`{"v":1,"op":"claim","want":"job","slots":-1,"except":["a",""]}`,
		`{"v":1,"op":"progress","id":"x","key":"a","retry_after_ms":9223372036854775807}`,
		`{"v":1,"op":"answered","id":"","n":-9,"key":"b"}`,
		`{"v":1,"op":"settle","id":"x","n":3,"key":"a","status":"unreached","used":{"":-1}}`,
		`{"v":1,"op":"settle","id":"x","key":"a","status":"returned","again_ms":-1}`,
	} {
		f.Add([]byte(c))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		claim, err := job.ReadClaim(data)
		if err != nil {
			return
		}
		p := leaky("api", "100/s")
		p.Concurrency = 3
		c := coreBench(t, p)
		part, now := takeOver(c, Opened{})
		answers := 0
		hear := func(op string) {
			claim.N++
			said := claim
			said.Op = op
			c.Handle(Heard{part.Partition, said, func(a job.Turn) {
				answers++
				if _, err := json.Marshal(a); err != nil {
					t.Fatalf("%s: the answer %+v: %v", data, a, err)
				}
			}}, now)
		}
		for _, op := range []string{claim.Op, job.OpClaim, job.OpProgress, claim.Op, job.OpSettle,
			job.OpAnswered, job.OpClaim, claim.Op} {
			if hear(op); answers > 16 {
				t.Fatalf("%s gets %d answers", data, answers)
			}
			now = c.run(now, 50*ms, nil)
		}
		c.run(now, second, nil)
	})
}
