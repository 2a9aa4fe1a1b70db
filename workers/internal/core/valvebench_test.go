package core

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

const ms, second, aLease = time.Millisecond, time.Second, 3 * time.Second

const origin = pace.Instant(time.Hour)

var originWall = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func atOnce(r valve.Run) func() (fence, now pace.Instant) {
	return func() (fence, now pace.Instant) { return pace.Never, r.Due }
}

func (c *Core) advance(now pace.Instant) {
	c.Decide(now)
	c.Checkpoint(now)
}

func coreBench(t testing.TB, policies ...policy.Policy) *Core {
	t.Helper()
	c := New(Options{Name: "me", Lease: simulatedLease, Random: func() float64 { return 0.5 }})
	c.Handle(Connected{Up: true}, origin)
	c.synced = true
	setPolicies(c, origin, policies...)
	c.advance(origin)
	answerPuts(c, origin)
	return c
}

func setPolicies(c *Core, now pace.Instant, policies ...policy.Policy) {
	var all []QueuePolicy
	for _, p := range policies {
		all = append(all, QueuePolicy{Policy: p.WithDefaults(), Own: true, Local: true})
	}
	c.setAll(now, all...)
}

// setAll replaces all policies: as a drainer does, it passes on the changes.
func (c *Core) setAll(now pace.Instant, policies ...QueuePolicy) {
	changes := configured(policies...)
	for name, before := range c.policies {
		p := changes[name]
		switch {
		case before.shared:
		case p == nil:
			changes[name] = nil
		case reflect.DeepEqual(p, before):
			delete(changes, name)
		}
	}
	c.Handle(changes, now)
}

func configured(policies ...QueuePolicy) Configured {
	all := Configured{}
	for _, p := range policies {
		all[p.Name] = &p
	}
	return all
}

func ownedBefore(c *Core, r record.Owner, revision uint64) {
	c.Handle(Watched{TablePartitions, "api.0",
		Record{Exists: true, Value: record.Encode(r), Revision: revision, Stored: originWall}},
		origin)
}

var benchRevision uint64 = 1000

// answerPuts lets all writes of a core succeed, also by its watch, and returns their keys.
func answerPuts(c *Core, now pace.Instant) (written []string) {
	for len(c.out.puts) > 0 {
		puts := c.out.puts
		c.out.puts = nil
		for _, p := range puts {
			benchRevision++
			written = append(written, p.Key)
			c.Handle(Written{p, benchRevision}, now)
			if !strings.HasSuffix(p.Key, record.CheckpointSuffix) {
				c.Handle(Watched{p.Table, p.Key,
					Record{Exists: true, Value: p.value, Revision: benchRevision,
						Stored: originWall.Add(now.Since(origin))}}, now)
			}
		}
	}
	return written
}

func takeOver(c *Core, found Opened) (*partition, pace.Instant) {
	var part *partition
	now := origin
	for ; part == nil || part.fresh; now = now.Add(20 * ms) {
		c.advance(now)
		answerPuts(c, now)
		for _, o := range c.out.opens {
			part = c.part(o.Part)
			found.Opening = o
			c.Handle(found, now)
		}
		c.out = actions{}
	}
	return part, now
}

func (c *Core) run(from pace.Instant, length time.Duration,
	each func(now pace.Instant, written []Put)) pace.Instant {
	now := from
	for ; now < from.Add(length); now = now.Add(20 * ms) {
		c.advance(now)
		puts := append([]Put(nil), c.out.puts...)
		answerPuts(c, now)
		for _, o := range c.out.opens {
			c.Handle(Opened{Opening: o}, now)
		}
		if each != nil {
			each(now, puts)
		}
		c.out = actions{}
	}
	return now
}

func stands(c *Core, part *partition, seq uint64, now pace.Instant) (s *job.State) {
	c.Handle(Asked{part.Partition, job.Question{Op: job.OpJob, Jobs: []uint64{seq}},
		func(a job.Answer) { s = a.Job }}, now)
	c.Ponder(func() pace.Instant { return now })
	return s
}

func runsAt(c *Core, part *partition, seq uint64, now pace.Instant) string {
	for _, r := range part.HandoverBut(now).Running {
		if r.Seq == seq {
			return r.Holder
		}
	}
	return ""
}

func BenchmarkOneOfManyPolicies(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		c := coreBench(b)
		all := Configured{}
		for i := range n {
			name := fmt.Sprintf("p%05d", i)
			all[name] = &QueuePolicy{Policy: leaky(name, "1/s").WithDefaults(), Own: true,
				Local: true}
		}
		c.Handle(all, origin)
		now := c.run(origin, 2*second, nil)
		b.Run(fmt.Sprintf("%d/changes", n), func(b *testing.B) {
			for b.Loop() {
				p := *c.policies["p00000"]
				p.Paused = !p.Paused
				c.Handle(configured(p), now)
				c.advance(now)
			}
		})
		b.Run(fmt.Sprintf("%d/comes and goes", n), func(b *testing.B) {
			for i := 1; b.Loop(); i++ {
				change := Configured{"one more": nil}
				if i%2 > 0 {
					p := leaky("one more", "1/s").WithDefaults()
					change = configured(QueuePolicy{Policy: p, Own: true, Local: true})
				}
				c.Handle(change, now)
				now = c.run(now, 20*ms, nil)
			}
		})
	}
}
