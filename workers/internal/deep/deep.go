// Package deep keeps the jobs that wait far from their turn, of which there may be ten million, in
// 64 bytes each and eight for each cost by name, and in nothing that a garbage collector would have
// to look at.
//
// Jobs are kept in pages, in the order of their sequences, which is also that in which they come:
// so a sequence is found by two searches, and the pages of a queue that drains empty one after the
// other. The lines in which jobs wait are heaps: of those that may start the smallest sequence is
// first, of the others what is due first. One more heap has first what becomes due, or expires,
// before all others. Pages of which little is left are put together, so that jobs which wait for
// long between others that do not keep no more than their own room.
package deep

import (
	"math"
	"slices"
	"time"
)

// Job is what is known of a job while it waits deep. The rest lies in its stream.
type Job struct {
	Seq        uint64
	Stored     int64 // when the stream stored it, Unix ns
	Expires    int64 // when it has waited too long, Unix ns by the stream's clock
	Mark       int64 // whatever its line counts by
	Due        int64 // before when it may not start, Unix ns, to the next ms; 0: it may
	Cost       int64 // 1 to MostCost
	Size       int32 // bytes of its body
	Keyed      bool  // it has an Idempotency-Key
	Generation uint8
}

const (
	// JobBytes is what a job takes.
	JobBytes = 64
	// MostDelay is how long after it was stored a job is due at most.
	MostDelay = math.MaxUint32 * time.Millisecond
	// MostCost is what fits.
	MostCost = 1 << 23

	generations = 1 << 8
	keyed       = 1 << 8
	costBit     = 9
	// nowhere is where a job is that is not there.
	nowhere ref = -1
	// slots is how many jobs a page has room for: the page then takes one of the sizes that Go
	// allocates, 57,344 bytes.
	slots    = 1022
	slotBits = 10
)

// Line names a line of jobs; 0: none.
type Line int32

// ref is where a record is: its page's number, and its slot.
type ref int32

// record is a kept job, or what is left of one: then its line is none.
type record struct {
	seq     uint64
	stored  int64
	expires int64
	mark    int64
	size    int32
	rest    uint32 // cost, whether it is keyed, generation
	line    Line
	due     uint32 // ms after it was stored; 0: it may start
	places  [heaps]int32
}

// gone marks the slot of a job that was taken.
const gone Line = 0

type page struct {
	costs      []cost // first: the collector looks at nothing behind the last pointer
	records    [slots]record
	used, live int
	seen       int // of them, of the generation
	number     ref
	generation uint8
}

type line[O any] struct {
	owner O
	jobs  heap
}

// Store keeps the jobs of one partition. Each line has an owner, whoever asked for it.
type Store[O any] struct {
	pages  []*page // by number
	free   []ref   // numbers without a page
	order  []*page // by sequence
	lines  []*line[O]
	unused []Line
	times  heap
	names  []string // of costs
}

// New returns an empty store.
func New[O any]() *Store[O] { return &Store[O]{lines: []*line[O]{{}}} }

// Len is how many jobs there are.
func (s *Store[O]) Len() int { return s.times.len() }

// Open makes a line.
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

// Close ends a line, which must be empty, or none.
func (s *Store[O]) Close(l Line) {
	if l == 0 {
		return
	}
	s.lines[l] = nil
	s.unused = append(s.unused, l)
}

// InLine is how many jobs a line has.
func (s *Store[O]) InLine(l Line) int { return s.lines[l].jobs.len() }

// Takes reports whether a job with this sequence can be added: only after all that are there.
func (s *Store[O]) Takes(seq uint64) bool {
	if len(s.order) == 0 {
		return true
	}
	last := s.order[len(s.order)-1]
	return seq > last.records[last.used-1].seq
}

// Add puts a job with its costs by name, each at most math.MaxInt32, into a line, whose jobs are
// all due or all not. The store must take both.
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

// after is how long after it was stored a job is due, in ms.
func after(j Job) uint32 {
	if j.Due == 0 {
		return 0
	}
	return uint32(max(1, (time.Duration(j.Due-j.Stored)+time.Millisecond-1)/time.Millisecond))
}

// Ripen puts a job that is there into another line, as one that may start.
func (s *Store[O]) Ripen(seq uint64, to Line) {
	at := s.find(seq)
	r := s.at(at)
	s.pull(byLine, &s.lines[r.line].jobs, at)
	s.pull(byTime, &s.times, at)
	r.line, r.due = to, 0
	s.push(byLine, &s.lines[to].jobs, at)
	s.push(byTime, &s.times, at)
}

// lastPage is the one that has room.
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

// First is the job that a line begins with.
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
	slot, found := slices.BinarySearchFunc(p.records[:p.used], seq,
		func(r record, seq uint64) int {
			switch {
			case r.seq < seq:
				return -1
			case r.seq > seq:
				return 1
			}
			return 0
		})
	if !found || p.records[slot].line == gone {
		return nowhere
	}
	return p.at(slot)
}

// Take removes a job, and reports whether it was there.
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

// shrink lets go of a page of which nothing is left, and puts one of which little is left together
// with a neighbour. The last page is left alone: it is still being filled.
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

// drop removes the page at a place of the order.
func (s *Store[O]) drop(i int) {
	p := s.order[i]
	s.order = slices.Delete(s.order, i, i+1)
	s.pages[p.number] = nil
	s.free = append(s.free, p.number)
}

// merge moves the jobs of two pages into the first of them.
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

// move gives a record another place, and tells all that know where it is.
func (s *Store[O]) move(from, to ref) {
	if from == to {
		return
	}
	r := s.at(to)
	*r = *s.at(from)
	*s.lines[r.line].jobs.at(int(r.places[byLine])) = to
	*s.times.at(int(r.places[byTime])) = to
}

// Clear forgets all jobs; the lines stay, and are empty.
func (s *Store[O]) Clear() {
	for _, l := range s.lines {
		if l != nil {
			l.jobs = heap{}
		}
	}
	s.pages, s.free, s.order, s.times, s.names = nil, nil, nil, heap{}, nil
}
