package whatif

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

type drainer struct {
	*world
	valve     *valve.Valve
	part      *valve.Part
	out       valve.Actions
	questions valve.Questions
	began     int64 // Unix ns when the valve's clock showed origin
	wakes     pace.Instant
	turned    pace.Instant
	seq       uint64
	one       [1]job.Arrived
	lasts     map[uint64]time.Duration // of jobs that differ from the options, by sequence
}

const (
	// origin is after the clock's zero, which can mean "never".
	origin = pace.Instant(time.Hour)
	// memory bounds jobs in memory as in production.
	memory = 512 << 20
	soon   = pace.Instant(time.Microsecond)
)

// body is the body of all jobs, because traces omit bodies.
var body = []byte{}

func newDrainer(w *world, began int64) *drainer {
	d := &drainer{world: w, began: began, wakes: pace.Never, lasts: map[uint64]time.Duration{}}
	half := func() float64 { return 0.5 }
	d.valve = valve.New(w.policy, false, "whatif", half, d.clock, &d.out)
	d.valve.Share(valve.NewMemory(cmp.Or(w.options.memory, memory)), d.valve.Crew.Workers)
	d.valve.Crew.Local = true
	d.part = d.valve.Own(handle.Partition{Policy: w.policy.Name}, 1)
	d.part.Opened(time.Unix(0, began), 0, nil, origin)
	d.part.GoLive(origin)
	d.part.Swept(origin)
	d.part.Checkpoints.Changed = true
	d.note()
	return d
}

func (d *drainer) instant(at int64) pace.Instant       { return origin + pace.Instant(at-d.began) }
func (d *drainer) date(now pace.Instant) time.Time     { return time.Unix(0, d.unix(now)).UTC() }
func (d *drainer) unix(at pace.Instant) (unixNS int64) { return int64(at-origin) + d.began }

func (d *drainer) clock(now pace.Instant) (time.Time, time.Duration) { return d.date(now), 0 }

func (d *drainer) next() int64 {
	at := max(d.wakes, d.turned+soon)
	if at == pace.Never || int64(at-origin) > math.MaxInt64-d.began {
		return math.MaxInt64
	}
	return d.unix(at)
}

func (d *drainer) late(r *Request, deadline time.Duration) (late bool) {
	ask := job.Question{Op: job.OpRoom, Key: r.Key, Priority: r.Priority, Cost: r.Cost}
	d.questions.Ask(d.part, ask, func(a job.Answer) {
		late = a.StartMS != nil && time.Duration(*a.StartMS)*time.Millisecond > deadline
	}, d.instant(d.now))
	return late
}

func (d *drainer) arrive(r *Request, deadline time.Duration) error {
	d.seq++
	at := d.wall()
	a := &d.one[0]
	*a = job.Arrived{Seq: d.seq, Key: r.Key, Stored: at, Cost: r.Cost, Priority: r.Priority,
		Body: body}
	if deadline > 0 {
		a.Deadline = at.Add(deadline)
	}
	if r.Duration > 0 {
		d.lasts[d.seq] = r.Duration
	}
	d.part.Arrive(d.one[:], true, d.instant(d.now))
	return d.turn()
}

func (d *drainer) turn() error {
	now := d.instant(d.now)
	for more := true; more; {
		d.note()
		d.valve.Advance(now, pace.Never)
		var err error
		if more, err = d.perform(now); err != nil {
			return err
		}
	}
	d.turned, d.wakes = now, d.valve.Wake(true)
	return nil
}

// note stores a checkpoint, which starts under limits require.
func (d *drainer) note() {
	if len(d.policy.Limits) > 0 && d.part.Checkpoints.Changed {
		d.part.Checkpoints.Changed = false
		d.part.Gather().Walk.Stop()
		d.part.Checkpoints.Store()
	}
}

func (d *drainer) end(run uint64, how record.OutcomeKind, now pace.Instant) {
	d.valve.Finished(run, record.Outcome{Kind: how}, now)
}

// perform performs actions, which may request more.
func (d *drainer) perform(now pace.Instant) (more bool, err error) {
	out := &d.out
	more = len(out.Starts)+len(out.Burials)+len(out.Acks)+len(out.Fetches) > 0
	if n := len(out.Saves); n > 0 {
		return false, fmt.Errorf("%d jobs failed, where none can", n)
	}
	for _, r := range out.Starts {
		d.start(r, now)
	}
	for _, b := range out.Burials {
		d.account.keys[b.Key].Stale++
		d.part.Buried(b.Ref)
	}
	for _, a := range out.Acks {
		d.account.left(d.account.keys[a.Key], d.now)
		d.part.Confirmed(a.Seq, now)
	}
	for i := 0; i < len(out.Fetches); i++ {
		d.part.Fetched(valve.Text{Ref: out.Fetches[i], Body: body}, now)
	}
	out.Reset()
	return more, nil
}

func (d *drainer) start(r valve.Run, now pace.Instant) {
	gate := func() (fence, at pace.Instant) { return pace.Never, now }
	if _, passed := r.Decide(gate, nil); !passed {
		d.end(r.Number, record.OutcomeReturned, now)
		return
	}
	d.account.started(d.account.keys[r.Key], d.now, r.Stored.UnixNano(), r.Cost)
	lasts := cmp.Or(d.lasts[r.Seq], d.options.Duration)
	delete(d.lasts, r.Seq)
	if lasts > 0 {
		number := r.Number
		d.after(lasts, func() { d.end(number, record.OutcomeDone, d.instant(d.now)) })
		return
	}
	d.end(r.Number, record.OutcomeDone, now)
}
