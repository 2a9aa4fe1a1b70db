package valve

import (
	"math"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
	"github.com/penstock-mq/penstock/workers/internal/walk"
)

// forecast tells under an outflow_total how many slots go to others before a bucket's turn comes.
// To count them afresh for each job and bucket that is asked about would be a walk of all buckets
// each time, in the loop that starts jobs; so one walk is made for all questions of a while.
//
// It is an approximation: every bucket takes its turns evenly, by weight, in jobs of its average
// cost, and how far ahead a turn lies is known to one part in 64, or to one turn when it is less
// than 127 ahead. What is told is late rather than early: by at most a job of each other bucket.
//
// Late is the better error: a start that was foretold has then happened.
type forecast struct {
	made  pace.Instant
	from  pace.Instant // when the policy could start its next job
	turns float64      // that counted as taken

	// A bucket's slots grow with the turns from a first one on up to a last one, as fixed +
	// slope·turn. These are sums over all buckets whose line begins (or, to be taken away, ends) in
	// a bin or before.
	fixed, slope [turnBins]float64
}

const (
	// mostExact is how many buckets a valve may have for a walk for each question to be cheap
	// enough.
	mostExact = 1000
	// forecastFor is how long a forecast is used, and forecastPerBucket what makes those of many
	// buckets rarer.
	forecastFor       = 100 * time.Millisecond
	forecastPerBucket = time.Microsecond
	// staleForecast is the age from which on it tells nothing any more, when there is no time for
	// another.
	staleForecast = 2 * time.Second

	turnBits = 6 // of a turn's mantissa tell bins apart
	turnBins = 48 << turnBits
)

// walkPiece and expectPiece are how many buckets are looked at, and how many expected starts are
// told, in one piece of work.
//
// Either piece takes some ten microseconds.
const walkPiece, expectPiece = 256, 16

// turnBin is the bin of a number of turns ahead: bins get wider as floating-point numbers do.
func turnBin(turns float64) int {
	const mantissa, bias = 52, 1023
	return min(int(math.Float64bits(1+turns)>>(mantissa-turnBits))-bias<<turnBits, turnBins-1)
}

// add counts the slots of a bucket; sum must follow.
func (f *forecast) add(b *bucket, turns float64) {
	if !b.competes() {
		return
	}
	waiting := float64(b.waiting)
	perJob, weight := waiting/float64(b.queued()), float64(b.weight)
	first := max(0, max(b.turns, turns)-f.turns)
	last := first + (waiting-perJob)/weight
	f.line(first, perJob-first*weight, weight)
	f.line(last, last*weight, -weight)
}

// line adds a straight line from a turn on. Bins are summed up once, so that each question is a
// look at one of them.
func (f *forecast) line(from, fixed, slope float64) {
	bin := turnBin(from)
	f.fixed[bin] += fixed
	f.slope[bin] += slope
}

func (f *forecast) sum() {
	for i := 1; i < turnBins; i++ {
		f.fixed[i] += f.fixed[i-1]
		f.slope[i] += f.slope[i-1]
	}
}

// slotsBefore is how many slots all buckets take before a turn, those of the asking one included.
func (f *forecast) slotsBefore(turn float64) float64 {
	ahead := max(0, turn-f.turns)
	bin := turnBin(ahead)
	return f.fixed[bin] + f.slope[bin]*ahead
}

// competes reports whether a bucket takes turns under the total outflow.
func (b *bucket) competes() bool { return b.queued() > 0 && !b.paused }

// newForecast begins a forecast.
func (v *Valve) newForecast(now pace.Instant) *forecast {
	return &forecast{made: now, from: v.turnsFrom(now), turns: v.turns}
}

// foresees reports whether what is asked about a partition's jobs can be told at now without a
// walk.
func (v *Valve) foresees(p *Part, now pace.Instant) bool {
	return !v.takesTurns() || p.list.Len() <= mostExact || v.forecast != nil &&
		now.Since(v.forecast.made) < max(forecastFor, time.Duration(p.list.Len())*forecastPerBucket)
}

