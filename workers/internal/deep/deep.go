// Package deep stores jobs that wait far from their turn, up to some ten million, in 64 bytes each
// and eight per named cost, without pointers for the garbage collector to follow.
//
// Pages hold jobs in order of sequence, the order of arrival, so the pages of a draining queue
// empty one after the other. Nearly empty ones are merged. Lines are heaps, by sequence or by due
// time; another heap orders all jobs by when they become due or expire.
package deep

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Job is a deep job. Dates are in Unix ns by the stream's clock.
type Job struct {
	Seq        uint64
	Stored     int64 // by the stream
	Expires    int64
	Mark       int64 // for its line's owner
	Due        int64 // rounded up to ms; 0: it may start
	Cost       int64 // 1 to MostCost
	Size       int32
	Keyed      bool // it has an Idempotency-Key
	Generation uint8
}

const (
	JobBytes = 64
	// MostDelay is the longest time from storage until due.
	MostDelay = math.MaxUint32 * time.Millisecond
	MostCost  = 1 << 23

	generations     = 1 << 8
	keyed           = 1 << 8
	costBit         = 9
	nowhere     ref = -1
	// slots is the capacity of a page, which fills one of Go's size classes, 57,344 bytes.
	slots    = 1022
	slotBits = 10
)

// Line names a line; 0: no line.
type Line int32

// ref is a page's number and a slot.
type ref int32

// record is a job, or with line gone a removed one.
type record struct {
	seq     uint64
	stored  int64
	expires int64
	mark    int64
	size    int32
	rest    uint32
	line    Line
	due     uint32 // ms after it was stored; 0: it may start
	places  [heaps]int32
}

// gone marks the slot of a removed job.
const gone Line = 0

type page struct {
	costs      []cost // first: the collector stops at the last pointer
	records    [slots]record
	used, live int
	seen       int // live ones of the generation
	number     ref
	generation uint8
}

type line[O any] struct {
	owner O
	jobs  heap
}

// Store holds a partition's jobs.
type Store[O any] struct {
	pages  []*page
	free   []ref   // numbers without a page
	order  []*page // by sequence
	lines  []*line[O]
	unused []Line
	times  heap
	names  []string
}

func New[O any]() *Store[O] { return &Store[O]{lines: []*line[O]{{}}} }

func (s *Store[O]) Len() int { return s.times.len() }

func (s *Store[O]) Open(owner O) Line {
	l := &line[O]{owner: owner}
	if n := len(s.unused); n > 0 {
		id := s.unused[n-1]
		s.unused = s.unused[:n-1]
		s.lines[id] = l
		return id
	}
	s.lines = append(s.lines, l)
	return Line(len(s.lines) - 1)
}

// Close removes an empty line, or 0.
func (s *Store[O]) Close(l Line) {
	if l == 0 {
		return
	}
	s.lines[l] = nil
	s.unused = append(s.unused, l)
}

// Takes reports whether a sequence can be added: only after all others.
func (s *Store[O]) Takes(seq uint64) bool {
	if len(s.order) == 0 {
		return true
	}
	last := s.order[len(s.order)-1]
	return seq > last.records[last.used-1].seq
}

// Add adds a job to a line, which holds either due jobs or delayed ones.
func (s *Store[O]) Add(to Line, j Job, costs map[string]int64) {
	p := s.lastPage()
	for name, units := range costs {
		p.costs = append(p.costs, cost{uint16(p.used), uint16(s.name(name)), int32(units)})
	}
	at := p.at(p.used)
	rest := uint32(j.Cost-1)<<costBit | uint32(j.Generation)
	if j.Keyed {
		rest |= keyed
	}
	p.records[p.used] = record{seq: j.Seq, stored: j.Stored, expires: j.Expires, mark: j.Mark,
		size: j.Size, rest: rest, line: to, due: after(j)}
	p.used++
	p.live++
	if p.seen++; p.generation != j.Generation {
		p.generation, p.seen = j.Generation, 1
	}
	s.push(byLine, &s.lines[to].jobs, at)
	s.push(byTime, &s.times, at)
}

func after(j Job) uint32 {
	if j.Due == 0 {
		return 0
	}
	return uint32(max(1, (time.Duration(j.Due-j.Stored)+time.Millisecond-1)/time.Millisecond))
}

func (s *Store[O]) Ripen(seq uint64, to Line) {
	at := s.find(seq)
	r := s.at(at)
	s.pull(byLine, &s.lines[r.line].jobs, at)
	s.pull(byTime, &s.times, at)
	r.line, r.due = to, 0
	s.push(byLine, &s.lines[to].jobs, at)
	s.push(byTime, &s.times, at)
}

