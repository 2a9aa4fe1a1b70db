package valve

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/deep"
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

func (v *Valve) Share(m *Memory, s *Slots) { v.memory, v.slots = m, s }

// Slots bounds the jobs of several valves' local workers. Such valves form a line.
type Slots struct {
	Most int // 0: unlimited
	Used int
}

func (s *Slots) Left() int {
	if s.Most <= 0 {
		return math.MaxInt
	}
	return s.Most - s.Used
}

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
func (v *Valve) strip(b *bucket, seq uint64, now pace.Instant) {
	if !v.memory.tight() {
		return
	}
	pick := seq * 0x9e3779b97f4a7c15 >> 32
	if n := uint64(len(b.later)); n > 0 {
		v.stripJob(b.later[pick%n].heldJob)
	}
	n := len(b.ready)
	if n == 0 {
		return
	}
	i := int(pick % uint64(n))
	far := b.blocked() || b.spot == spotSched && readAt(b.nextAt) > now
	if (far || i >= b.ahead() || b.Part.state != partitionLive) && v.stripJob(b.ready[i].heldJob) {
		b.changed()
	}
}

func (v *Valve) stripJob(j *heldJob) bool {
	if len(j.Body) == 0 || j.fetching {
		return false
	}
	v.freeBody(j)
	v.unweigh(j)
	j.Body, j.Lean = nil, true
	v.weigh(j)
	return true
}

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
	v.memory.near += int64(j.weight)
}

func (v *Valve) unweigh(j *heldJob) {
	v.memory.near -= int64(j.weight)
	j.weight = 0
}

func (p *Part) weighNothing() {
	for _, j := range p.jobs {
		p.v.freeBody(j)
		p.v.unweigh(j)
	}
	p.v.memory.near -= bucketBytes * int64(len(p.buckets))
	p.v.memory.deep -= int64(p.deep.Len())
	p.deep.Clear()
}

type deepLane struct {
	*bucket
	priority int
}

func (v *Valve) sinks(j *heldJob, later bool, now pace.Instant) bool {
	b := j.Bucket
	switch {
	case j.recorded || j.Attempts > 0 || j.crashes > 0,
		len(b.Part.edits.jobs) > 0 && b.Part.edits.jobs[j.Seq].Job != 0,
		!b.Part.deep.Takes(j.Seq), !b.Part.deep.TakesCosts(j.Costs):
		return false
	case later:
		return v.memory.short() && j.NotBefore.Sub(j.Stored) <= deep.MostDelay
	case len(b.ready) > 0:
		return (b.deep > 0 || v.memory.short()) && !j.rank().before(b.ready[0].rank())
	case b.deep > 0:
		return true
	}
	if !v.memory.short() {
		return false
	}
	v.placeChanged(now)
	return len(v.due)+len(v.unread) > 0 || readAt(v.holdOf(b, now).until) > now
}

func (v *Valve) sink(j *heldJob, later bool) {
	b := j.Bucket
	p, l := b.Part, b.lane(j.Priority)
	line, due := &l.line, int64(0)
	if later {
		line, due = &l.later, j.NotBefore.UnixNano()
	}
	if *line == 0 {
		*line = p.deep.Open(deepLane{b, j.Priority})
	}
	_, keyed := j.ended(job.EndCancelled)
	p.deep.Add(*line, deep.Job{Seq: j.Seq, Stored: j.Stored.UnixNano(),
		Expires: v.expiry(j).UnixNano(), Mark: j.mark, Due: due, Cost: j.Cost,
		Size: int32(min(j.Size, math.MaxInt32)), Keyed: keyed, Generation: j.generation}, j.Costs)
	delete(p.jobs, j.Seq)
	v.unweigh(j)
	v.memory.deep++
	if later {
		b.deepLater++
		return
	}
	b.queueDeep(l, 1, j.Cost, j.Costs)
}

// queueDeep counts a deep job; sign −1 removes it.
func (b *bucket) queueDeep(l *lane, sign int, cost int64, named map[string]int64) {
	b.deep += int32(sign)
	l.waiting += int64(sign) * cost
	b.countWaiting(cost, named, int64(sign))
}

// lift removes a deep job and returns it as a held one, counted only in its bucket, or nil.
func (p *Part) lift(seq uint64) *heldJob {
	j := p.fathom(seq)
	if j != nil {
		p.deep.Take(seq)
		p.v.memory.deep--
		j.Bucket.changed()
		if b := j.Bucket; j.stage == stageDelayed {
			b.deepLater--
		} else {
			b.queueDeep(b.lane(j.Priority), -1, j.Cost, j.Costs)
		}
	}
	return j
}

// fathom returns a copy of a deep job, or nil.
func (p *Part) fathom(seq uint64) *heldJob {
	d, of, ok := p.deep.Find(seq)
	if !ok {
		return nil
	}
	j := &heldJob{
		Arrived: job.Arrived{Seq: seq, Key: of.key, Partition: p.Number,
			Stored: time.Unix(0, d.Stored).UTC(), Size: int(d.Size),
			Deadline: time.Unix(0, d.Expires).UTC(), Cost: d.Cost, Costs: p.deep.Costs(seq),
			Priority: of.priority, Lean: true},
		Bucket: of.bucket, text: text{headless: true, keyed: d.Keyed}, generation: d.Generation,
		mark: d.Mark, came: of.came(seq, d.Stored), expires: p.v.dateAt(d.Expires),
		inBucket: -1, inTimers: -1,
	}
	if d.Due != 0 {
		j.stage, j.NotBefore = stageDelayed, time.Unix(0, d.Due).UTC()
		j.at = min(p.v.dateAt(d.Due), j.expires)
	}
	return j
}

