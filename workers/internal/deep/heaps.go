package deep

import "time"

// The heaps hold refs, so that each takes four bytes a job; package heap would hold interfaces.
type kind uint8

const (
	byLine kind = iota
	byTime
	heaps
)

// Soonest is the job that becomes due or expires first, and when; ok says whether there is one.
func (s *Store[O]) Soonest() (j Job, at int64, ok bool) {
	if len(s.times) == 0 {
		return j, 0, false
	}
	r := s.at(s.times[0])
	return r.job(), r.next(), true
}

func (r *record) dueAt() int64 { return r.stored + int64(r.due)*int64(time.Millisecond) }

// next is when something happens to it.
func (r *record) next() int64 {
	if r.due == 0 {
		return r.expires
	}
	return min(r.expires, r.dueAt())
}

func (s *Store[O]) before(k kind, a, b ref) bool {
	x, y := s.at(a), s.at(b)
	m, n := x.next(), y.next()
	switch {
	case k == byLine && x.due == 0:
		return x.seq < y.seq
	case k == byLine:
		m, n = x.dueAt(), y.dueAt()
	}
	return m < n || m == n && x.seq < y.seq
}

func (s *Store[O]) set(k kind, h []ref, i int, r ref) {
	h[i] = r
	s.at(r).places[k] = int32(i)
}

// Short lines grow by a few places and not to their double, as append has them: there may be a
// million.
const fewInLine, stepInLine = 64, 4

func (s *Store[O]) push(k kind, h *[]ref, r ref) {
	if n := len(*h); n == cap(*h) && n < fewInLine {
		*h = append(make([]ref, 0, n+stepInLine), *h...)
	}
	*h = append(*h, r)
	s.rise(k, *h, len(*h)-1, r)
}

func (s *Store[O]) rise(k kind, h []ref, i int, r ref) {
	for i > 0 {
		parent := (i - 1) / 2
		if !s.before(k, r, h[parent]) {
			break
		}
		s.set(k, h, i, h[parent])
		i = parent
	}
	s.set(k, h, i, r)
}

// pull takes an item out of a heap.
func (s *Store[O]) pull(k kind, of *[]ref, r ref) {
	h, i := *of, int(s.at(r).places[k])
	last := len(h) - 1
	if r = h[last]; last == 0 {
		*of = nil
		return
	}
	h = h[:last]
	if *of = h; i == last {
		return
	}
	for child := 2*i + 1; child < last; child = 2*i + 1 {
		if right := child + 1; right < last && s.before(k, h[right], h[child]) {
			child = right
		}
		s.set(k, h, i, h[child])
		i = child
	}
	s.rise(k, h, i, r)
}
