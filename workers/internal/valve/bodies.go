package valve

import (
	"time"

	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// Small bodies are always held, others only shortly before their jobs start.
const (
	// leanSize is the largest small body.
	leanSize = 4 << 10
	lead     = 500 * time.Millisecond
	// readEvery groups reads.
	readEvery = 25 * time.Millisecond
	// mostFetches bounds a bucket's read-ahead, in jobs.
	mostFetches = 1024
	// mostBodies bounds the bytes of a policy's large bodies, apart from the last one.
	mostBodies = 64 << 20
)

// texts are what a policy's jobs have in memory.
type texts struct {
	memory *Memory
	bytes  int64 // of large bodies
}

// keep counts a body from its read to detach or unload.
func (t *texts) keep(j *heldJob) {
	if !j.counted {
		j.counted = true
		j.Bucket.own().bodies++
		t.bytes += int64(j.Size)
	}
}

func (t *texts) free(j *heldJob) {
	if !j.counted {
		return
	}
	j.counted = false
	j.Bucket.bodies--
	t.bytes -= int64(j.Size)
}

func (t *texts) unload(b *bucket) {
	for j := range b.queue.Each() {
		if b.bodies == 0 {
			return
		}
		if j.counted {
			t.free(j)
			j.Body, j.Lean = nil, true
		}
	}
}

// fetch requests the bodies of the first ready jobs. Once half of the room is used it reads only
// the head: a fast bucket must not delay others (law 5).
func (s *stock) fetch(b *bucket) {
	for i := range min(b.ahead(), b.queue.Near()) {
		j := b.queue.Nth(i)
		if i > 0 && s.texts.bytes >= s.texts.memory.bodies()/2 {
			break
		}
		if j.Lean {
			s.texts.keep(j)
		}
		if j.Lean && !j.fetching {
			j.fetching = true
			s.out.Fetches = append(s.out.Fetches, j.ref())
		}
	}
}

// readAhead requests bodies in the order of buckets' turns for workers. Buckets that may not take a
// worker give up their bodies: hanging targets must not block free workers.
func (v *Valve) readAhead(now pace.Instant) {
	for len(v.agenda.unread) > 0 {
		if v.texts.bytes >= v.texts.memory.bodies() && !v.makeRoom() {
			return
		}
		b := v.agenda.unread[0].bucket
		v.agenda.lift(b)
		if v.stock.surface(b, now); b.queue.Near() == 0 { // only expired jobs, which lapse removes
			v.agenda.schedule(b, now.Add(lapsePause))
			continue
		}
		v.stock.fetch(b)
		v.agenda.placed(b)
	}
}

func (b *bucket) ahead() int {
	if b.pace == nil {
		return mostFetches
	}
	return min(mostFetches, int(lead/b.pace.Interval)+1)
}

func readAt(start pace.Instant) pace.Instant {
	return start.Add(-lead) / pace.Instant(readEvery) * pace.Instant(readEvery)
}

// readOn requests more once half of the read-ahead is used.
func (s *stock) readOn(b *bucket) {
	half := b.ahead() / 2
	if half == 0 || half >= b.queue.Near() || s.texts.bytes >= s.texts.memory.bodies()/2 {
		return
	}
	if j := b.queue.Nth(half); j.Lean && !j.fetching {
		s.fetch(b)
	}
}

// makeRoom unloads a due bucket that cannot take a worker and follows the first unread one. The end
// of the heap has about the last in order.
func (v *Valve) makeRoom() bool {
	if v.Crew.Free() <= 0 {
		return false
	}
	last := v.agenda.due[max(0, len(v.agenda.due)-mostLooks):]
	for _, b := range last {
		if b.bodies > 0 && !v.Crew.MayTake(b.busy()) && v.agenda.unread[0].Before(b) {
			v.texts.unload(b.bucket)
			b.changed()
			return v.texts.bytes < v.texts.memory.bodies()
		}
	}
	return false
}

// Text is a requested text.
type Text struct {
	handle.Ref
	Body      []byte
	Header    map[string][]string
	Gone      bool // removed by another client
	Malformed error
}

func (p *Part) Fetched(t Text, now pace.Instant) {
	j := p.Held(t.Ref)
	if j == nil {
		return
	}
	j.fetching = false
	if j.headless && !t.Gone && t.Malformed == nil {
		j.Header, j.headless = t.Header, false
	}
	switch {
	case j.stage != stageWaiting:
		return
	case t.Gone:
		p.v.stock.lose(j)
		return
	case t.Malformed != nil:
		p.v.stock.detach(j)
		p.v.out.bury(j, queue.ReasonMalformed, t.Malformed.Error())
	case t.Body != nil && j.counted:
		j.Body, j.Lean = t.Body, false
	}
	j.Bucket.changed()
}
