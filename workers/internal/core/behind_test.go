package core

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/record"
)

// A server once claimed, 8 s after it had been cut off, to lead a stream that ended at 227. The
// former owner had seen 408, and 30 finished jobs ran again.
func TestAStaleLeaderIsNotBelieved(t *testing.T) {
	created := originWall.Add(-time.Hour)
	for name, prepare := range map[string]func(c *Core, part *partition, found *Opened){
		"by this owner": func(c *Core, part *partition, _ *Opened) {
			c.Handle(Opened{Opening: Opening{part.Partition, part.Epoch, false}, Last: 408,
				Created: created}, origin)
		},
		"by the former owner": func(c *Core, part *partition, _ *Opened) {
			part.fresh = true
			c.shares.all["api.0"].before.record.Handover = record.Handover{Last: 408,
				Stream: created.UnixNano()}
		},
		"by the former owner, which crashed": func(_ *Core, part *partition, found *Opened) {
			part.fresh = true
			found.Checkpoint.Handover = record.Handover{Last: 408, Stream: created.UnixNano()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, part, _ := ownerBench(t)
			found := Opened{Opening: Opening{Part: part.Partition}, Created: created}
			prepare(c, part, &found)
			expect := func(last uint64, want bool, why string) {
				t.Helper()
				found.Last = last
				if c.Behind(found) != want {
					t.Errorf("last sequence %d, %s: behind is not %v", last, why, want)
				}
			}
			expect(227, true, "408 was seen")
			expect(408, false, "408 was seen")
			found.Created = created.Add(time.Minute)
			expect(1, false, "the stream was made anew")
			found.Created = created
			c.shares.all["api.0"].failures = mostFailures - 1
			expect(227, false, "and it stays so")
		})
	}
}
