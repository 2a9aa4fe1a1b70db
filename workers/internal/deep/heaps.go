package deep

import "time"

// The heaps hold refs, at four bytes per job; package heap would hold interfaces.
type kind uint8

const (
	byLine kind = iota
	byTime
	heaps
)

// Soonest returns the job that becomes due or expires first, and when.
func (s *Store[O]) Soonest() (j Job, at int64, ok bool) {
	if s.times.len() == 0 {
		return j, 0, false
	}
	r := s.at(*s.times.at(0))
	return r.job(), r.next(), true
}

func (r *record) dueAt() int64 { return r.stored + int64(r.due)*int64(time.Millisecond) }

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

// heap is in pieces, because growing a slice of ten million jobs copies for tens of ms.
type heap struct {
	first []ref
	more  [][]ref
}

const piece = 1 << 14

func (h *heap) len() int {
	if n := len(h.more); n > 0 {
		return n*piece + len(h.more[n-1])
	}
	return len(h.first)
}

func (h *heap) at(i int) *ref {
	if i < piece {
		return &h.first[i]
	}
	return &h.more[i/piece-1][i%piece]
}

// Short lines grow by a few places, because there may be a million.
const fewInLine, stepInLine = 64, 4

func (h *heap) grow() {
	n := h.len()
	last := &h.first
	switch {
	case n < fewInLine && n == cap(h.first):
		h.first = append(make([]ref, 0, n+stepInLine), h.first...)
	case n >= piece && n%piece == 0:
		h.more = append(h.more, make([]ref, 0, piece))
		fallthrough
	case n >= piece:
		last = &h.more[len(h.more)-1]
	}
	*last = append(*last, 0)
}

func (h *heap) shrink() {
	n := len(h.more)
	switch {
	case n == 0 && len(h.first) == 1:
		h.first = nil
	case n == 0:
		h.first = h.first[:len(h.first)-1]
	case len(h.more[n-1]) == 1:
		h.more[n-1], h.more = nil, h.more[:n-1]
	default:
		h.more[n-1] = h.more[n-1][:len(h.more[n-1])-1]
	}
}

func (s *Store[O]) set(k kind, h *heap, i int, r ref) {
	*h.at(i) = r
	s.at(r).places[k] = int32(i)
}

func (s *Store[O]) push(k kind, h *heap, r ref) {
	h.grow()
	s.rise(k, h, h.len()-1, r)
}

func (s *Store[O]) rise(k kind, h *heap, i int, r ref) {
	for i > 0 {
		parent := (i - 1) / 2
		if !s.before(k, r, *h.at(parent)) {
			break
		}
		s.set(k, h, i, *h.at(parent))
		i = parent
	}
	s.set(k, h, i, r)
}

func (s *Store[O]) pull(k kind, h *heap, r ref) {
	i, last := int(s.at(r).places[k]), h.len()-1
	r = *h.at(last)
	if h.shrink(); i == last {
		return
	}
	for child := 2*i + 1; child < last; child = 2*i + 1 {
		if right := child + 1; right < last && s.before(k, *h.at(right), *h.at(child)) {
			child = right
		}
		s.set(k, h, i, *h.at(child))
		i = child
	}
	s.rise(k, h, i, r)
}
