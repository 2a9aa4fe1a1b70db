package valve

import (
	"iter"
	"math"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/deep"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// Jobs that wait far from their turn are kept deep when memory is short: as records of some bytes,
// without their text (headers and body), which is read again from the stream before they start. A
// job that comes near is a held job like all others, but lean, and what was left out of it comes
// with its body: see fetch.
//
// Only a job goes deep of which nothing is known but what its headers say, that waits behind
// another of its bucket, and that came after all that are deep: those are nearly all. What is near
// of a bucket may be more than what goes before the deep ones; but its first job is always near.

// Memory is how much of it the waiting jobs of a process may take, in all its valves. It is a
// budget, and no bound: what must be near is near.
type Memory struct {
	most int64 // bytes; 0: as many as it takes
	near int64 // bytes that near jobs take, about
	deep int64 // how many are deep
}

// NewMemory is a budget of so many bytes; 0: as many as it takes.
func NewMemory(most int64) *Memory { return &Memory{most: most} }

// Share has a valve share a budget with others, before it has a partition.
func (v *Valve) Share(m *Memory) { v.memory = m }

const (
	// nearBytes is what a near job takes besides its text: itself, and its places in the maps and
	// heaps. headerBytes is what its headers take besides theirs.
	nearBytes   = 400
	headerBytes = 350
	// mostLapsing is how many jobs that expired may be on their way to their letters before more of
	// those that are deep expire, and lapsePause when it is looked again.
	mostLapsing = 1000
	lapsePause  = 100 * time.Millisecond
)

// short reports whether new jobs go deep, if they can. However many are deep, a quarter of the
// memory is for those that are near.
func (m *Memory) short() bool {
	return m.most > 0 && m.near >= max(m.most/4, m.most-m.deep*deep.JobBytes)
}

// weigh counts a near job's memory, until unweigh or until its partition is left.
func (v *Valve) weigh(j *heldJob) {
	bytes := nearBytes + len(j.Body)
	if j.Header != nil {
		bytes += headerBytes
		for name, values := range j.Header {
			for _, value := range values {
				bytes += len(name) + len(value)
			}
		}
	}
	j.weight = int32(min(bytes, math.MaxInt32))
	j.Bucket.Part.near += int64(j.weight)
	v.memory.near += int64(j.weight)
}

func (v *Valve) unweigh(j *heldJob) {
	if p := j.Bucket.Part; p.state <= partitionLive { // else all of them were taken off
		p.near -= int64(j.weight)
		v.memory.near -= int64(j.weight)
	}
	j.weight = 0
}

// lane of the jobs that are deep: their bucket and priority own it.
type deepLane struct {
	*bucket
	priority int
}

// queued is how many jobs of a bucket wait for a slot.
func (b *bucket) queued() int { return len(b.ready) + b.deep }

// sinks reports whether a job that has just come is to wait deep.
func (v *Valve) sinks(j *heldJob) bool {
	b := j.Bucket
	known := j.recorded || j.Attempts > 0 || j.crashes > 0 || len(j.Costs) > 0
	return !known && (b.deep > 0 || v.memory.short()) && len(b.ready) > 0 &&
		!j.rank().before(b.ready[0].rank()) && b.Part.deep.Takes(j.Seq)
}

// sink has it wait deep: from now on it is no held job.
func (v *Valve) sink(j *heldJob) {
	b := j.Bucket
	p, l := b.Part, b.lane(j.Priority)
	if !l.lined {
		l.line, l.lined = p.deep.Open(deepLane{b, j.Priority}), true
	}
	expires := j.Stored.Add(time.Duration(v.Policy.MaxAge))
	if !j.Deadline.IsZero() && j.Deadline.Before(expires) {
		expires = j.Deadline
	}
	_, keyed := j.ended(job.EndCancelled)
	p.deep.Add(l.line, deep.Job{Seq: j.Seq, Stored: j.Stored.UnixNano(),
		Expires: expires.UnixNano(), Mark: j.mark, Cost: j.Cost,
		Size: int32(min(j.Size, math.MaxInt32)), Keyed: keyed, Generation: j.generation})
	delete(p.jobs, j.Seq)
	v.unweigh(j)
	v.memory.deep++
	b.deep++
	b.waiting += j.Cost
	l.waiting += j.Cost
}

// lift takes a job that is deep away and returns it as one that nobody holds: waiting, and nowhere
// counted but among those of its bucket. nil: there is none of this sequence.
func (v *Valve) lift(p *Part, seq uint64) *heldJob {
	j := v.fathom(p, seq)
	if j != nil {
		p.deep.Take(seq)
		v.memory.deep--
		b, l := j.Bucket, j.Bucket.lane(j.Priority)
		b.deep--
		b.waiting -= j.Cost
		l.waiting -= j.Cost
	}
	return j
}

// fathom returns a job that is deep, as a held job would be; it stays deep. nil: there is none.
func (v *Valve) fathom(p *Part, seq uint64) *heldJob {
	d, of, ok := p.deep.Find(seq)
	if !ok {
		return nil
	}
	return &heldJob{
		Arrived: job.Arrived{Seq: seq, Key: of.key, Partition: p.Number,
			Stored: time.Unix(0, d.Stored).UTC(), Size: int(d.Size),
			Deadline: time.Unix(0, d.Expires).UTC(), Cost: d.Cost, Priority: of.priority,
			Lean: true},
		Bucket: of.bucket, headless: true, keyed: d.Keyed, generation: d.Generation,
		mark: d.Mark, expires: v.dateAt(d.Expires), inBucket: -1, inTimers: -1,
	}
}

// seek returns a job of a partition, wherever it waits; one that is deep is only to be looked at.
func (v *Valve) seek(p *Part, seq uint64) *heldJob {
	if j := p.jobs[seq]; j != nil {
		return j
	}
	return v.fathom(p, seq)
}

// raise makes a job that is deep one that is near.
func (v *Valve) raise(p *Part, seq uint64) *heldJob {
	j := v.lift(p, seq)
	if j != nil {
		p.jobs[seq] = j
		v.weigh(j)
		v.enqueue(j)
		j.raised = true
		j.Bucket.raised++
	}
	return j
}

// surface raises what a bucket starts next, as far ahead as their text is read. It is called before
// the first of those that are near is looked at, which so is the bucket's first (law 4).
//
// Among those that are near may be many that go behind: more are raised only while the last of them
// is one, and then no more than can be read ahead.
func (v *Valve) surface(b *bucket, now pace.Instant) {
	for b.deep > 0 {
		first, expires := b.firstDeep()
		n, ahead := len(b.ready), b.ahead()
		next := n == 0 || first.before(b.ready[0].rank())
		soon := b.raised < ahead && (n < ahead || first.before(b.ready[n-1].rank()))
		if !next && !soon || b.Part.burying >= mostLapsing && v.dateAt(expires) <= now {
			return // or lapse will take it
		}
		v.raise(b.Part, first.seq)
	}
}

// firstDeep is the first of a bucket's jobs that are deep, of which there must be some, and when it
// expires.
func (b *bucket) firstDeep() (first rank, expires int64) {
	for i := range b.lanes {
		l := &b.lanes[i]
		if !l.lined || first.seq != 0 && l.priority <= first.priority {
			continue
		}
		if d, some := b.Part.deep.First(l.line); some {
			first, expires = rank{priority: l.priority, seq: d.Seq}, d.Expires
		}
	}
	return first, expires
}

// ahead is how many jobs of a bucket are read ahead: what it can start within lead.
func (b *bucket) ahead() int {
	if b.pace == nil {
		return mostFetches
	}
	return min(mostFetches, int(lead/b.pace.Interval)+1)
}

// seen takes the delivery of a job that is deep already, and reports whether it is one. Another job
// of its sequence is no more: the stream was restored without it.
func (v *Valve) seen(p *Part, a *job.Arrived, now pace.Instant) bool {
	if p.deep.Len() == 0 {
		return false
	}
	if p.deep.See(a.Seq, a.Stored.UnixNano(), p.generation) {
		return true
	}
	if j := v.lift(p, a.Seq); j != nil {
		j.Bucket.held--
		v.out.Vanished++
		v.place(j.Bucket, now)
	}
	return false
}

// sweepDeep lets go of the jobs that are deep and were not delivered again. It returns their
// buckets, which must be placed when all that was missed is gone: to place one raises jobs.
func (v *Valve) sweepDeep(p *Part) (of []*bucket) {
	for _, seq := range p.deep.Unseen(p.generation, p.last) {
		j := v.lift(p, seq)
		j.Bucket.held--
		v.out.Vanished++
		if n := len(of); n == 0 || of[n-1] != j.Bucket {
			of = append(of, j.Bucket)
		}
	}
	return of
}

// deepIn are the jobs of a lane that are deep.
func (p *Part) deepIn(l lane) iter.Seq[deep.Job] {
	if !l.lined {
		return func(func(deep.Job) bool) {}
	}
	return p.deep.Line(l.line)
}

// loseDeep lets go of all that are deep: their stream is gone.
func (v *Valve) loseDeep(p *Part) {
	v.out.Vanished += p.deep.Len()
	v.memory.deep -= int64(p.deep.Len())
	for _, b := range p.list {
		for i := range b.lanes {
			l := &b.lanes[i]
			for d := range p.deepIn(*l) {
				l.waiting -= d.Cost
				b.waiting -= d.Cost
			}
		}
		b.held -= b.deep
		b.deep = 0
	}
	p.deep.Clear()
}

// unline gives the lines of a bucket back that is forgotten.
func (b *bucket) unline() {
	for i := range b.lanes {
		if l := &b.lanes[i]; l.lined {
			b.Part.deep.Close(l.line)
			l.lined = false
		}
	}
}

// stamp is what was said last of JetStream's clock.
type stamp struct {
	now  pace.Instant
	wall time.Time
}

// purges returns some of a bucket's jobs up to a sequence for a purge, those that are near before
// those that are deep, which it raises; none: there are no more.
func (v *Valve) purges(p *Part, key job.Key, last uint64) (jobs []*heldJob) {
	jobs = slices.DeleteFunc(p.waiting(key), func(j *heldJob) bool { return j.Seq > last })
	b := p.buckets[key]
	if b == nil {
		return jobs
	}
	for i := range b.lanes {
		for l := &b.lanes[i]; l.lined && len(jobs) < purgePiece; {
			first, ok := p.deep.First(l.line)
			if !ok || first.Seq > last {
				break
			}
			jobs = append(jobs, v.raise(p, first.Seq))
		}
	}
	return jobs
}

// dateAt is when a date is, in Unix ns, by what was said last of JetStream's clock.
func (v *Valve) dateAt(date int64) pace.Instant {
	return v.told.now.Later(time.Unix(0, date).Sub(v.told.wall))
}

// lapse lets jobs expire that are deep.
func (v *Valve) lapse(now pace.Instant) {
	if v.lapsesAt() > now {
		return
	}
	for _, p := range v.sortedParts() {
		for {
			at, seq, ok := p.deep.NextExpiry()
			if !ok || v.dateAt(at) > now {
				break
			}
			if p.burying >= mostLapsing {
				v.lapsed = now.Add(lapsePause)
				break
			}
			v.timeout(v.raise(p, seq), now)
		}
	}
}

// lapsesAt is when it is to be called.
func (v *Valve) lapsesAt() pace.Instant {
	next := pace.Never
	for _, p := range v.parts {
		if at, _, ok := p.deep.NextExpiry(); ok && p.state == partitionLive {
			next = min(next, max(v.lapsed, v.dateAt(at)))
		}
	}
	return next
}

// sortedParts are the partitions in which jobs start, so that a seed goes one way.
func (v *Valve) sortedParts() []*Part {
	var parts []*Part
	for _, p := range v.parts {
		if p.state == partitionLive {
			parts = append(parts, p)
		}
	}
	slices.SortFunc(parts, func(a, b *Part) int { return a.Number - b.Number })
	return parts
}
