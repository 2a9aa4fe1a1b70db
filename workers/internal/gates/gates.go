package gates

import (
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
)

// A Gate may hold a bucket's next start back.
type Gate interface {
	// Next returns until when, and why.
	Next(*Bucket) Hold
}

// Later is a gate that may hold a later start for longer than the next one.
type Later interface {
	// After returns when a later start may be that the gates before allow at an instant; Never:
	// unpredictable. It is asked while no gate is shut.
	After(b *Bucket, a *Ahead, at pace.Instant) pace.Instant
}

// State is what gates keep of a bucket.
type State struct {
	Running int // against concurrency, in any process
	Noting  int // crashes being recorded; other jobs wait

	Cool      pace.Instant // end of the target's pause
	Throttles int          // in a row
	Target    *Target
	Passing   Passing
	Used      *quota.Set // of the start limits
	Allowed   Allowed
	Late      Lateness
}

// Passing lets other buckets start before a job that limits over all of them hold.
type Passing struct {
	Seq   uint64
	Until pace.Instant
	By    string
}

// Allowed is a job that limits allow to start, briefly, because JetStream's clock may change.
type Allowed struct {
	Seq   uint64
	Until pace.Instant
}

// Bucket is what gates see of a bucket at an instant.
type Bucket struct {
	State       *State
	Pace        *pace.Pace // nil: unpaced
	Clock       *pace.Clock
	Concurrency int
	Paused      bool
	Live        bool // its partition's backlog is open
	Unseen      bool // inherited runs, which may be its own, have not arrived
	Near        bool // the next job is known
	Seq         uint64
	Takes       quota.Cost
	Store       Store
	Buckets     int // of its partition
	Now         pace.Instant
}

// Store knows which starts no stored checkpoint has.
type Store interface {
	// Holds returns until when a job under limits waits for a checkpoint: at, or Never for the
	// first one.
	Holds(c quota.Cost, l *quota.Limits, at pace.Instant) (until pace.Instant)
	// Spent reports whether a budget is used up: that of all buckets, or of one.
	Spent(l *quota.Limits, used *quota.Set, all bool) bool
}

// Ahead is what starts before a job.
type Ahead struct {
	Takes  quota.Cost // of the job itself
	Slots  int64      // of its bucket
	Others int64      // of other buckets, from an instant on
	From   pace.Instant
	Work   Work
}

// Work knows what waits.
type Work interface {
	// Own returns the units of the next slots of its bucket, All those of all buckets'.
	Own(slots int64) quota.Ahead
	All(slots int64) quota.Ahead
}

// List has gates in their order: of two that hold as long, the first is the reason.
type List []Gate

// Next returns the longest hold. A shut gate is the last that is asked.
func (all List) Next(b *Bucket) (h Hold) {
	for _, g := range all {
		if h = h.Or(g.Next(b)); h.Shut() {
			break
		}
	}
	return h
}

// Gates is a list with its last questions, which are kept to save allocations.
type Gates struct {
	List
	Later []Later
	Quiet *Quiet // one of them, which also holds all buckets
	Seen  Bucket
	Ahead Ahead
}

// After returns when a later start may be; Never: unpredictable.
func (g *Gates) After(b *Bucket, a *Ahead) pace.Instant {
	at := g.Next(b).Until
	for _, l := range g.Later {
		if at == pace.Never {
			break
		}
		at = l.After(b, a, at)
	}
	return at
}

// Shut has the gates that only an event opens.
var Shut = List{pause{}, storage{}, concurrency{}}

func shut(by Reason, is bool) Hold {
	if is {
		return Hold{By: by, Until: pace.Never}
	}
	return Hold{}
}

type pause struct{}

func (pause) Next(b *Bucket) Hold { return shut(ByPaused, b.Paused) }

type storage struct{}

func (storage) Next(b *Bucket) Hold { return shut(ByStorage, !b.Live || b.State.Noting > 0) }

type concurrency struct{}

func (concurrency) Next(b *Bucket) Hold {
	return shut(ByConcurrency, b.Concurrency > 0 && (b.State.Running >= b.Concurrency || b.Unseen))
}

// Breaking is the gate of a bucket's breaker.
type Breaking struct{ *Health }

func (Breaking) Next(b *Bucket) (h Hold) {
	if b.State.Target.Down() {
		h = Hold{By: ByBreaker, Until: b.State.Target.Due()}
	}
	return h
}

// After implements [Later]: a probe may fail.
func (g Breaking) After(b *Bucket, _ *Ahead, at pace.Instant) pace.Instant {
	if g.All.Open || b.State.Target.Down() {
		return pace.Never
	}
	return at
}

// Cooling is the gate of the target's pauses.
type Cooling struct{}

func (Cooling) Next(b *Bucket) Hold { return Hold{By: ByCooling, Until: b.State.Cool} }

// Giving is the gate of a bucket that lets others pass.
type Giving struct{}

func (Giving) Next(b *Bucket) Hold {
	p := &b.State.Passing
	return Hold{By: ByLimit, Limit: p.By, Until: p.Of(b.Near, b.Seq, b.Now)}
}

// Of returns until when the next job, if it is known, lets others pass.
func (p *Passing) Of(near bool, seq uint64, now pace.Instant) pace.Instant {
	if p.Until > now && near && seq == p.Seq {
		return p.Until
	}
	return 0
}

// Rate is the gate of a bucket's outflow.
type Rate struct{}

func (Rate) Next(b *Bucket) Hold { return Hold{By: ByRate, Until: b.Pace.Next(b.Clock)} }

// After implements [Later].
func (Rate) After(b *Bucket, a *Ahead, at pace.Instant) pace.Instant {
	if b.Pace == nil {
		return at
	}
	return max(at, b.Now.Add(-b.Pace.Credit)).Add(pace.Times(a.Slots, b.Pace.Interval))
}
