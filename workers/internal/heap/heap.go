// Package heap provides a binary heap whose items store their index, for reordering and removal
// without a search.
package heap

// Heap is a binary heap; its first item goes before all others.
type Heap[T Item[T]] []T

// Item is an element of a heap.
type Item[T any] interface {
	Before(T) bool
	Moved(index int) // −1: no longer in the heap
}

func (h *Heap[T]) Push(x T) {
	*h = append(*h, x)
	h.up(len(*h)-1, 0)
}

func (h *Heap[T]) Remove(i int) T {
	s := *h
	x, last := s[i], len(s)-1
	s[i] = s[last]
	clear(s[last:])
	*h = s[:last]
	if i < last {
		h.Fix(i)
	}
	x.Moved(-1)
	return x
}

// Fix restores the order after the item at i has changed.
func (h Heap[T]) Fix(i int) { h.settle(i, 0) }

// settle moves an item below top. It sinks to the bottom and rises from there, with half of the
// comparisons, because a first item's replacement comes from the bottom.
func (h Heap[T]) settle(i, top int) {
	x := h[i]
	for child := 2*i + 1; child < len(h); child = 2*i + 1 {
		if right := child + 1; right < len(h) && h[right].Before(h[child]) {
			child = right
		}
		h[i] = h[child]
		h[i].Moved(i)
		i = child
	}
	h[i] = x
	h.up(i, top)
}

// Retain removes the items that keep refuses.
func (h *Heap[T]) Retain(keep func(T) bool) {
	kept := (*h)[:0]
	for _, x := range *h {
		if keep(x) {
			kept = append(kept, x)
		} else {
			x.Moved(-1)
		}
	}
	clear((*h)[len(kept):])
	*h = kept
	for i := len(kept)/2 - 1; i >= 0; i-- {
		kept.settle(i, i)
	}
	for i, x := range kept {
		x.Moved(i)
	}
}

func (h Heap[T]) up(i, top int) {
	x := h[i]
	for i > top {
		parent := (i - 1) / 2
		if !x.Before(h[parent]) {
			break
		}
		h[i] = h[parent]
		h[i].Moved(i)
		i = parent
	}
	h[i] = x
	x.Moved(i)
}