// foreseen is foresees after a look at some more buckets for the next forecast, when it needs one.
//
// One walk serves all that ask meanwhile, and goes on only while somebody asks: one that was given
// up is begun anew, for the first buckets of it have moved on.
func (v *Valve) foreseen(p *Part, now pace.Instant) bool {
	if v.foresees(p, now) {
		return true
	}
	c := v.coming
	if c != nil && (c.part != p || now.Since(c.lookedAt) > forecastFor) { // it is out of date
		c.walk.Stop()
		c = nil
	}
	if c == nil {
		c = &coming{part: p, walk: p.list.Walk(), forecast: v.newForecast(now)}
		v.coming = c
	}
	c.lookedAt = now
	if !c.walk.Some(walkPiece, func(b *bucket) { c.forecast.add(b, v.turns) }) {
		return false
	}
	c.forecast.sum()
	v.forecast, v.coming = c.forecast, nil
	return true
}

// coming is a forecast that is being made.
type coming struct {
	part     *Part
	walk     *walk.Walk[*bucket]
	forecast *forecast
	lookedAt pace.Instant // last: questions that are given up leave it half made
}

// oneSlot is what a job costs of which nothing is known.
var oneSlot = quota.Cost{Job: 1}

// unitsOf is what so many slots of a bucket's jobs cost, as if all of these had the same costs.
func (b *bucket) unitsOf(slots int64) quota.Ahead {
	if b.waiting == 0 {
		return quota.Ahead{}
	}
	return aheadOf(slots, b.waiting, int64(b.queued()), b.named)
}

func aheadOf(slots, waiting, queued int64, named map[string]int64) quota.Ahead {
	return quota.Ahead{Jobs: (slots*queued + waiting - 1) / waiting,
		Units: func(cost string) int64 {
			return int64(float64(slots) * float64(waiting+named[cost]) / float64(waiting))
		}}
}

// unitsOfAll is unitsOf for slots of all of a partition's buckets, by those that come first in it.
func (p *Part) unitsOfAll(slots int64) quota.Ahead {
	var waiting, queued int64
	named, looked := map[string]int64{}, 0
	for _, b := range p.list.All() {
		if looked++; looked > mostExact {
			break
		}
		waiting, queued = waiting+b.waiting, queued+int64(b.queued())
		for name, n := range b.named {
			named[name] += n
		}
	}
	if waiting == 0 {
		return quota.Ahead{}
	}
	return aheadOf(slots, waiting, queued, named)
}

// limited is when the limits on starts let a bucket start a job that costs c after so many slots of
// its own and of other buckets, and which holds it longest; at most now where none does.
func (v *Valve) limited(b *bucket, slots, others int64, c quota.Cost,
	now pace.Instant) (at pace.Instant, by string) {

	later := func(wait time.Duration, limit string) {
		if wait > 0 && now.Add(wait) > at {
			at, by = now.Add(wait), limit
		}
	}
	if v.quota != nil {
		later(v.quota.After(b.used, v.instant(now), b.unitsOf(slots), c))
	}
	for _, t := range v.common {
		if !v.elsewhere(t) {
			later(t.After(t.used, v.instant(now), b.Part.unitsOfAll(slots+others), c))
		}
	}
	return at, by
}

// expectBucket is how long a bucket would take to start a job that costs c after so many slots of
// its own; nil while nobody can tell: while it is paused, held by its concurrency or a breaker, or
// being taken over, or there is no worker for it, or there is no forecast that it needs.
//
// Nothing is said rather than something that depends on a person or on another's target.
func (v *Valve) expectBucket(b *bucket, slots int64, c quota.Cost, now pace.Instant) *int64 {
	if b.blocked() || v.breaker.open || b.down() || b.Part.state != partitionLive ||
		v.Free() <= 0 && v.claims.declined {
		return nil
	}
	at, others := v.startable(b, now), int64(0)
	if b.pace != nil {
		at = max(at, now.Add(-b.pace.Credit)).Add(pace.Times(slots, b.pace.Interval))
	}
	if v.takesTurns() {
		of, from, known := v.slotsOfOthers(b, slots, now)
		if !known {
			return nil
		}
		others = of + v.slotsOfLine(slots+of)
		at = max(at, from.Add(pace.Times(slots+others, v.turnEvery())))
	}
	limited, _ := v.limited(b, slots, others, c, now)
	at = max(at, limited)
	ms := ceilMillis(max(0, at.Since(now)))
	return &ms
}

