package workers

import (
	"cmp"
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

// expectBucket is how long a bucket would take to start a job after so many slots of others; nil while nobody can tell:
// while it is paused, held by its concurrency or a breaker, or being taken over, or there is no worker for it.
func (v *valve) expectBucket(b *bucket, slots int64, now instant) *int64 {
	if b.blocked() || v.breaker.open || b.down() || b.part.state != partitionLive || v.free() <= 0 && v.claims.declined {
		return nil
	}
	at := v.startable(b)
	if b.pace != nil {
		at = max(at, now.add(-b.pace.credit)).add(times(slots, b.pace.interval))
	}
	if v.total != nil {
		slots += v.slotsOfOthers(b, slots)
		at = max(at, max(now, v.total.next(&v.totalClock)).add(times(slots, v.total.interval)))
	}
	ms := ceilMillis(max(0, at.since(now)))
	return &ms
}

// slotsOfOthers is how many slots go to other buckets before one has taken so many and starts another job, while every
// bucket with work takes its turns by weight.
func (v *valve) slotsOfOthers(b *bucket, slots int64) (others int64) {
	turn := max(b.turns, v.turns) + float64(slots)/float64(b.weight)
	for _, part := range v.parts {
		for _, other := range part.buckets {
			if other == b || len(other.ready) == 0 || other.paused {
				continue
			}
			waiting := other.slotsFor(queue.MinPriority)
			perJob := float64(waiting) / float64(len(other.ready))
			// It starts jobs as long as it is not past the turn, so the last one reaches beyond.
			if ahead := (turn - max(other.turns, v.turns)) * float64(other.weight); ahead >= 0 {
				others += min(waiting, int64((math.Floor(ahead/perJob)+1)*perJob))
			}
		}
	}
	return others
}

// expectJob is expectBucket for a job that waits. One that is due and has no worker starts when one becomes free, which
// nobody can tell.
func (v *valve) expectJob(j *job, slots int64, now instant) *int64 {
	ms := v.expectBucket(j.bucket, slots, now)
	if ms != nil && *ms == 0 && !v.mayTakeWorker(j.bucket) {
		return nil
	}
	return ms
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
type listed struct{ *bucket }

func (b listed) before(c listed) bool {
	return b.held < c.held || b.held == c.held && b.key > c.key
}
func (b listed) moved(int) {}

// deepest lists the buckets of a partition that hold most, after leaving out the first. It looks at each bucket once and
// sorts only those that are listed, because starts wait meanwhile.
func (v *valve) deepest(p *partition, offset, limit int, now instant, wall time.Time) (states []queue.BucketState, total int) {
	const most = 10_000
	const mostListedError = 128 // bytes: many buckets must fit a message
	offset, limit = min(max(offset, 0), most), min(max(limit, 0), most)
	var top heap[listed]
	for _, b := range p.buckets {
		if b.held == 0 {
			continue
		}
		total++
		if len(top) < offset+limit {
			top.push(listed{b})
		} else if len(top) > 0 && top[0].before(listed{b}) {
			top[0] = listed{b}
			top.fix(0)
		}
	}
	slices.SortFunc(top, func(a, b listed) int {
		return cmp.Or(cmp.Compare(b.held, a.held), cmp.Compare(a.key, b.key))
	})
	for _, b := range top[min(offset, len(top)):] {
		state := v.bucketState(p, b.key, now, wall)
		state.LastError = clip(state.LastError, mostListedError)
		states = append(states, state)
	}
	return states, total
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
		position, slots := 0, int64(0)
		for _, other := range j.bucket.ready {
			if other.before(orderedJob{j}) {
				position++
				slots += other.Cost
			}
		}
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

// cancel drops a job on an operator's word, unless it runs.
func (v *valve) cancel(p *partition, seq uint64, now instant) (removed int) {
	return v.dismiss(p, seq, queue.EndCancelled, now)
}

func (v *valve) dismiss(p *partition, seq uint64, how queue.End, now instant) (removed int) {
	j := p.jobs[seq]
	if j == nil || j.stage != stageWaiting && j.stage != stageDelayed {
		return 0
	}
	v.detach(j)
	if e, keyed := j.ended(how); keyed { // it is acknowledged once its repeats are told
		j.enter(stageAcking)
		v.out.endings = append(v.out.endings, ending{recordOf: recordOf{p, seq}, Ended: e})
	} else {
		v.ack(j)
	}
	v.out.cancelled = append(v.out.cancelled, j)
	v.place(j.bucket, now)
	return 1
}

// purge drops the jobs of a bucket on an operator's word, those that run excepted.
func (v *valve) purge(p *partition, key queue.Key, now instant) (removed int) {
	b := p.buckets[key]
	if b == nil {
		return 0
	}
	for seq, j := range p.jobs {
		if j.bucket == b {
			removed += v.dismiss(p, seq, queue.EndPurged, now)
		}
	}
	return removed
}

// expect says how long it will be until a job starts, while nothing fails: 0 when it has started. It is not known for a
// job that has not arrived, and while nobody can tell: see expectBucket.
func (v *valve) expect(p *partition, seq uint64, now instant) (wait time.Duration, known bool) {
	j := p.jobs[seq]
	if j == nil {
		return 0, seq <= p.highest
	}
	switch j.stage {
	case stageWaiting:
		ms := v.expectJob(j, j.bucket.slotsBefore(j), now)
		if ms == nil {
			return 0, false
		}
		return time.Duration(*ms) * time.Millisecond, true
	case stageDelayed:
		return max(0, j.at.since(now)), true
	}
	return 0, true
}

// unknownRoom is when a place may be free again of a bucket whose next start nobody can tell.
const unknownRoom = time.Second

// room is how long it will be until the bucket's next start, at least one interval: when a place may be free again. Without
// a pace, and while the bucket is paused or held by its concurrency or a breaker, it is at least unknownRoom.
func (v *valve) room(p *partition, key queue.Key, now instant) time.Duration {
	l, b := v.limitsOf(key), p.buckets[key]
	wait := unknownRoom
	switch {
	case l.pace != nil:
		wait = l.pace.interval
	case v.total != nil:
		wait = v.total.interval
	}
	if l.paused || v.breaker.open || b != nil && (b.blocked() || b.down()) {
		wait = max(wait, unknownRoom)
	}
	if b != nil {
		wait = max(wait, v.startable(b).since(now))
	}
	return wait
}
