package valve

import (
	"cmp"
	"slices"
)

// walk visits the buckets of a partition, some at a time, because starts wait meanwhile: each
// bucket that is there from its begin to its end exactly once, and none that comes meanwhile.
//
// A snapshot of the buckets would do as well, but to take one of 100,000 costs the loop
// milliseconds, and it would keep those that are forgotten meanwhile in memory. A range over the
// map cannot be left and taken up again.
type walk struct {
	part *Part
	Left int // the first so many of the partition's list are still to be visited
}

// walk begins one. Whoever does not go to its end must call stop.
func (p *Part) walk() *walk {
	w := &walk{p, len(p.list)}
	p.walks = append(p.walks, w)
	return w
}

// some visits up to n buckets and reports whether those were the last.
func (w *walk) some(n int, visit func(*bucket)) (done bool) {
	for ; n > 0 && w.Left > 0; n-- {
		w.Left--
		visit(w.part.list[w.Left])
	}
	if w.Left == 0 {
		w.stop()
	}
	return w.Left == 0
}

func (w *walk) stop() {
	w.part.walks = slices.DeleteFunc(w.part.walks, func(other *walk) bool { return other == w })
}

// add takes a bucket in.
func (p *Part) add(b *bucket) {
	p.buckets[b.key] = b
	b.inList = len(p.list)
	p.list = append(p.list, b)
}

// remove takes a bucket out. The hole that it leaves is filled with the last bucket of the list
// that the walks have still to visit as they had the removed one, so that none is left out or comes
// twice.
//
// The walks go from the end of the list to its beginning, each with a border between what it has
// still to visit and what it has visited. The hole moves up from border to border, from the lowest
// on: what lies right below each border fills it, and is still to be visited by that walk on both
// sides.
func (p *Part) remove(b *bucket) {
	delete(p.buckets, b.key)
	hole := b.inList
	fill := func(with int) {
		if with != hole {
			p.list[hole] = p.list[with]
			p.list[hole].inList = hole
			hole = with
		}
	}
	slices.SortFunc(p.walks, func(v, w *walk) int { return cmp.Compare(v.Left, w.Left) })
	for _, w := range p.walks {
		if hole < w.Left {
			w.Left--
			fill(w.Left)
		}
	}
	last := len(p.list) - 1
	fill(last)
	p.list[last] = nil
	p.list = p.list[:last]
	b.inList = -1
}
