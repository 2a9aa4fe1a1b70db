package workers

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

// rateMemory is the time over which a bucket's rate of starts is averaged, with exponentially falling weights.
const rateMemory = 5 * time.Second

// counted notes a start for the bucket's rate.
func (b *bucket) counted(now instant) {
	b.rate = b.rateNow(now) + float32(1/rateMemory.Seconds())
	b.rateAt = now
}

func (b *bucket) rateNow(now instant) float32 {
	return b.rate * float32(math.Exp(-now.since(b.rateAt).Seconds()/rateMemory.Seconds()))
}

// expectBucket is how long a bucket would take to start a job after so many slots of others; nil while nobody can tell:
// while it is paused, held by its concurrency or being taken over, or there is no worker for it.
func (v *valve) expectBucket(b *bucket, slots int64, now instant) *int64 {
	if b.blocked() || b.part.state != partitionLive || v.free() <= 0 && v.claims.declined {
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
	s.Rate = math.Round(float64(b.rateNow(now))*100) / 100
	s.CoolingMS = max(0, ceilMillis(b.cool.since(now)))
	s.ExpectMS = v.expectBucket(b, b.slotsFor(0), now)
	s.Delayed = b.delayed
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
		states = append(states, v.bucketState(p, b.key, now, wall))
	}
	return states, total
}

// jobState tells how a job stands; nil for one that is not held.
func (v *valve) jobState(p *partition, seq uint64, now instant) *queue.JobState {
	j := p.jobs[seq]
	if j == nil {
		return nil
	}
	s := &queue.JobState{Seq: seq, Key: j.Key, Attempts: j.attempts, LastError: j.lastError, AcceptedAt: j.Stored}
	zero := int64(0)
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
	return s
}

// cancel drops a job on an operator's word, unless it runs.
func (v *valve) cancel(p *partition, seq uint64, now instant) (removed int) {
	j := p.jobs[seq]
	if j == nil || j.stage != stageWaiting && j.stage != stageDelayed {
		return 0
	}
	v.detach(j)
	v.ack(j)
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
			removed += v.cancel(p, seq, now)
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
// a pace, and while the bucket is paused or held by its concurrency, it is at least unknownRoom.
func (v *valve) room(p *partition, key queue.Key, now instant) time.Duration {
	l, b := v.limitsOf(key), p.buckets[key]
	wait := unknownRoom
	switch {
	case l.pace != nil:
		wait = l.pace.interval
	case v.total != nil:
		wait = v.total.interval
	}
	if l.paused || b != nil && b.blocked() {
		wait = max(wait, unknownRoom)
	}
	if b != nil {
		wait = max(wait, v.startable(b).since(now))
	}
	return wait
}
