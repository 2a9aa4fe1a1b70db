package keyqueue

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/deep"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

type held struct{ Job[*held] }

// drawn is a queue beside a plain list of its jobs, changed alike.
type drawn struct {
	t     *testing.T
	rng   *rand.Rand
	s     *Store[*held]
	q     Queue[*held]
	seq   uint64
	now   int64
	ranks map[uint64]Rank // of the jobs that may start
	jobs  map[uint64]*held
	costs map[uint64]int64
}

func draw(t *testing.T, step time.Duration) *drawn {
	d := &drawn{t: t, rng: rand.New(rand.NewPCG(1, uint64(step))), s: NewStore[*held](step),
		now: int64(time.Hour), ranks: map[uint64]Rank{}, jobs: map[uint64]*held{},
		costs: map[uint64]int64{}}
	d.q = New("k", d.s)
	return d
}

// arrives adds a job: deep, held, or not due.
func (d *drawn) arrives(sinks bool) {
	d.seq++
	d.now += d.rng.Int64N(int64(time.Second))
	j := &held{}
	j.Of = j
	j.Arrived = job.Arrived{Seq: d.seq, Stored: time.Unix(0, d.now), Cost: 1 + d.rng.Int64N(3),
		Priority: d.rng.IntN(3), Size: 1}
	if d.rng.IntN(4) == 0 {
		j.Costs = map[string]int64{"tokens": d.rng.Int64N(100)}
	}
	d.q.Arrive(&j.Job)
	d.ranks[j.Seq], d.costs[j.Seq] = d.q.Rank(&j.Job), j.Cost
	switch {
	case sinks && d.s.Takes(&j.Job):
		d.q.Sink(&j.Job, deep.Job{Expires: math.MaxInt64})
	default:
		d.jobs[j.Seq] = j
		next := d.q.Push(&j.Job)
		if next != (d.q.Head() == j) {
			d.t.Fatalf("job %d is next: %v", j.Seq, next)
		}
	}
}

func (d *drawn) raise(seq uint64) {
	of, some := d.s.Find(seq)
	if !some {
		d.t.Fatalf("job %d is not deep", seq)
	}
	d.s.Lift(of)
	j := &held{}
	j.Of = j
	j.Arrived = job.Arrived{Seq: seq, Stored: time.Unix(0, of.Stored), Cost: of.Cost,
		Costs: of.Costs, Priority: of.Priority}
	of.Held(&j.Job)
	d.jobs[seq] = j
	d.q.Raises(&j.Job)
	d.q.Push(&j.Job)
}

func (d *drawn) first() (seq uint64) {
	for s, r := range d.ranks {
		if seq == 0 || r.Before(d.ranks[seq]) {
			seq = s
		}
	}
	return seq
}

func (d *drawn) check() {
	slots := int64(0)
	for seq := range d.ranks {
		slots += d.costs[seq]
	}
	if d.q.Len() != len(d.ranks) || d.q.Near()+d.q.Deep() != d.q.Len() ||
		d.q.Near() != len(d.jobs) || d.s.Len() != d.q.AllDeep() || d.q.Waiting() != slots {
		d.t.Fatalf("%d wait, %d near and %d deep, with %d slots; want %d, %d near, with %d",
			d.q.Len(), d.q.Near(), d.q.Deep(), d.q.Waiting(), len(d.ranks), len(d.jobs), slots)
	}
	near := slices.Collect(d.q.Each())
	if len(near) != len(d.jobs) {
		d.t.Fatalf("%d are held, want %d", len(near), len(d.jobs))
	}
}

// Jobs leave in the order of their ranks, wherever they wait.
func TestAQueueIsInOrder(t *testing.T) {
	for _, step := range []time.Duration{0, 300 * time.Millisecond} {
		d := draw(t, step)
		for d.seq < 5000 || len(d.ranks) > 0 {
			for range d.rng.IntN(4) {
				if d.seq < 5000 {
					d.arrives(d.rng.IntN(3) > 0 && d.q.Near() > 0 || d.q.Deep() > 0)
				}
			}
			for {
				of, wanted := d.q.Wants(3)
				if !wanted {
					break
				}
				d.raise(of.Seq)
			}
			d.check()
			if len(d.ranks) == 0 {
				continue
			}
			j := d.q.Head()
			if first := d.first(); j == nil || j.Seq != first || d.q.First() != d.ranks[first] {
				t.Fatalf("step %v: %v is first, want %d", step, j, first)
			}
			if d.rng.IntN(3) == 0 { // some job goes
				j = d.q.Nth(d.rng.IntN(d.q.Near()))
			}
			d.q.Remove(&j.Job)
			delete(d.ranks, j.Seq)
			delete(d.jobs, j.Seq)
			d.check()
		}
		if len(d.q.Named()) > 0 {
			t.Errorf("step %v: costs of nothing: %v", step, d.q.Named())
		}
	}
}