func (s *Store[O]) lastPage() *page {
	if n := len(s.order); n > 0 && s.order[n-1].used < slots {
		return s.order[n-1]
	}
	p := &page{}
	if n := len(s.free); n > 0 {
		p.number = s.free[n-1]
		s.free = s.free[:n-1]
		s.pages[p.number] = p
	} else {
		p.number = ref(len(s.pages))
		s.pages = append(s.pages, p)
	}
	s.order = append(s.order, p)
	return p
}

func (p *page) at(slot int) ref { return p.number<<slotBits | ref(slot) }

func (s *Store[O]) at(r ref) *record {
	return &s.pages[r>>slotBits].records[r&(1<<slotBits-1)]
}

func (r *record) job() Job {
	due := int64(0)
	if r.due != 0 {
		due = r.dueAt()
	}
	return Job{Seq: r.seq, Stored: r.stored, Expires: r.expires, Mark: r.mark, Due: due,
		Cost: int64(r.rest>>costBit) + 1, Size: r.size, Keyed: r.rest&keyed != 0,
		Generation: uint8(r.rest)}
}

func (s *Store[O]) First(l Line) (j Job, ok bool) {
	if jobs := &s.lines[l].jobs; jobs.len() > 0 {
		return s.at(*jobs.at(0)).job(), true
	}
	return j, false
}

// Find returns a job and its line's owner.
func (s *Store[O]) Find(seq uint64) (j Job, owner O, ok bool) {
	r := s.find(seq)
	if r == nowhere {
		return j, owner, false
	}
	found := s.at(r)
	return found.job(), s.lines[found.line].owner, true
}

func (s *Store[O]) find(seq uint64) ref {
	i, _ := slices.BinarySearchFunc(s.order, seq, func(p *page, seq uint64) int {
		if p.records[p.used-1].seq < seq {
			return -1
		}
		return 1
	})
	if i == len(s.order) {
		return nowhere
	}
	p := s.order[i]
	slot, found := slices.BinarySearchFunc(p.records[:p.used], seq, func(r record, seq uint64) int {
		return cmp.Compare(r.seq, seq)
	})
	if !found || p.records[slot].line == gone {
		return nowhere
	}
	return p.at(slot)
}

func (s *Store[O]) Take(seq uint64) (ok bool) {
	at := s.find(seq)
	if at == nowhere {
		return false
	}
	r, p := s.at(at), s.pages[at>>slotBits]
	s.pull(byLine, &s.lines[r.line].jobs, at)
	s.pull(byTime, &s.times, at)
	if p.live--; uint8(r.rest) == p.generation {
		p.seen--
	}
	r.line = gone
	s.shrink(p)
	return true
}

// shrink removes an empty page, and merges a nearly empty one with a neighbour, except the last.
func (s *Store[O]) shrink(p *page) {
	if p.live > slots/4 {
		return
	}
	i := slices.Index(s.order, p)
	if p.live == 0 {
		s.drop(i)
		return
	}
	for _, first := range []int{i - 1, i} {
		if first < 0 || first+2 >= len(s.order) {
			continue
		}
		if into, from := s.order[first], s.order[first+1]; into.live+from.live <= slots/2 {
			s.merge(into, from)
			s.drop(first + 1)
			return
		}
	}
}

func (s *Store[O]) drop(i int) {
	p := s.order[i]
	s.order = slices.Delete(s.order, i, i+1)
	s.pages[p.number] = nil
	s.free = append(s.free, p.number)
}

func (s *Store[O]) merge(into, from *page) {
	generation := into.generation
	used := 0
	var costs []cost
	for _, p := range []*page{into, from} {
		for slot := range p.used {
			if p.records[slot].line != gone {
				for _, c := range p.costsOf(slot) {
					costs = append(costs, cost{uint16(used), c.name, c.units})
				}
				s.move(p.at(slot), into.at(used))
				used++
			}
		}
	}
	into.used, into.live, into.seen, into.costs = used, used, 0, costs
	for i := range into.records[:used] {
		if uint8(into.records[i].rest) == generation {
			into.seen++
		}
	}
}

func (s *Store[O]) move(from, to ref) {
	if from == to {
		return
	}
	r := s.at(to)
	*r = *s.at(from)
	*s.lines[r.line].jobs.at(int(r.places[byLine])) = to
	*s.times.at(int(r.places[byTime])) = to
}

// Clear removes all jobs, and keeps the lines.
func (s *Store[O]) Clear() {
	for _, l := range s.lines {
		if l != nil {
			l.jobs = heap{}
		}
	}
	s.pages, s.free, s.order, s.times, s.names = nil, nil, nil, heap{}, nil
}
