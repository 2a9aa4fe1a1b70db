package workers

// heap is a binary heap that tells its items where they are, so that they can be moved and removed.
type heap[T item[T]] []T

type item[T any] interface {
	before(T) bool
	moved(index int) // −1: no longer in the heap
}

func (h *heap[T]) push(x T) {
	*h = append(*h, x)
	h.up(len(*h) - 1)
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
func (h *heap[T]) fix(i int) {
	if !h.down(i) {
		h.up(i)
	}
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
		kept.down(i)
	}
	for i, x := range kept {
		x.moved(i)
	}
}

func (h heap[T]) up(i int) {
	x := h[i]
	for i > 0 {
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

func (h heap[T]) down(i int) (sank bool) {
	x, start := h[i], i
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if right := child + 1; right < len(h) && h[right].before(h[child]) {
			child = right
		}
		if !h[child].before(x) {
			break
		}
		h[i] = h[child]
		h[i].moved(i)
		i = child
	}
	h[i] = x
	x.moved(i)
	return i > start
}