// The slots before the last job are those that will start before it.
func TestSlotsBeforeAJob(t *testing.T) {
	d := draw(t, 0)
	for range 500 {
		d.arrives(false)
		j := d.jobs[d.seq]
		slots := int64(0)
		for seq, r := range d.ranks {
			if r.Before(d.ranks[d.seq]) {
				slots += d.costs[seq]
			}
		}
		if got := d.q.SlotsBefore(&j.Job); got != slots {
			t.Fatalf("job %d: %d slots before it, want %d", j.Seq, got, slots)
		}
		if jobs, got := d.q.Position(&j.Job); got != slots || jobs > len(d.ranks) {
			t.Fatalf("job %d: %d jobs and %d slots before it, want %d", j.Seq, jobs, got, slots)
		}
	}
}

func TestDelayedJobsAreInTheOrderOfTheirTimes(t *testing.T) {
	d := draw(t, 0)
	var all []*held
	for i := range uint64(100) {
		j := &held{}
		j.Of, j.Seq, j.Cost, j.At = j, i+1, 1, pace.Instant(d.rng.Int64N(1000))
		all = append(all, j)
		d.q.Delay(&j.Job)
	}
	all[7].At = 2000
	d.q.Fix(&all[7].Job)
	slices.SortFunc(all, func(a, b *held) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Seq, b.Seq))
	})
	for i, j := range all {
		if got := d.q.NthLater(0); d.q.Later() != len(all)-i || got != j || d.q.Len() > 0 {
			t.Fatalf("%d of %d are delayed, job %d first, want %d", d.q.Later(), len(all), got.Seq,
				j.Seq)
		}
		d.q.Remove(&j.Job)
	}
}

func TestANextCallIsFirstAndInNoLane(t *testing.T) {
	d := draw(t, time.Second)
	d.arrives(false)
	call := &held{}
	call.Of, call.Seq, call.Cost, call.Front = call, math.MaxUint64, 1, Alone
	if !d.q.Push(&call.Job) || d.q.Head() != call {
		t.Fatal("a call is not first")
	}
	if slots := d.q.SlotsFor(0, d.now); slots != d.costs[1] {
		t.Errorf("%d slots before the next job, want %d", slots, d.costs[1])
	}
	d.q.Remove(&call.Job)
	d.check()
}

func TestAnotherStepReorders(t *testing.T) {
	d := draw(t, 0)
	for range 100 {
		d.arrives(false)
	}
	if d.s.Restep(0) || !d.s.Restep(time.Millisecond) {
		t.Fatal("a step is another than itself, or one is not")
	}
	d.q.Reorder()
	for seq := range d.ranks {
		d.ranks[seq] = d.q.Rank(&d.jobs[seq].Job)
	}
	for len(d.ranks) > 0 {
		j, first := d.q.Head(), d.first()
		if j.Seq != first {
			t.Fatalf("%d is first, want %d", j.Seq, first)
		}
		d.q.Remove(&j.Job)
		delete(d.ranks, j.Seq)
	}
}

func TestRipeAndLostDeepJobs(t *testing.T) {
	d := draw(t, 0)
	for i := range uint64(10) {
		j := &held{}
		j.Arrived = job.Arrived{Seq: i + 1, Stored: time.Unix(0, 1), Cost: 2,
			Costs: map[string]int64{"tokens": 5}}
		d.q.Arrive(&j.Job)
		d.q.Sink(&j.Job, deep.Job{Due: int64(time.Second), Expires: int64(time.Hour)})
	}
	if at, some := d.q.DeepLaterAt(); !some || at < int64(time.Second) || d.q.Later() != 10 {
		t.Fatalf("due at %v: %v, %d", at, some, d.q.Later())
	}
	if d.s.Ripen(3) != &d.q || d.q.Later() != 9 || d.q.Len() != 1 || d.q.Waiting() != 2 {
		t.Fatalf("%d not due, %d due, %d slots", d.q.Later(), d.q.Len(), d.q.Waiting())
	}
	if seqs := d.q.SomeDeep(5, 100); !slices.Equal(seqs, []uint64{1, 2, 3, 4, 5}) {
		t.Error(seqs)
	}
	d.s.Clear(&d.q)
	if d.q.Len()+d.q.Later()+d.s.Len() != 0 || d.q.Waiting() != 0 ||
		len(slices.Collect(maps.Keys(d.q.Named()))) != 0 {
		t.Errorf("something is left: %d, %d, %d", d.q.Len(), d.q.Later(), d.q.Waiting())
	}
}
