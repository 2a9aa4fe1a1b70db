package deep

// NextExpiry is when the first job expires; ok says whether there is one.
func (s *Store[O]) NextExpiry() (at int64, seq uint64, ok bool) {
	if len(s.expires) == 0 {
		return 0, 0, false
	}
	r := s.at(s.expires[0])
	return r.expires, r.seq, true
}

// The heap holds refs, so that it takes four bytes a job; package heap would hold interfaces.

func (s *Store[O]) before(a, b ref) bool {
	x, y := s.at(a), s.at(b)
	return x.expires < y.expires || x.expires == y.expires && x.seq < y.seq
}

func (s *Store[O]) set(i int, r ref) {
	s.expires[i] = r
	s.at(r).timer = int32(i)
}

func (s *Store[O]) rise(i int, r ref) {
	for i > 0 {
		parent := (i - 1) / 2
		if !s.before(r, s.expires[parent]) {
			break
		}
		s.set(i, s.expires[parent])
		i = parent
	}
	s.set(i, r)
}

// lapse takes an item out of the heap.
func (s *Store[O]) lapse(i int) {
	last := len(s.expires) - 1
	r := s.expires[last]
	s.expires = s.expires[:last]
	if i == last {
		return
	}
	for child := 2*i + 1; child < last; child = 2*i + 1 {
		if right := child + 1; right < last && s.before(s.expires[right], s.expires[child]) {
			child = right
		}
		s.set(i, s.expires[child])
		i = child
	}
	s.rise(i, r)
}