// slotsOfOthers is how many slots go to other buckets from an instant on before one has taken so
// many and starts another job, while every bucket with work takes its turns by weight.
func (v *Valve) slotsOfOthers(b *bucket, slots int64,
	now pace.Instant) (others int64, from pace.Instant, known bool) {
	turn := max(b.turns, v.turns) + float64(slots)/float64(b.weight)
	if b.Part.list.Len() > mostExact {
		f := v.forecast
		if f == nil || f.from == pace.Never || now.Since(f.made) > staleForecast {
			return 0, 0, false
		}
		before := f.slotsBefore(turn)
		if b.competes() {
			before -= min(float64(b.waiting),
				float64(slots)+float64(b.waiting)/float64(b.queued()))
		}
		return int64(max(0, before)), f.from, true
	}
	for _, other := range b.Part.list.All() {
		if other != b {
			others += v.slotsUntil(other, turn)
		}
	}
	from = v.turnsFrom(now)
	return others, from, from < pace.Never
}

// slotsUntil is how many slots a bucket takes until a turn.
func (v *Valve) slotsUntil(b *bucket, turn float64) int64 {
	if !b.competes() {
		return 0
	}
	perJob := float64(b.waiting) / float64(b.queued())
	// It starts jobs as long as it is not past the turn, so the last one reaches beyond.
	if ahead := (turn - max(b.turns, v.turns)) * float64(b.weight); ahead >= 0 {
		return min(b.waiting, int64((math.Floor(ahead/perJob)+1)*perJob))
	}
	return 0
}

// expectJob is expectBucket for a job that waits. One that is due and has no worker starts when one
// becomes free, which nobody can tell.
func (v *Valve) expectJob(j *heldJob, slots int64, now pace.Instant) *int64 {
	ms := v.expectBucket(j.Bucket, slots, j.takes(), now)
	if ms != nil && *ms == 0 && !v.mayTakeWorker(j.Bucket) {
		return nil
	}
	return ms
}

// expect says how long it will be until a job starts, while nothing fails: 0 when it has started.
// It is not known for a job that has not arrived, and while nobody can tell: see expectBucket.
func (v *Valve) expect(p *Part, seq uint64,
	now pace.Instant) (wait time.Duration, known bool) {
	j := v.seek(p, seq)
	if j == nil {
		return 0, seq <= p.highest
	}
	switch j.stage {
	case stageWaiting:
		ms := v.expectJob(j, j.Bucket.slotsBefore(j), now)
		if ms == nil {
			return 0, false
		}
		return time.Duration(*ms) * time.Millisecond, true
	case stageDelayed:
		return max(0, j.at.Since(now)), true
	}
	return 0, true
}

// unknownRoom is when a place may be free again of a bucket whose next start nobody can tell.
const unknownRoom = time.Second

// room is how long it will be until the bucket's next start, at least one interval: when a place
// may be free again. Without a pace, and while the bucket is paused or held by its concurrency or a
// breaker, it is at least unknownRoom.
//
// It is the Retry-After of a full bucket (law 7). To come back sooner would be refused again; later
// costs little.
func (v *Valve) room(p *Part, key job.Key, now pace.Instant) time.Duration {
	l, b := v.limitsOf(key), p.buckets[key]
	if b != nil {
		l = b.limits
	}
	wait := unknownRoom
	switch {
	case l.pace != nil:
		wait = l.pace.Interval
	case v.takesTurns():
		wait = v.turnEvery()
	case v.quota != nil:
		wait = v.quota.Interval()
	}
	if l.paused || v.breaker.open || b != nil && (b.blocked() || b.down()) {
		wait = max(wait, unknownRoom)
	}
	if b != nil {
		limited, _ := v.limited(b, 0, 0, oneSlot, now)
		wait = max(wait, v.startable(b, now).Since(now), limited.Since(now))
	}
	return wait
}

// tail is how long the job of a question waits that is accepted now, in milliseconds; nil while
// nobody can tell, and where no job waits.
func (v *Valve) tail(p *Part, q job.Question, now pace.Instant) *int64 {
	if b := p.buckets[q.Key]; b != nil && b.queued() > 0 {
		cost := quota.Cost{Job: max(q.Cost, 1), Named: q.Costs}
		return v.expectBucket(b, b.slotsFor(q.Priority, v.wall(now).UnixNano()), cost, now)
	}
	return nil
}

func ceilMillis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
