package core

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/record"
)

func TestAClaimListsRunningJobs(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	running := make([]record.Run, 20_000)
	for i := range running {
		running[i] = record.Run{Seq: uint64(i + 1), Holder: "before"}
	}
	left := record.Handover{Running: slices.Clone(running)}
	left.Fit(c.most)
	c.Handle(Watched{TablePartitions, "api.0", Record{Exists: true, Revision: 8, Stored: originWall,
		Value: record.Encode(record.Owner{V: record.Version, Owner: "before", Released: true,
			Handover: left})}},
		origin)
	now := origin
	var claim record.Owner
	for ; claim.V == 0; now = now.Add(20 * ms) {
		c.advance(now)
		for _, w := range c.out.puts {
			if w.Why == whyTake {
				if err := record.Decode(w.value, &claim); err != nil {
					t.Fatal(err)
				}
			}
		}
		answerPuts(c, now)
	}
	if !slices.Equal(claim.Running, running) {
		t.Errorf("it lists %d of %d", len(claim.Running), len(running))
	}
}

func TestAReleaseThatCannotBeWrittenIsTriedLessAndLessOften(t *testing.T) {
	c := coreBench(t, leaky("api", "10/s"))
	now := c.run(origin, 2*time.Second, nil)
	c.Handle(Stopped{}, now)
	releases := 0
	for end := now.Add(time.Minute); now < end; now = now.Add(20 * ms) {
		c.advance(now)
		for turn := 0; turn < 1000 && len(c.out.puts)+len(c.out.reads) > 0; turn++ {
			puts, reads := c.out.puts, c.out.reads
			c.out.puts, c.out.reads = nil, nil
			for _, w := range puts {
				if w.Why == whyRelease {
					releases++
					c.Handle(Written{w, 0}, now)
					continue
				}
				benchRevision++
				c.Handle(Written{w, benchRevision}, now)
			}
			for _, r := range reads {
				s := c.shares.all["api.0"]
				c.Handle(Found{r,
					Record{Exists: true, Value: record.Encode(s.record), Revision: s.revision,
						Stored: originWall}}, now)
			}
		}
	}
	if releases < 5 || releases > 20 {
		t.Errorf("in a minute it was tried %d times", releases)
	}
}
