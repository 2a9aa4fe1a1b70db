// Package walk provides a list that can be visited in pieces while it changes.
package walk

import (
	"cmp"
	"slices"
)

type List[T Item] struct {
	all   []T
	walks []*Walk[T]
}

// Item stores its index in the list, −1 after its removal.
type Item interface{ Place() *int32 }

// Walk visits each item that is present throughout exactly once, and no added one, in pieces.
//
// A snapshot would cost milliseconds for 100,000 items, and keep removed ones in memory.
type Walk[T Item] struct {
	list *List[T]
	left int // the first left items are to be visited
}

func (l *List[T]) Len() int { return len(l.all) }

// All returns the items, valid until one is added or removed.
func (l *List[T]) All() []T { return l.all }

// Walks returns the number of walks in progress.
func (l *List[T]) Walks() int { return len(l.walks) }

// Walk begins a walk. Call Stop if it is not completed.
func (l *List[T]) Walk() *Walk[T] {
	w := &Walk[T]{l, len(l.all)}
	l.walks = append(l.walks, w)
	return w
}

func (w *Walk[T]) Left() int { return w.left }

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

func (w *Walk[T]) Stop() {
	w.list.walks = slices.DeleteFunc(w.list.walks, func(o *Walk[T]) bool { return o == w })
}

func (l *List[T]) Add(x T) {
	*x.Place() = int32(len(l.all))
	l.all = append(l.all, x)
}

// Remove fills the hole with later items such that every walk still visits exactly the items it has
// not visited.
//
// Walks go from the end to the beginning; each has a border between items to visit and visited
// ones. The hole moves up from border to border, beginning at the lowest. The item right below each
// border fills it, and that walk visits the item at either place.
func (l *List[T]) Remove(x T) {
	hole := int(*x.Place())
	fill := func(with int) {
		if with != hole {
			l.all[hole] = l.all[with]
			*l.all[hole].Place() = int32(hole)
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
