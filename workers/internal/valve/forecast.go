package valve

import (
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/calls"
	"github.com/penstock-mq/penstock/workers/internal/forecast"
	"github.com/penstock-mq/penstock/workers/internal/gates"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
	"github.com/penstock-mq/penstock/workers/internal/walk"
)

// outlook is a forecast of the turns of a partition's buckets. One walk over all of them serves all
// questions for forecastFor.
type outlook struct {
	forecast.Forecast
	made pace.Instant
	from pace.Instant // earliest next start

	// Set while it is made for questions, which may be abandoned.
	of       *Part
	walk     *walk.Walk[*bucket]
	lookedAt pace.Instant
}

const (
	// mostExact bounds the buckets that each question may walk.
	mostExact = 1000
	// forecastFor is the life of a forecast.
	forecastFor       = 100 * time.Millisecond
	forecastPerBucket = time.Microsecond
	staleForecast     = 2 * time.Second
)

// The buckets examined, and starts computed, in about 10 µs.
const walkPiece, expectPiece = 256, 16

// waits returns what waits in a bucket that competes for turns.
func (b *bucket) waits() forecast.Waits {
	w := forecast.Waits{Turn: b.turns, Weight: b.weight}
	if b.competes() {
		w.Slots, w.Jobs = b.queue.Waiting(), int64(b.queue.Len())
	}
	return w
}

func (b *bucket) competes() bool { return b.queue.Len() > 0 && !b.paused }

func (l *startLimits) turnsFrom(now pace.Instant) pace.Instant {
	return max(now, l.nextTurn(now).Until)
}

// foreseen reports whether questions can be answered, and otherwise works on the next forecast.
func (p *Part) foreseen(now pace.Instant) bool {
	v, buckets := p.v, p.list.Len()
	if f := v.forecast; !v.takesTurns() || buckets <= mostExact ||
		f != nil && now.Since(f.made) < max(forecastFor, time.Duration(buckets)*forecastPerBucket) {
		return true
	}
	c := v.coming
	if c != nil && (c.of != p || now.Since(c.lookedAt) > forecastFor) {
		c.walk.Stop()
		c = nil
	}
	if c == nil {
		c = &outlook{Forecast: forecast.Forecast{From: v.turns.Now}, made: now,
			from: v.turnsFrom(now), of: p, walk: p.list.Walk()}
		v.coming = c
	}
	c.lookedAt = now
	if !c.walk.Some(walkPiece, func(b *bucket) { c.Add(b.waits(), v.turns.Now) }) {
		return false
	}
	c.Sum()
	v.forecast, v.coming = c, nil
	return true
}

func (b *bucket) unitsOf(slots int64) quota.Ahead {
	if b.queue.Waiting() == 0 {
		return quota.Ahead{}
	}
	return aheadOf(slots, b.queue.Waiting(), int64(b.queue.Len()), b.queue.Named())
}

func aheadOf(slots, waiting, queued int64, named map[string]int64) quota.Ahead {
	return quota.Ahead{Jobs: (slots*queued + waiting - 1) / waiting,
		Units: func(cost string) int64 {
			return int64(float64(slots) * float64(waiting+named[cost]) / float64(waiting))
		}}
}

func (p *Part) unitsOfAll(slots int64) quota.Ahead {
	var waiting, queued int64
	named, looked := map[string]int64{}, 0
	for _, b := range p.list.All() {
		if looked++; looked > mostExact {
			break
		}
		waiting, queued = waiting+b.queue.Waiting(), queued+int64(b.queue.Len())
		for name, n := range b.queue.Named() {
			named[name] += n
		}
	}
	if waiting == 0 {
		return quota.Ahead{}
	}
	return aheadOf(slots, waiting, queued, named)
}

// group is the calls before one, and what else waits in their bucket.
type group struct {
	of *bucket
	calls.Costs
}

// Own implements [gates.Work].
func (c *group) Own(slots int64) quota.Ahead { return c.With(c.of.unitsOf(slots - c.Slots)) }

// All implements [gates.Work].
func (c *group) All(slots int64) quota.Ahead {
	return c.With(c.of.Part.unitsOfAll(slots - c.Slots))
}

// limited returns when start limits allow a bucket's next job.
func (l *startLimits) limited(b *bucket, c quota.Cost, now pace.Instant) pace.Instant {
	l.gates.Ahead = gates.Ahead{Takes: c, Work: l.without(b)}
	return limiting{l}.After(l.view(b, now), &l.gates.Ahead, 0)
}

// without returns no calls of a bucket.
func (l *startLimits) without(b *bucket) *group {
	l.alone.of = b
	return l.alone
}

// expectBucket returns when a bucket starts a job after some slots; Never: unpredictable.
func (v *Valve) expectBucket(b *bucket, slots int64, c quota.Cost, now pace.Instant) pace.Instant {
	if v.Crew.Free() <= 0 && v.Crew.Declined {
		return pace.Never
	}
	return v.expectSlots(slots, v.without(b), c, now)
}

