package valve

import (
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
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

// foresight makes forecasts of the turns of many buckets, and keeps the last one.
type foresight struct{ last, coming *outlook }

// sees reports whether questions about a partition can be answered, and otherwise works on the next
// forecast.
func (f *foresight) sees(p *Part, l *startLimits, now pace.Instant) bool {
	buckets := p.list.Len()
	if last := f.last; !l.takesTurns() || buckets <= mostExact || last != nil &&
		now.Since(last.made) < max(forecastFor, time.Duration(buckets)*forecastPerBucket) {
		return true
	}
	c := f.coming
	if c != nil && (c.of != p || now.Since(c.lookedAt) > forecastFor) {
		c.walk.Stop()
		c = nil
	}
	if c == nil {
		c = &outlook{Forecast: forecast.Forecast{From: l.turns.Now}, made: now,
			from: l.turnsFrom(now), of: p, walk: p.list.Walk()}
		f.coming = c
	}
	c.lookedAt = now
	if !c.walk.Some(walkPiece, func(b *bucket) { c.Add(b.waits(), l.turns.Now) }) {
		return false
	}
	c.Sum()
	f.last, f.coming = c, nil
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

func unitsOfAll(list *walk.List[*bucket], slots int64) quota.Ahead {
	var waiting, queued int64
	named, looked := map[string]int64{}, 0
	for _, b := range list.All() {
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
	return c.With(unitsOfAll(&c.of.Part.list, slots-c.Slots))
}

// limited returns when start limits allow a bucket's next job.
func (l *startLimits) limited(b *bucket, c quota.Cost, now pace.Instant) pace.Instant {
	l.gates.Ahead = gates.Ahead{Takes: c, Work: l.without(b)}
	return limiting{l}.After(l.see(b, now), &l.gates.Ahead, 0)
}

// without returns no calls of a bucket.
func (l *startLimits) without(b *bucket) *group {
	l.alone.of = b
	return l.alone
}

// expectBucket returns when a bucket starts a job after some slots; Never: unpredictable.
func (w View) expectBucket(b *bucket, slots int64, c quota.Cost) pace.Instant {
	if w.crew.Free() <= 0 && w.crew.Declined {
		return pace.Never
	}
	return w.expectSlots(slots, w.limits.without(b), c)
}

// expectSlots is expectBucket for calls, which need no worker.
func (w View) expectSlots(slots int64, before *group, c quota.Cost) pace.Instant {
	a, known := &w.limits.gates.Ahead, true
	a.Takes, a.Slots, a.Work, a.Others = c, slots, before, 0
	if w.limits.takesTurns() {
		if a.Others, a.From, known = w.slotsOfOthers(before.of, slots); !known {
			return pace.Never
		}
		a.Others += w.slotsOfLine(slots + a.Others)
	}
	b := w.limits.see(before.of, w.now)
	if gates.Shut.Next(b).Shut() {
		return pace.Never
	}
	return w.limits.gates.After(b, a)
}

// slotsOfOthers returns the slots of other buckets, from an instant on, before a bucket has taken
// some slots and starts another job.
func (w View) slotsOfOthers(b *bucket, slots int64) (others int64, from pace.Instant, known bool) {
	turn := max(b.turns, w.limits.turns.Now) + float64(slots)/float64(b.weight)
	if b.Part.list.Len() > mostExact {
		f := w.foreseen
		if f == nil || f.from == pace.Never || w.now.Since(f.made) > staleForecast {
			return 0, 0, false
		}
		return f.Before(turn, b.waits(), slots), f.from, true
	}
	for _, other := range b.Part.list.All() {
		if other != b {
			others += other.waits().Until(turn, w.limits.turns.Now)
		}
	}
	from = w.limits.turnsFrom(w.now)
	return others, from, from < pace.Never
}

func (w View) slotsOfLine(slots int64) (others int64) {
	for _, u := range w.line.valves {
		if &u.startLimits == w.limits {
			continue
		}
		share, waiting := int64(float64(slots+1)*u.weight()/w.settings.weight()), int64(0)
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
func (w View) expectJob(j *heldJob, slots int64) pace.Instant {
	at := w.expectBucket(j.Bucket, slots+j.Bucket.slotsOfCalls(slots), j.takes())
	if at <= w.now && !w.crew.MayTake(j.Bucket.busy()) {
		return pace.Never
	}
	return at
}

// expectCall returns when a call starts, after those in the bucket and, if they are to be counted,
// away; Never: unpredictable.
func (w View) expectCall(k *claimer, away bool) pace.Instant {
	b := k.Of.Bucket
	before := &group{b, b.callers.Before(k, away, w.now)}
	slots := before.Slots
	if b.queue.Waiting() > 0 {
		slots += b.callers.JobsBefore(slots)
	}
	at, down := w.health.Down(b.Target)
	switch {
	case !down:
		return w.expectSlots(slots, before, k.Takes)
	case slots > 0:
		return pace.Never
	}
	return max(at, w.limits.holdOf(b, w.now).Until)
}

// expect returns the time until a job starts, assuming success; 0: it has started.
func (w View) expect(p *Part, seq uint64) (wait time.Duration, known bool) {
	j := p.seek(seq)
	if j == nil {
		return 0, seq <= p.highest
	}
	at := w.now
	switch j.stage {
	case stageWaiting:
		at = w.expectJob(j, j.Bucket.queue.SlotsBefore(&j.Job))
	case stageDelayed:
		at = j.At
	}
	if at == pace.Never {
		return 0, false
	}
	return max(0, at.Since(w.now)), true
}

const unknownRoom = time.Second

// room returns the Retry-After of a full bucket (law 7): the time to its next start, and at least
// one interval.
func (w View) room(p *Part, key queue.Key) time.Duration {
	b, wait := p.look(key), unknownRoom
	switch {
	case b.pace != nil:
		wait = b.pace.Interval
	case w.limits.takesTurns():
		wait = w.limits.turnEvery()
	case w.limits.quota != nil:
		wait = w.limits.quota.Interval()
	}
	wait = max(wait, w.limits.limited(b, oneSlot, w.now).Since(w.now))
	h := w.limits.holdOf(b, w.now)
	if h.Shut() || w.health.All.Open || b.Target.Down() {
		wait = max(wait, unknownRoom)
	}
	if h.Until < pace.Never {
		wait = max(wait, h.Until.Since(w.now))
	}
	if b.held > 0 && int(b.held) == b.queue.Later() {
		_, until := w.delayed(b)
		wait = max(wait, until.Since(w.now))
	}
	return wait
}

// tail returns the wait in ms of a job accepted now; nil: unpredictable, or no job waits.
func (w View) tail(p *Part, q job.Question) *int64 {
	if b := p.buckets[q.Key]; b != nil && b.queue.Len() > 0 {
		before := b.slotsFor(q.Priority, w.limits.wall.reading(w.now).Wall.UnixNano())
		takes := quota.Cost{Job: max(q.Cost, 1), Named: q.Costs}
		return millisTo(w.expectBucket(b, before, takes), w.now)
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
