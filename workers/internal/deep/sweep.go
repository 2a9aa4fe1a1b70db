package deep

import "iter"

// See records a delivery in a generation, and reports whether the job, stored at this time, is
// here.
func (s *Store[O]) See(seq uint64, stored int64, generation uint8) bool {
	at := s.find(seq)
	if at == nowhere || s.at(at).stored != stored {
		return false
	}
	r, p := s.at(at), s.pages[at>>slotBits]
	if p.generation != generation {
		p.generation, p.seen = generation, 0
	}
	if uint8(r.rest) != generation {
		r.rest = r.rest&^(generations-1) | uint32(generation)
		p.seen++
	}
	return true
}

// Unseen returns, in order, the jobs up to a sequence that a generation did not deliver.
func (s *Store[O]) Unseen(generation uint8, last uint64) (missing []uint64) {
	for _, p := range s.order {
		if p.generation == generation && p.seen == p.live {
			continue
		}
		for i := range p.records[:p.used] {
			r := &p.records[i]
			if r.line != gone && uint8(r.rest) != generation && r.seq <= last {
				missing = append(missing, r.seq)
			}
		}
	}
	return missing
}

// Line iterates over a line's jobs, unordered, as long as the line does not change.
func (s *Store[O]) Line(l Line) iter.Seq[Job] {
	return func(yield func(Job) bool) {
		jobs := &s.lines[l].jobs
		for i := range jobs.len() {
			if !yield(s.at(*jobs.at(i)).job()) {
				return
			}
		}
	}
}
