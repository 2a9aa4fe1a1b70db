package core

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/penstock-mq/penstock/queue/job"
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
