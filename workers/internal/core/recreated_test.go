package core

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/record"
)

// A drainer that is informed late of a policy's deletion hands over state of the old stream when
// the new one exists.
func TestAHandoverOfAnotherStreamIsIgnored(t *testing.T) {
	c := coreBench(t, leaky("api", "1/s"))
	created := time.Unix(1_700_000_000, 0)
	for _, stream := range []int64{created.UnixNano(), created.Add(-time.Hour).UnixNano(), 0} {
		s := &share{policy: "api",
			before: ownership{exists: true, revision: 7, stored: created.Add(time.Second),
				record: record.Owner{V: record.Version, Owner: "old", Released: true,
					Handover: record.Handover{Stream: stream, Done: []uint64{1},
						Running: []record.Run{{Seq: 2, Holder: "old"}}}}}}
		in := c.inheritance(s, Opened{Created: created, Taken: created.Add(time.Minute)}, origin)
		want := stream != created.Add(-time.Hour).UnixNano()
		if got := len(in.Handover.Done) == 1 && len(in.Handover.Running) == 1; got != want {
			t.Errorf("stream %d: heeded %t, want %t: %+v", stream, got, want, in.Handover)
		}
	}
}
