package core

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

const ms, second = time.Millisecond, time.Second

// origin is the instant at which the valves and cores of tests begin.
const origin = pace.Instant(time.Hour)

var originWall = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// valveBench feeds a valve that owns one partition, without a drainer around it.
type valveBench struct {
	t   *testing.T
	v   *valve
	p   *partition
	out *actions
	now pace.Instant
	seq uint64

	stored map[uint64]time.Time // when jobs were, by sequence
}

func newValveBench(t *testing.T, p policy.Policy) *valveBench {
	t.Helper()
	b := unownedValve(t, p)
	b.own()
	b.v.live(b.p, b.now)
	return b
}

// unownedValve has no partition yet.
func unownedValve(t *testing.T, p policy.Policy) *valveBench {
	t.Helper()
	p.Partitions = 1
	p = p.WithDefaults()
	if problems := p.Validate(); len(problems) > 0 {
		t.Fatal(problems)
	}
	b := &valveBench{t: t, out: &actions{}, now: origin, stored: map[uint64]time.Time{}}
	b.v = newValve(p, false, "self", func() float64 { return 0.5 }, b.out)
	b.v.local = true
	return b
}

func (b *valveBench) own() *partition {
	b.p = b.v.own(0, 1)
	return b.p
}

// wall is the wall clock at now.
func (b *valveBench) wall() time.Time { return originWall.Add(b.now.Since(origin)) }

// at moves the clock to an instant after the origin.
func (b *valveBench) at(d time.Duration) *valveBench {
	b.now = origin.Add(d)
	return b
}

// arrive delivers a new job, which change may alter.
func (b *valveBench) arrive(key string, change ...func(*job.Arrived)) *heldJob {
	b.seq++
	return b.deliver(b.seq, key, change...)
}

// deliver delivers a job, or one that was delivered before once more.
func (b *valveBench) deliver(seq uint64, key string, change ...func(*job.Arrived)) *heldJob {
	if b.stored[seq].IsZero() {
		b.stored[seq] = b.wall()
	}
	a := &job.Arrived{Seq: seq, Key: job.Key(key), Stored: b.stored[seq], Cost: 1, Size: 4,
		Body: []byte("body")}
	for _, f := range change {
		f(a)
	}
	b.v.arrive(b.p, a, b.now, b.wall())
	return b.p.jobs[seq]
}

func cost(n int64) func(*job.Arrived)    { return func(a *job.Arrived) { a.Cost = n } }
func priority(n int) func(*job.Arrived)  { return func(a *job.Arrived) { a.Priority = n } }
func large(bytes int) func(*job.Arrived) { return func(a *job.Arrived) { a.Size = bytes } }

// atOnce is a gate that is open, at the instant at which the run could start.
func (r *Run) atOnce() (fence, now pace.Instant) { return pace.Never, r.Due }

// start lets the valve act now; every job that it starts passes its last check.
func (b *valveBench) start() []Run {
	b.v.advance(b.now, true)
	runs := append([]Run(nil), b.out.starts...)
	b.out.starts = nil
	for i := range runs {
		if _, passed := runs[i].Decide(runs[i].atOnce, nil); !passed {
			b.t.Fatalf("job %d did not pass its last check", runs[i].Seq)
		}
	}
	return runs
}

// until starts what may start up to an instant, as soon as it may, and returns when that was.
func (b *valveBench) until(end time.Duration, each func(Run)) (starts []time.Duration) {
	for {
		runs := b.start()
		for _, r := range runs {
			starts = append(starts, b.now.Since(origin))
			each(r)
		}
		if len(runs) > 0 {
			continue // what they came to may let others start at once
		}
		next := b.v.wake(true)
		if next > origin.Add(end) {
			b.at(end)
			return starts
		}
		b.now = max(b.now, next)
	}
}

// end reports what became of a run.
func (b *valveBench) end(r Run, o Outcome) {
	o.Seq = r.Seq
	b.v.finished(r.number, o, b.now)
}

// done finishes a run and confirms its acknowledgement.
func (b *valveBench) done(r Run) {
	b.end(r, Outcome{Kind: OutcomeDone})
	b.v.confirmed(b.p, r.Seq, b.now)
}

func (b *valveBench) seqs(runs []Run) string {
	all := []uint64{}
	for _, r := range runs {
		all = append(all, r.Seq)
	}
	return fmt.Sprint(all)
}

func (b *valveBench) reasons() string {
	all := []job.Reason{}
	for _, u := range b.out.burials {
		all = append(all, u.Reason)
	}
	return fmt.Sprint(all)
}

// advance does everything that is due at now.
func (c *Core) advance(now pace.Instant) {
	c.Decide(now)
	c.Checkpoint(now)
}

// coreBench is a core with its lease held.
func coreBench(t *testing.T, policies ...policy.Policy) *Core {
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
	c.Handle(Configured{all}, now)
}

// ownedBefore lets a core find the record of api.0 that a former owner left.
func ownedBefore(c *Core, r record.Owner, revision uint64) {
	c.Handle(Watched{TablePartitions, "api.0",
		Record{Exists: true, Value: record.Encode(r), Revision: revision, Stored: originWall}},
		origin)
}

var benchRevision uint64 = 1000

// answerPuts lets every write of the core succeed, tells it by its watch as well, and returns their
// keys.
func answerPuts(c *Core, now pace.Instant) (written []string) {
	for len(c.out.puts) > 0 {
		puts := c.out.puts
		c.out.puts = nil
		for _, p := range puts {
			benchRevision++
			written = append(written, p.Key)
			c.Handle(Written{p, PutOK, benchRevision}, now)
			if !strings.HasSuffix(p.Key, CheckpointSuffix) {
				c.Handle(Watched{p.Table, p.Key,
					Record{Exists: true, Value: p.value, Revision: benchRevision,
						Stored: originWall.Add(now.Since(origin))}}, now)
			}
		}
	}
	return written
}

// takeOver lets a core take the partition "api.0" of one partition and finds there what is given.
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

// run advances a core in small steps; every write succeeds and every backlog opens.
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
