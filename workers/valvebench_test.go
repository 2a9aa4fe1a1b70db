package workers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

const ms, second = time.Millisecond, time.Second

// origin is the instant at which the valves and cores of tests begin.
const origin = instant(time.Hour)

var originWall = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// valveBench feeds a valve that owns one partition, without a drainer around it.
type valveBench struct {
	t   *testing.T
	v   *valve
	p   *partition
	out *actions
	now instant
	seq uint64
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
	b := &valveBench{t: t, out: &actions{}, now: origin}
	b.v = newValve(p, false, "self", func() float64 { return 0.5 }, b.out)
	b.v.local = true
	return b
}

func (b *valveBench) own() *partition {
	b.p = b.v.own(0, 1)
	return b.p
}

// wall is the wall clock at now.
func (b *valveBench) wall() time.Time { return originWall.Add(b.now.since(origin)) }

// at moves the clock to an instant after the origin.
func (b *valveBench) at(d time.Duration) *valveBench {
	b.now = origin.add(d)
	return b
}

// arrive delivers a new job, which change may alter.
func (b *valveBench) arrive(key string, change ...func(*queue.Arrived)) *job {
	b.seq++
	return b.deliver(b.seq, key, change...)
}

func (b *valveBench) deliver(seq uint64, key string, change ...func(*queue.Arrived)) *job {
	a := &queue.Arrived{Seq: seq, Key: queue.Key(key), Stored: b.wall(), Cost: 1, Size: 4, Body: []byte("body")}
	for _, f := range change {
		f(a)
	}
	b.v.arrive(b.p, a, b.now, b.wall())
	return b.p.jobs[seq]
}

func cost(n int64) func(*queue.Arrived)    { return func(a *queue.Arrived) { a.Cost = n } }
func priority(n int) func(*queue.Arrived)  { return func(a *queue.Arrived) { a.Priority = n } }
func large(bytes int) func(*queue.Arrived) { return func(a *queue.Arrived) { a.Size = bytes } }

// whenever is a gate that is open.
func whenever() (fence, now instant) { return never, 0 }

// start lets the valve act now; every job that it starts passes its last check.
func (b *valveBench) start() []run {
	b.v.advance(b.now, true)
	runs := append([]run(nil), b.out.starts...)
	b.out.starts = nil
	for i := range runs {
		if _, passed := runs[i].decide(whenever, nil); !passed {
			b.t.Fatalf("job %d did not pass its last check", runs[i].Seq)
		}
	}
	return runs
}

// until starts what may start up to an instant, as soon as it may, and returns when that was.
func (b *valveBench) until(end time.Duration, each func(run)) (starts []time.Duration) {
	for {
		runs := b.start()
		for _, r := range runs {
			starts = append(starts, b.now.since(origin))
			each(r)
		}
		if len(runs) > 0 {
			continue // what they came to may let others start at once
		}
		next := b.v.wake(true)
		if next > origin.add(end) {
			b.at(end)
			return starts
		}
		b.now = max(b.now, next)
	}
}

// end reports what became of a run.
func (b *valveBench) end(r run, o outcome) {
	o.Seq = r.Seq
	b.v.busy--
	b.v.settle(r.job, o, b.now)
}

// done finishes a run and confirms its acknowledgement.
func (b *valveBench) done(r run) {
	b.end(r, outcome{Kind: outcomeDone})
	b.v.confirmed(b.p, r.Seq, b.now)
}

func (b *valveBench) seqs(runs []run) string {
	all := []uint64{}
	for _, r := range runs {
		all = append(all, r.Seq)
	}
	return fmt.Sprint(all)
}

func (b *valveBench) reasons() string {
	all := []Reason{}
	for _, u := range b.out.burials {
		all = append(all, u.reason)
	}
	return fmt.Sprint(all)
}

// coreBench is a core with its lease held.
func coreBench(t *testing.T, policies ...policy.Policy) *core {
	t.Helper()
	c := newCore(coreOptions{name: "me", lease: simulatedLease, random: func() float64 { return 0.5 }})
	c.connection(true, origin)
	c.synced = true
	setPolicies(c, origin, policies...)
	c.advance(origin)
	answerPuts(c, origin)
	return c
}

func setPolicies(c *core, now instant, policies ...policy.Policy) {
	var all []queuePolicy
	for _, p := range policies {
		all = append(all, queuePolicy{Policy: p.WithDefaults(), own: true, local: true})
	}
	c.setPolicies(all, now)
}

var benchRevision uint64 = 1000

// answerPuts lets every write of the core succeed, tells it by its watch as well, and returns their keys.
func answerPuts(c *core, now instant) (written []string) {
	for len(c.out.puts) > 0 {
		puts := c.out.puts
		c.out.puts = nil
		for _, p := range puts {
			benchRevision++
			written = append(written, p.key)
			c.put(p, putOK, benchRevision, now)
			if !strings.HasSuffix(p.key, checkpointSuffix) {
				c.watched(p.table, p.key, record{exists: true, value: p.value, revision: benchRevision, stored: originWall.Add(now.since(origin))}, now)
			}
		}
	}
	return written
}

// takeOver lets a core take the partition "api.0" of one partition and finds there what is given.
func takeOver(c *core, found opened) (*partition, instant) {
	var part *partition
	now := origin
	for ; part == nil || part.fresh; now = now.add(20 * ms) {
		c.advance(now)
		answerPuts(c, now)
		for _, o := range c.out.opens {
			part = o.part
			c.opened(o, part.epoch, found, now)
		}
		c.out = actions{}
	}
	return part, now
}

// run advances a core in small steps; every write succeeds and every backlog opens.
func (c *core) run(from instant, length time.Duration, each func(now instant, written []put)) instant {
	now := from
	for ; now < from.add(length); now = now.add(20 * ms) {
		c.advance(now)
		puts := append([]put(nil), c.out.puts...)
		answerPuts(c, now)
		for _, o := range c.out.opens {
			c.opened(o, o.part.epoch, opened{}, now)
		}
		if each != nil {
			each(now, puts)
		}
		c.out = actions{}
	}
	return now
}
