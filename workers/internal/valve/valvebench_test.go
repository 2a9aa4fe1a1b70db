package valve

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

const ms, second, aLease = time.Millisecond, time.Second, 3 * time.Second

const origin = pace.Instant(time.Hour)

var originWall = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

type valveBench struct {
	t   testing.TB
	v   *Valve
	p   *Part
	out *Actions
	now pace.Instant
	seq uint64

	stored map[uint64]time.Time
}

func (b *valveBench) view() View { return b.v.View(b.now) }

func (b *valveBench) foreseen(now pace.Instant) bool {
	return b.v.foresight.sees(b.p, &b.v.startLimits, now)
}

func newValveBench(t testing.TB, p policy.Policy) *valveBench {
	t.Helper()
	b := unownedValve(t, p)
	b.own()
	b.noted()
	b.p.GoLive(b.now)
	return b
}

func unownedValve(t testing.TB, p policy.Policy) *valveBench {
	t.Helper()
	p.Partitions = 1
	p = p.WithDefaults()
	if problems := p.Validate(); len(problems) > 0 {
		t.Fatal(problems)
	}
	b := &valveBench{t: t, out: &Actions{}, now: origin, stored: map[uint64]time.Time{}}
	b.v = New(p, false, "self", func() float64 { return 0.5 }, wallOfTests, b.out)
	b.v.Crew.Local = true
	return b
}

func (b *valveBench) own() *Part {
	b.p = b.v.Own(handle.Partition{Policy: b.v.Policy.Name}, 1)
	return b.p
}

func (b *valveBench) wall() time.Time { return originWall.Add(b.now.Since(origin)) }

func (b *valveBench) at(d time.Duration) *valveBench {
	b.now = origin.Add(d)
	return b
}

func (b *valveBench) arrive(key string, change ...func(*job.Arrived)) *heldJob {
	b.seq++
	return b.deliver(b.seq, key, change...)
}

func (b *valveBench) deliver(seq uint64, key string, change ...func(*job.Arrived)) *heldJob {
	if b.stored[seq].IsZero() {
		b.stored[seq] = b.wall()
	}
	a := &job.Arrived{Seq: seq, Key: queue.Key(key), Stored: b.stored[seq], Cost: 1, Size: 4,
		Body: []byte("body")}
	for _, f := range change {
		f(a)
	}
	b.p.arrive(a, b.now)
	return b.p.jobs[seq]
}

func cost(n int64) func(*job.Arrived)    { return func(a *job.Arrived) { a.Cost = n } }
func priority(n int) func(*job.Arrived)  { return func(a *job.Arrived) { a.Priority = n } }
func large(bytes int) func(*job.Arrived) { return func(a *job.Arrived) { a.Size = bytes } }

func atOnce(r Run) func() (fence, now pace.Instant) {
	return func() (fence, now pace.Instant) { return pace.Never, r.Due }
}

func (b *valveBench) start() []Run {
	b.v.Advance(b.now, pace.Never)
	b.placed()
	runs := append([]Run(nil), b.out.Starts...)
	b.out.Starts = nil
	for i := range runs {
		if _, passed := runs[i].Decide(atOnce(runs[i]), nil); !passed {
			b.t.Fatalf("job %d did not pass its last check", runs[i].Seq)
		}
	}
	return runs
}

// placed checks that each bucket without calls would be placed where it is: whatever changed it has
// said so. Due ones are examined again when they start.
func (b *valveBench) placed() {
	b.t.Helper()
	if b.v.quota != nil || len(b.v.common) > 0 || b.v.texts.memory.most > 0 {
		return // limits, and expired deep jobs, are asked again by the clock
	}
	var all []*bucket
	for _, p := range b.v.parts {
		all = append(all, p.list.All()...)
	}
	for _, x := range all {
		if x.callers.Len() > 0 || x.spot != spotNone && x.spot != spotSched {
			continue
		}
		spot, at := x.spot, x.nextAt
		x.changed()
		b.v.placeChanged(b.now)
		if x.inList >= 0 && (x.spot != spot || spot == spotSched && x.nextAt != at) {
			b.t.Errorf("bucket %s is at %d until %v, and should be at %d until %v",
				x.queue.Key, spot, at.Since(origin), x.spot, x.nextAt.Since(origin))
		}
	}
}

func (b *valveBench) until(end time.Duration, each func(Run)) (starts []time.Duration) {
	for {
		runs := b.start()
		for _, r := range runs {
			starts = append(starts, b.now.Since(origin))
			each(r)
		}
		if len(runs) > 0 {
			continue
		}
		next := b.v.Wake(true)
		if next > origin.Add(end) {
			b.at(end)
			return starts
		}
		b.now = max(b.now, next)
	}
}

func (b *valveBench) end(r Run, o record.Outcome) {
	o.Seq = r.Seq
	b.v.Finished(r.Number, o, b.now)
}

func (b *valveBench) done(r Run) {
	b.end(r, record.Outcome{Kind: record.OutcomeDone})
	b.p.Confirmed(r.Seq, b.now)
}

func (b *valveBench) seqs(runs []Run) string {
	all := []uint64{}
	for _, r := range runs {
		all = append(all, r.Seq)
	}
	return fmt.Sprint(all)
}

func (b *valveBench) reasons() string {
	all := []queue.Reason{}
	for _, u := range b.out.Burials {
		all = append(all, u.Reason)
	}
	return fmt.Sprint(all)
}

// wallOfTests is JetStream's clock of a valve without a core.
func wallOfTests(now pace.Instant) (time.Time, time.Duration) {
	return originWall.Add(now.Since(origin)), 0
}
