package workers

// heap is a binary heap that tells its items where they are, so that they can be moved and removed.
type heap[T item[T]] []T

type item[T any] interface {
	before(T) bool
	moved(index int) // −1: no longer in the heap
}

func (h *heap[T]) push(x T) {
	*h = append(*h, x)
	h.up(len(*h)-1, 0)
}

func (h *heap[T]) remove(i int) T {
	s := *h
	x, last := s[i], len(s)-1
	s[i] = s[last]
	clear(s[last:])
	*h = s[:last]
	if i < last {
		h.fix(i)
	}
	x.moved(-1)
	return x
}

// fix restores the order after the item at i has changed.
func (h heap[T]) fix(i int) { h.settle(i, 0) }

// settle moves an item to where it belongs below top. It sinks to the bottom and rises from there,
// which takes half of the comparisons of sinking alone: what takes the place of a first item comes
// from the bottom.
func (h heap[T]) settle(i, top int) {
	x := h[i]
	for child := 2*i + 1; child < len(h); child = 2*i + 1 {
		if right := child + 1; right < len(h) && h[right].before(h[child]) {
			child = right
		}
		h[i] = h[child]
		h[i].moved(i)
		i = child
	}
	h[i] = x
	h.up(i, top)
}

// retain removes the items that keep refuses.
func (h *heap[T]) retain(keep func(T) bool) {
	kept := (*h)[:0]
	for _, x := range *h {
		if keep(x) {
			kept = append(kept, x)
		} else {
			x.moved(-1)
		}
	}
	clear((*h)[len(kept):])
	*h = kept
	for i := len(kept)/2 - 1; i >= 0; i-- {
		kept.settle(i, i)
	}
	for i, x := range kept {
		x.moved(i)
	}
}

func (h heap[T]) up(i, top int) {
	x := h[i]
	for i > top {
		parent := (i - 1) / 2
		if !x.before(h[parent]) {
			break
		}
		h[i] = h[parent]
		h[i].moved(i)
		i = parent
	}
	h[i] = x
	x.moved(i)
}