// expectSlots is expectBucket for calls, which need no worker.
func (v *Valve) expectSlots(slots int64, before *group, c quota.Cost,
	now pace.Instant) pace.Instant {
	a, known := &v.gates.Ahead, true
	a.Takes, a.Slots, a.Work, a.Others = c, slots, before, 0
	if v.takesTurns() {
		if a.Others, a.From, known = v.slotsOfOthers(before.of, slots, now); !known {
			return pace.Never
		}
		a.Others += v.slotsOfLine(slots + a.Others)
	}
	b := v.view(before.of, now)
	if gates.Shut.Next(b).Shut() {
		return pace.Never
	}
	return v.gates.After(b, a)
}

// slotsOfOthers returns the slots of other buckets, from an instant on, before a bucket has taken
// some slots and starts another job.
func (v *Valve) slotsOfOthers(b *bucket, slots int64,
	now pace.Instant) (others int64, from pace.Instant, known bool) {
	turn := max(b.turns, v.turns.Now) + float64(slots)/float64(b.weight)
	if b.Part.list.Len() > mostExact {
		f := v.forecast
		if f == nil || f.from == pace.Never || now.Since(f.made) > staleForecast {
			return 0, 0, false
		}
		return f.Before(turn, b.waits(), slots), f.from, true
	}
	for _, other := range b.Part.list.All() {
		if other != b {
			others += other.waits().Until(turn, v.turns.Now)
		}
	}
	from = v.turnsFrom(now)
	return others, from, from < pace.Never
}

func (v *Valve) slotsOfLine(slots int64) (others int64) {
	for _, u := range v.line.valves {
		if u == v {
			continue
		}
		share, waiting := int64(float64(slots+1)*u.weight()/v.weight()), int64(0)
		for _, p := range u.parts {
			if p.list.Len() > mostExact {
				waiting = share // with this many keys, some have work
				break
			}
			for _, b := range p.list.All() {
				waiting += b.waits().Slots
			}
		}
		others += min(share, waiting)
	}
	return others
}

// expectJob is expectBucket for a waiting job; also Never without a worker.
func (v *Valve) expectJob(j *heldJob, slots int64, now pace.Instant) pace.Instant {
	at := v.expectBucket(j.Bucket, slots+j.Bucket.slotsOfCalls(slots), j.takes(), now)
	if at <= now && !v.Crew.MayTake(j.Bucket.busy()) {
		return pace.Never
	}
	return at
}

// expect returns the time until a job starts, assuming success; 0: it has started.
func (p *Part) expect(seq uint64, now pace.Instant) (wait time.Duration, known bool) {
	j := p.seek(seq)
	if j == nil {
		return 0, seq <= p.highest
	}
	at := now
	switch j.stage {
	case stageWaiting:
		at = p.v.expectJob(j, j.Bucket.queue.SlotsBefore(&j.Job), now)
	case stageDelayed:
		at = j.At
	}
	if at == pace.Never {
		return 0, false
	}
	return max(0, at.Since(now)), true
}

const unknownRoom = time.Second

// room returns the Retry-After of a full bucket (law 7): the time to its next start, and at least
// one interval.
func (p *Part) room(key job.Key, now pace.Instant) time.Duration {
	b, wait := p.look(key), unknownRoom
	switch {
	case b.pace != nil:
		wait = b.pace.Interval
	case p.v.takesTurns():
		wait = p.v.turnEvery()
	case p.v.quota != nil:
		wait = p.v.quota.Interval()
	}
	wait = max(wait, p.v.limited(b, oneSlot, now).Since(now))
	h := p.v.holdOf(b, now)
	if h.Shut() || p.v.health.All.Open || b.Target.Down() {
		wait = max(wait, unknownRoom)
	}
	if h.Until < pace.Never {
		wait = max(wait, h.Until.Since(now))
	}
	if b.held > 0 && int(b.held) == b.queue.Later() {
		_, until := p.v.delayed(b)
		wait = max(wait, until.Since(now))
	}
	return wait
}

// tail returns the wait in ms of a job accepted now; nil: unpredictable, or no job waits.
func (p *Part) tail(q job.Question, now pace.Instant) *int64 {
	if b := p.buckets[q.Key]; b != nil && b.queue.Len() > 0 {
		before := b.slotsFor(q.Priority, p.v.wall.reading(now).Wall.UnixNano())
		takes := quota.Cost{Job: max(q.Cost, 1), Named: q.Costs}
		return millisTo(p.v.expectBucket(b, before, takes, now), now)
	}
	return nil
}

func ceilMillis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// millisTo returns the ms until an instant; nil: unpredictable.
func millisTo(at, now pace.Instant) *int64 {
	if at == pace.Never {
		return nil
	}
	ms := ceilMillis(max(0, at.Since(now)))
	return &ms
}
