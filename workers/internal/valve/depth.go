package valve

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/crew"
	"github.com/penstock-mq/penstock/workers/internal/deep"
	"github.com/penstock-mq/penstock/workers/internal/keyqueue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// When memory is short, jobs far from their turn are kept deep: as small records, without headers
// and body, which are read again before they start. A job can go deep if it has no state besides
// its headers, and came after all deep ones.

// Memory is a budget for the waiting jobs of all valves.
type Memory struct {
	most int64 // bytes; 0: unlimited
	near int64 // approximate bytes of buckets and held jobs
	deep int64

	calls int // waiting, or running under a lease
}

func NewMemory(most int64) *Memory { return &Memory{most: most} }

func (v *Valve) Share(m *Memory, w *crew.Workers) { v.texts.memory, v.Crew.Workers = m, w }

const (
	// Sizes of a held job, of headers' overhead, and of a bucket.
	nearBytes   = 480
	headerBytes = 350
	bucketBytes = 620
	// mostLapsing bounds the expired jobs on their way to dead letters; lapsePause precedes the
	// next look.
	mostLapsing = 1000
	lapsePause  = 100 * time.Millisecond
	// mostRipe bounds the deep jobs that become due in one iteration.
	mostRipe = 512
)

// bodies bounds a policy's large bodies by a quarter of the memory.
func (m *Memory) bodies() int64 {
	if m.most == 0 {
		return mostBodies
	}
	return min(mostBodies, max(1<<20, m.most/4))
}

func (m *Memory) short() bool { return m.most > 0 && m.near >= m.most/2 }

func (m *Memory) tight() bool { return m.most > 0 && m.near+m.deep*deep.JobBytes > m.most }

// strip drops the body of one job of a bucket, selected by seq, while memory is tight.
func (s *stock) strip(b *bucket, seq uint64, now pace.Instant) {
	if !s.texts.memory.tight() {
		return
	}
	pick := seq * 0x9e3779b97f4a7c15 >> 32
	if n := uint64(b.queue.NearLater()); n > 0 {
		s.texts.strip(b.queue.NthLater(int(pick % n)))
	}
	n := b.queue.Near()
	if n == 0 {
		return
	}
	i := int(pick % uint64(n))
	far := b.blocked() || b.spot == spotSched && readAt(b.nextAt) > now
	if (far || i >= b.ahead() || b.Part.state != partitionLive) && s.texts.strip(b.queue.Nth(i)) {
		b.changed()
	}
}

// strip drops a job's body, which is read again.
func (t *texts) strip(j *heldJob) bool {
	if len(j.Body) == 0 || j.fetching {
		return false
	}
	t.free(j)
	t.unweigh(j)
	j.Body, j.Lean = nil, true
	t.weigh(j)
	return true
}

func (t *texts) weigh(j *heldJob) {
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
	t.memory.near += int64(j.weight)
}

func (t *texts) unweigh(j *heldJob) {
	t.memory.near -= int64(j.weight)
	j.weight = 0
}

// forget forgets the texts of a partition that leaves.
func (t *texts) forget(p *Part) {
	for _, j := range p.jobs {
		t.free(j)
		t.unweigh(j)
	}
	t.memory.near -= bucketBytes * int64(len(p.buckets))
	t.memory.deep -= int64(p.deep.Len())
	p.deep.Clear()
}

func (v *Valve) sinks(j *heldJob, later bool, now pace.Instant) bool {
	b := j.Bucket
	switch {
	case j.recorded || j.Attempts > 0 || j.crashes > 0,
		b.Part.edits.Of(j.Seq, j.Stored.UnixNano()).Seq != 0,
		!b.Part.deep.Takes(&j.Job):
		return false
	case later:
		return v.texts.memory.short() && j.NotBefore.Sub(j.Stored) <= deep.MostDelay
	case b.queue.Near() > 0:
		return (b.queue.Deep() > 0 || v.texts.memory.short()) &&
			!b.queue.Rank(&j.Job).Before(b.queue.First())
	case b.queue.Deep() > 0:
		return true
	}
	if !v.texts.memory.short() {
		return false
	}
	v.placeChanged(now)
	return len(v.agenda.due)+len(v.agenda.unread) > 0 || readAt(v.holdOf(b, now).Until) > now
}

// sink makes a job that arrived a deep one.
func (s *stock) sink(j *heldJob, later bool, now pace.Instant) {
	d := deep.Job{Expires: s.settings.expiry(j).UnixNano(), Generation: j.generation}
	if later {
		d.Due = j.NotBefore.UnixNano()
	}
	_, d.Keyed = j.ended(queue.EndCancelled)
	j.Bucket.queue.Sink(&j.Job, d)
	delete(j.Bucket.Part.jobs, j.Seq)
	s.texts.unweigh(j)
	s.texts.memory.deep++
	s.strip(j.Bucket, j.Seq, now)
}

// lift removes a deep job and returns it as a held one, counted only in its bucket, or nil.
func (p *Part) lift(seq uint64) *heldJob {
	d, deep := p.deep.Find(seq)
	if !deep {
		return nil
	}
	p.deep.Lift(d)
	p.v.texts.memory.deep--
	j := p.heldOf(d)
	j.Bucket.changed()
	return j
}