func (p *Part) seek(seq uint64) *heldJob {
	if j := p.jobs[seq]; j != nil {
		return j
	}
	return p.fathom(seq)
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
		p.v.weigh(j)
		if j.stage == stageDelayed {
			p.v.delay(j, j.at)
			return j
		}
		p.v.enqueue(j)
		j.raised = true
		j.Bucket.raised++
	}
	return j
}

// surface raises a bucket's next jobs, as far ahead as bodies are read, while deep ones precede the
// last held one. It runs before the first held job is examined (law 4).
func (v *Valve) surface(b *bucket, now pace.Instant) {
	for b.deep > 0 {
		first, expires := b.firstDeep()
		n, ahead := len(b.ready), b.ahead()
		next := n == 0 || first.before(b.ready[0].rank())
		soon := b.raised < ahead && (n < ahead || first.before(b.ready[n-1].rank()))
		if !next && !soon ||
			b.Part.stages[stageBurying] >= mostLapsing && v.dateAt(expires) <= now {
			return
		}
		b.Part.raise(first.seq)
	}
}

// seen reports whether a delivered job is deep. A different job of its sequence is gone.
func (p *Part) seen(a *job.Arrived, now pace.Instant) bool {
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
	p.v.memory.deep -= int64(p.deep.Len())
	for _, b := range p.list.All() {
		b.held -= int(b.deep + b.deepLater)
		b.deepLater = 0
		for i := range b.lanes {
			l := &b.lanes[i]
			for d := range p.deep.Line(l.line) {
				b.queueDeep(l, -1, d.Cost, p.deep.Costs(d.Seq))
			}
		}
	}
	p.deep.Clear()
}

func (b *bucket) unline() {
	for i := range b.lanes {
		l := &b.lanes[i]
		b.Part.deep.Close(l.line)
		b.Part.deep.Close(l.later)
		l.line, l.later = 0, 0
	}
}

// purges returns a batch of a bucket's jobs up to a sequence, with deep ones raised.
func (p *Part) purges(key job.Key, last uint64) (jobs []*heldJob) {
	b := p.buckets[key]
	if b == nil {
		return nil
	}
	pick := func(j *heldJob) {
		if j.call == nil && j.Seq <= last {
			jobs = append(jobs, j)
		}
	}
	for _, j := range b.ready {
		pick(j.heldJob)
	}
	for _, j := range b.later {
		pick(j.heldJob)
	}
	var seqs []uint64
	for i := range b.lanes {
		for _, line := range []deep.Line{b.lanes[i].line, b.lanes[i].later} {
			for d := range p.deep.Line(line) {
				if len(seqs) == deepPiece {
					break
				}
				if d.Seq <= last {
					seqs = append(seqs, d.Seq)
				}
			}
		}
	}
	slices.Sort(seqs)
	for _, seq := range seqs {
		jobs = append(jobs, p.raise(seq))
	}
	return jobs
}

func (v *Valve) dateAt(date int64) pace.Instant { return v.wall.instant(time.Unix(0, date), 0) }

func (v *Valve) lapse(now pace.Instant) {
	if v.lapsesAt() > now {
		return
	}
	for _, number := range slices.Sorted(maps.Keys(v.parts)) { // a seed must reproduce a run
		p := v.parts[number]
		for ripe := 0; p.state == partitionLive; {
			d, at, some := p.deep.Soonest()
			if !some || v.dateAt(at) > now {
				break
			}
			if at == d.Due {
				if ripe++; ripe > mostRipe {
					v.lapsed = now + 1
					break
				}
				p.ripen(d, now)
				continue
			}
			if p.stages[stageBurying] >= mostLapsing {
				v.lapsed = now.Add(lapsePause)
				break
			}
			v.timeout(p.raise(d.Seq), now)
		}
	}
}

func (p *Part) ripen(d deep.Job, now pace.Instant) {
	_, of, _ := p.deep.Find(d.Seq)
	l := of.lane(of.priority)
	if l.line == 0 {
		l.line = p.deep.Open(of)
	}
	p.deep.Ripen(d.Seq, l.line)
	of.deepLater--
	of.queueDeep(l, 1, d.Cost, p.deep.Costs(d.Seq))
	of.changed()
}

func (v *Valve) laterAt(b *bucket) pace.Instant {
	at := pace.Never
	if len(b.later) > 0 {
		at = b.later[0].at
	}
	for _, l := range b.lanes {
		if d, some := b.Part.deep.First(l.later); some {
			at = min(at, v.dateAt(d.Due), v.dateAt(d.Expires))
		}
	}
	return at
}

func (v *Valve) lapsesAt() pace.Instant {
	next := pace.Never
	for _, p := range v.parts {
		if _, at, ok := p.deep.Soonest(); ok && p.state == partitionLive {
			next = min(next, max(v.lapsed, v.dateAt(at)))
		}
	}
	return next
}
