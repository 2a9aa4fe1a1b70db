// Package walk keeps a list that is visited some items at a time, while others come and go.
package walk

import (
	"cmp"
	"slices"
)

// List is a list in no order. The zero value is empty.
type List[T Item] struct {
	all   []T
	walks []*Walk[T]
}

// Item is what a list holds. It keeps its place there, of which it knows nothing but that it is −1
// once the item was removed.
type Item interface{ Place() *int }

// Walk visits the items of a list, some at a time, because its caller has other things to do
// meanwhile: each item that is there from its begin to its end exactly once, and none that comes
// meanwhile.
//
// A snapshot of the list would do as well, but to take one of 100,000 items costs milliseconds, and
// it would keep those that are removed meanwhile in memory. A range over a map cannot be left and
// taken up again.
type Walk[T Item] struct {
	list *List[T]
	left int // the first so many of the list are still to be visited
}

// Len returns how many items there are.
func (l *List[T]) Len() int { return len(l.all) }

// All returns the items, for as long as none comes or goes.
func (l *List[T]) All() []T { return l.all }

// Walks returns how many walks have begun and not ended.
func (l *List[T]) Walks() int { return len(l.walks) }

// Walk begins one. Whoever does not go to its end must call Stop.
func (l *List[T]) Walk() *Walk[T] {
	w := &Walk[T]{l, len(l.all)}
	l.walks = append(l.walks, w)
	return w
}

// Left returns how many items are still to be visited.
func (w *Walk[T]) Left() int { return w.left }

// Some visits up to n items and reports whether those were the last.
func (w *Walk[T]) Some(n int, visit func(T)) (done bool) {
	for ; n > 0 && w.left > 0; n-- {
		w.left--
		visit(w.list.all[w.left])
	}
	if w.left == 0 {
		w.Stop()
	}
	return w.left == 0
}

// Stop ends a walk.
func (w *Walk[T]) Stop() {
	w.list.walks = slices.DeleteFunc(w.list.walks, func(o *Walk[T]) bool { return o == w })
}

// Add takes an item in.
func (l *List[T]) Add(x T) {
	*x.Place() = len(l.all)
	l.all = append(l.all, x)
}

// Remove takes an item out. The hole that it leaves is filled with the last item of the list that
// the walks have still to visit as they had the removed one, so that none is left out or comes
// twice.
//
// The walks go from the end of the list to its beginning, each with a border between what it has
// still to visit and what it has visited. The hole moves up from border to border, from the lowest
// on: what lies right below each border fills it, and is still to be visited by that walk on both
// sides.
func (l *List[T]) Remove(x T) {
	hole := *x.Place()
	fill := func(with int) {
		if with != hole {
			l.all[hole] = l.all[with]
			*l.all[hole].Place() = hole
			hole = with
		}
	}
	slices.SortFunc(l.walks, func(v, w *Walk[T]) int { return cmp.Compare(v.left, w.left) })
	for _, w := range l.walks {
		if hole < w.left {
			w.left--
			fill(w.left)
		}
	}
	last := len(l.all) - 1
	fill(last)
	clear(l.all[last:])
	l.all = l.all[:last]
	*x.Place() = -1
}