// heldOf returns a deep job as a held one.
func (p *Part) heldOf(d keyqueue.Deep[*heldJob]) *heldJob {
	j := newJob(p.buckets[d.Queue.Key])
	j.Arrived = job.Arrived{Seq: d.Seq, Key: d.Queue.Key, Partition: p.Number,
		Stored: time.Unix(0, d.Stored).UTC(), Size: int(d.Size),
		Deadline: time.Unix(0, d.Expires).UTC(), Cost: d.Cost, Costs: d.Costs,
		Priority: d.Priority, Lean: true}
	d.Held(&j.Job)
	j.text, j.generation = text{headless: true, keyed: d.Keyed}, d.Generation
	j.expires = p.v.wall.of(d.Expires)
	if d.Due != 0 {
		j.stage, j.NotBefore = stageDelayed, time.Unix(0, d.Due).UTC()
		j.At = min(p.v.wall.of(d.Due), j.expires)
	}
	return j
}

func (p *Part) seek(seq uint64) *heldJob {
	if j := p.jobs[seq]; j != nil {
		return j
	}
	if d, deep := p.deep.Find(seq); deep {
		return p.heldOf(d)
	}
	return nil
}

// reach is seek for a change: it raises a deep job.
func (p *Part) reach(seq uint64) *heldJob {
	if j := p.jobs[seq]; j != nil {
		return j
	}
	return p.raise(seq)
}

func (p *Part) raise(seq uint64) *heldJob {
	j := p.lift(seq)
	if j != nil {
		p.jobs[seq] = j
		p.v.texts.weigh(j)
		if j.stage == stageDelayed {
			p.v.stock.delay(j, j.At)
			return j
		}
		j.Bucket.queue.Raises(&j.Job)
		p.v.stock.enqueue(j)
	}
	return j
}

// surface raises a bucket's next jobs, as far ahead as bodies are read, while deep ones precede the
// last held one. It runs before the first held job is examined (law 4).
func (s *stock) surface(b *bucket, now pace.Instant) {
	for {
		d, wanted := b.queue.Wants(b.ahead())
		if !wanted ||
			b.Part.stages[stageBurying] >= mostLapsing && s.wall.of(d.Expires) <= now {
			return
		}
		b.Part.raise(d.Seq)
	}
}

// seen reports whether a delivered job has come before. A different job of its sequence is gone.
func (p *Part) seen(a *job.Arrived) bool {
	if j, held := p.jobs[a.Seq]; held {
		if j.Stored.Equal(a.Stored) {
			j.generation = p.generation
			if j.stage == stageAcking {
				p.v.out.Acks = append(p.v.out.Acks, j.ref())
			}
			return true
		}
		p.v.stock.lose(j)
	}
	if p.deep.Len() == 0 {
		return false
	}
	if p.deep.See(a.Seq, a.Stored.UnixNano(), p.generation) {
		return true
	}
	if j := p.lift(a.Seq); j != nil {
		j.Bucket.held--
		p.v.out.Vanished++
	}
	return false
}

// sweepDeep drops deep jobs that were not redelivered.
func (p *Part) sweepDeep() {
	for _, seq := range p.deep.Unseen(p.generation, p.last) {
		j := p.lift(seq)
		j.Bucket.held--
		p.v.out.Vanished++
	}
}

func (p *Part) loseDeep() {
	p.v.out.Vanished += p.deep.Len()
	p.v.texts.memory.deep -= int64(p.deep.Len())
	var queues []*keyqueue.Queue[*heldJob]
	for _, b := range p.list.All() {
		b.held -= int32(b.queue.AllDeep())
		queues = append(queues, &b.queue)
	}
	p.deep.Clear(queues...)
}

// purges returns a batch of a bucket's jobs up to a sequence, with deep ones raised.
func (p *Part) purges(key queue.Key, last uint64) (jobs []*heldJob) {
	b := p.buckets[key]
	if b == nil {
		return nil
	}
	pick := func(j *heldJob) {
		if j.call == nil && j.Seq <= last {
			jobs = append(jobs, j)
		}
	}
	for j := range b.queue.Each() {
		pick(j)
	}
	for i := range b.queue.NearLater() {
		pick(b.queue.NthLater(i))
	}
	for _, seq := range b.queue.SomeDeep(last, deepPiece) {
		jobs = append(jobs, p.raise(seq))
	}
	return jobs
}

func (v *Valve) lapse(now pace.Instant) {
	if v.lapsesAt() > now {
		return
	}
	for _, number := range slices.Sorted(maps.Keys(v.parts)) { // a seed must reproduce a run
		p := v.parts[number]
		for ripe := 0; p.state == partitionLive; {
			d, at, some := p.deep.Soonest()
			if !some || v.wall.of(at) > now {
				break
			}
			if at == d.Due {
				if ripe++; ripe > mostRipe {
					v.agenda.lapsed = now + 1
					break
				}
				p.buckets[p.deep.Ripen(d.Seq).Key].changed()
				continue
			}
			if p.stages[stageBurying] >= mostLapsing {
				v.agenda.lapsed = now.Add(lapsePause)
				break
			}
			v.timeout(p.raise(d.Seq), now)
		}
	}
}

func (v *Valve) lapsesAt() pace.Instant {
	next := pace.Never
	for _, p := range v.parts {
		if _, at, ok := p.deep.Soonest(); ok && p.state == partitionLive {
			next = min(next, max(v.agenda.lapsed, v.wall.of(at)))
		}
	}
	return next
}
