package heap

import (
	"math/rand/v2"
	"slices"
	"testing"
)

type number struct{ value, index int }

func (n *number) Before(m *number) bool { return n.value < m.value }
func (n *number) Moved(index int)       { n.index = index }

func TestItemsKnowTheirIndices(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var h Heap[*number]
	for range 2000 {
		switch {
		case len(h) < 10 || r.IntN(3) > 0:
			h.Push(&number{value: r.IntN(50)})
		case r.IntN(20) == 0:
			all := slices.Clone(h)
			h.Retain(func(n *number) bool { return n.value%3 > 0 })
			for _, n := range all {
				if (n.value%3 > 0) != (n.index >= 0) {
					t.Fatalf("%d is at %d after only those that three does not divide are kept",
						n.value, n.index)
				}
			}
		case r.IntN(2) == 0:
			i := r.IntN(len(h))
			h[i].value = r.IntN(50)
			h.Fix(i)
		default:
			if n := h.Remove(r.IntN(len(h))); n.index != -1 {
				t.Fatalf("what was removed is at %d", n.index)
			}
		}
		for i, n := range h {
			if n.index != i || h[(i-1)/2].value > n.value && i > 0 {
				t.Fatalf("%d is at %d and was told %d, below %d", n.value, i, n.index,
					h[(i-1)/2].value)
			}
		}
	}
}
