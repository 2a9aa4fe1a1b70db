package workers

import (
	"math"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

// mostRates is how many buckets a partition has before those that have nothing to do are forgotten although their rate of
// starts is not: what starts a job now and then would always be new.
const mostRates = 10_000

// rateMemory is the time over which a bucket's rate of starts is averaged, with exponentially falling weights.
func (b *bucket) rateMemory() time.Duration {
	const least = 5 * time.Second
	if b.pace == nil {
		return least
	}
	return max(least, min(3*b.pace.interval, time.Hour))
}

// faded is what is left of a weight after some time.
func faded(after, memory time.Duration) float64 { return math.Exp(-after.Seconds() / memory.Seconds()) }

// counted notes a start for the bucket's rate.
func (b *bucket) counted(now instant) {
	memory := b.rateMemory()
	if b.rateAt == 0 {
		b.rateAt, b.rateSince = now, now
		if b.pace != nil { // each start stands for half an interval before it, and half a one after it
			b.rateSince = now.add(-min(b.pace.interval, memory) / 2)
		}
	}
	b.rate = b.rate*float32(faded(now.since(b.rateAt), memory)) + float32(1/memory.Seconds())
	b.rateAt = now
}

// rateNow is how many jobs a second the bucket has started lately: over so much of the memory as has been since its first.
func (b *bucket) rateNow(now instant) float64 {
	if b.rateAt == 0 {
		return 0
	}
	memory := b.rateMemory()
	seen := 1 - faded(max(time.Second, now.since(b.rateSince)), memory)
	return float64(b.rate) * faded(now.since(b.rateAt), memory) / seen
}

// roundRate leaves three digits, also of ten a day.
func roundRate(perSecond float64) float64 {
	if perSecond < 1e-6 {
		return 0
	}
	scale := math.Pow(10, 2-math.Floor(math.Log10(perSecond)))
	return math.Round(perSecond*scale) / scale
}

// held says what keeps a bucket from starting its next job, and until when; 0 while nobody can tell. It is nothing for a
// bucket without jobs that wait, and for one that starts one at this moment.
func (v *valve) held(b *bucket, now instant) (by string, until instant) {
	switch {
	case len(b.ready)+len(b.later) == 0:
		return "", 0
	case v.paused:
		return queue.HeldByPolicyPaused, 0
	case b.paused:
		return queue.HeldByPaused, 0
	case b.part.state != partitionLive || !v.open || b.noting > 0:
		return queue.HeldByStorage, 0
	case len(b.ready) == 0:
		return b.later[0].held(), b.later[0].at
	case v.breaker.open:
		return queue.HeldByBreaker, v.breaker.next(now)
	case b.down():
		return queue.HeldByBreaker, b.target.next(now)
	case b.blocked() || b.concurrency > 0 && b.part.unseen > 0:
		return queue.HeldByConcurrency, 0
	case b.cool > now:
		return queue.HeldByCooling, b.cool
	}
	if at := v.startable(b); at > now {
		return queue.HeldByRate, at
	}
	if v.total != nil {
		if at := v.total.next(&v.totalClock); at > now {
			return queue.HeldByTotalRate, at
		}
	}
	switch {
	case v.mayTakeWorker(b) || !v.local && !v.claims.declined:
		return "", 0
	case !v.local && v.claims.nobody:
		return queue.HeldByNoWorker, 0
	}
	return queue.HeldByWorkersBusy, 0
}

// held says what a job waits for that may not start yet.
func (j *job) held() string {
	if j.attempts > 0 {
		return queue.HeldByBackoff
	}
	return queue.HeldByNotBefore
}

// heldJob is held for one job.
func (v *valve) heldJob(j *job, now instant) (by string, until instant) {
	switch j.stage {
	case stageSaving, stageBurying:
		return queue.HeldByStorage, 0
	case stageWaiting, stageDelayed:
		by, until = v.held(j.bucket, now)
	}
	if j.stage == stageDelayed && by != queue.HeldByPaused && by != queue.HeldByPolicyPaused {
		return j.held(), j.at
	}
	return by, until
}

// hold is what is said of it.
func hold(by string, until, now instant, wall time.Time) queue.Hold {
	if until == 0 {
		return queue.Hold{By: by}
	}
	at := wall.Add(until.since(now)).UTC().Round(time.Millisecond)
	return queue.Hold{By: by, Until: &at}
}

// bucketState tells how a bucket stands.
func (v *valve) bucketState(p *partition, key queue.Key, now instant, wall time.Time) queue.BucketState {
	l := v.limitsOf(key)
	s := queue.BucketState{Key: key, Paused: l.paused}
	b := p.buckets[key]
	if b == nil {
		if !l.paused {
			b = &bucket{key: key, part: p, limits: l}
			s.ExpectMS = v.expectBucket(b, 0, now)
		}
		return s
	}
	s.Depth, s.Waiting, s.Running = b.held, len(b.ready), b.running
	s.Rate = roundRate(b.rateNow(now))
	s.CoolingMS = max(0, ceilMillis(b.cool.since(now)))
	s.ExpectMS = v.expectBucket(b, b.slotsFor(0), now)
	s.Delayed = len(b.later)
	by, until := v.held(b, now)
	s.Hold, s.LastError = hold(by, until, now, wall), b.lastError
	if len(b.ready) > 0 {
		s.HeadAgeMS = max(0, wall.Sub(b.ready[0].Stored).Milliseconds())
	}
	return s
}

// listed orders buckets for a list that keeps the deepest: the one that would be left out first comes first.
type listed struct {
	*bucket
	depth int // when it was found
}

func (b listed) before(c listed) bool {
	return b.depth < c.depth || b.depth == c.depth && b.key > c.key
}
func (b listed) moved(int) {}

// listing is a list of the buckets of a partition that hold most, in the making.
type listing struct {
	walk          *walk
	forecast      *forecast // made by the same walk, when there is none
	offset, limit int
	found         []listed            // all that hold jobs
	page          heap[listed]        // of them, once picked
	states        []queue.BucketState // of these
}

// mostPickedAtOnce is how many buckets the loop picks a page of by itself. In the worst order each of
// them takes the place of another.
const mostPickedAtOnce = 1000

// deepest begins a list that leaves out the first so many.
func (v *valve) deepest(p *partition, offset, limit int, now instant) *listing {
	const most = 10_000
	l := &listing{
		walk: p.walk(), offset: min(max(offset, 0), most), limit: min(max(limit, 0), most),
		found: make([]listed, 0, len(p.list)),
	}
	if !v.foresees(p, now) {
		l.forecast = v.newForecast(now)
	}
	return l
}

// find looks at some more buckets, and reports whether those were the last.
func (v *valve) find(l *listing) (done bool) {
	done = l.walk.some(walkPiece, func(b *bucket) {
		if b.held > 0 {
			l.found = append(l.found, listed{b, b.held})
		}
		if l.forecast != nil {
			l.forecast.add(b, v.turns)
		}
	})
	if done && l.forecast != nil {
		l.forecast.sum()
		v.forecast = l.forecast
	}
	return done
}

// pick sorts out what is on the page, as far as it must. It needs nothing of the loop, and must not
// look at what may change.
func (l *listing) pick() {
	for _, b := range l.found {
		if len(l.page) < l.offset+l.limit {
			l.page.push(b)
		} else if len(l.page) > 0 && l.page[0].before(b) {
			l.page[0] = b
			l.page.fix(0)
		}
	}
}

// tell looks at how some of the buckets stand, and reports whether those were the last.
func (v *valve) tell(l *listing, now instant, wall time.Time) (done bool) {
	const mostListedError = 128 // bytes: many buckets must fit a message
	for range expectPiece {
		if len(l.page) <= l.offset {
			slices.Reverse(l.states) // as they were when they were found
			return true
		}
		state := v.bucketState(l.walk.part, l.page.remove(0).key, now, wall)
		state.LastError = clip(state.LastError, mostListedError)
		l.states = append(l.states, state)
	}
	return false
}

// jobState tells how a job stands; nil for one that is not held.
func (v *valve) jobState(p *partition, seq uint64, now instant, wall time.Time) *queue.JobState {
	j := p.jobs[seq]
	if j == nil {
		return nil
	}
	s := &queue.JobState{Seq: seq, Key: j.Key, Attempts: j.attempts, LastError: j.lastError, AcceptedAt: j.Stored}
	zero := int64(0)
	by, until := v.heldJob(j, now)
	switch j.stage {
	case stageWaiting:
		position, slots := j.position()
		s.State, s.Position, s.ExpectMS = queue.JobWaiting, &position, v.expectJob(j, slots, now)
		if s.ExpectMS != nil && position > 0 && (by == queue.HeldByRate || by == queue.HeldByTotalRate) {
			until = now.add(time.Duration(*s.ExpectMS) * time.Millisecond) // and not when the first of them starts
		}
	case stageDelayed:
		s.State = queue.JobDelayed
		if !j.bucket.paused {
			wait := ceilMillis(max(0, j.at.since(now)))
			s.ExpectMS = &wait
		}
	case stageRunning:
		s.State, s.ExpectMS = queue.JobRunning, &zero
	default:
		s.State, s.ExpectMS = queue.JobFinishing, &zero
	}
	s.Hold = hold(by, until, now, wall)
	return s
}

// position is how many jobs, and how many slots, of its bucket start before a job that waits. Of a long
// queue it is an estimate, as if all jobs of it had the same cost.
func (j *job) position() (jobs int, slots int64) {
	const mostCounted = 4096
	b := j.bucket
	if len(b.ready) > mostCounted {
		slots = b.slotsBefore(j)
		return j.jobsBefore(slots), slots
	}
	for _, other := range b.ready {
		if other.before(orderedJob{j}) {
			jobs++
			slots += other.Cost
		}
	}
	return jobs, slots
}

// jobsBefore is how many jobs of its bucket so many slots before a job are, as if all jobs had the same cost.
func (j *job) jobsBefore(slots int64) int {
	return int(slots * int64(len(j.bucket.ready)) / j.bucket.waiting)
}

// cancel drops a job on an operator's word, unless it runs.
func (v *valve) cancel(p *partition, seq uint64, now instant) (removed int) {
	j := p.jobs[seq]
	if j == nil {
		return 0
	}
	removed = v.dismiss(j, queue.EndCancelled)
	v.place(j.bucket, now)
	return removed
}

// dismiss drops a job that does not run; its bucket must be placed afterwards.
func (v *valve) dismiss(j *job, how queue.End) (removed int) {
	if j.stage != stageWaiting && j.stage != stageDelayed {
		return 0
	}
	v.detach(j)
	if e, keyed := j.ended(how); keyed { // it is acknowledged once its repeats are told
		j.enter(stageAcking)
		v.out.endings = append(v.out.endings, ending{recordOf: recordOf{j.bucket.part, j.Seq}, Ended: e})
	} else {
		v.ack(j)
	}
	v.out.cancelled = append(v.out.cancelled, j)
	return 1
}

// waiting lists the jobs of a bucket that do not run.
func (p *partition) waiting(key queue.Key) (jobs []*job) {
	b := p.buckets[key]
	if b == nil {
		return nil
	}
	jobs = make([]*job, 0, len(b.ready)+len(b.later))
	for _, j := range b.ready {
		jobs = append(jobs, j.job)
	}
	for _, j := range b.later {
		jobs = append(jobs, j.job)
	}
	return jobs
}

// purge drops jobs of one bucket on an operator's word, unless they run by now.
func (v *valve) purge(jobs []*job, now instant) (removed int) {
	for _, j := range jobs {
		removed += v.dismiss(j, queue.EndPurged)
	}
	if len(jobs) > 0 {
		v.place(jobs[0].bucket, now)
	}
	return removed
}
