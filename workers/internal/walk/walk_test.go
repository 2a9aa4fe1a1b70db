package walk

import (
	"math/rand/v2"
	"testing"
)

// item has the time of its addition.
type item struct {
	number int
	place  int32
}

func (i *item) Place() *int32 { return &i.place }

func TestAWalkVisitsEachItemOnce(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for round := range 300 {
		var list List[*item]
		made := 0
		add := func() {
			list.Add(&item{number: made})
			made++
		}
		for range random.IntN(40) {
			add()
		}
		type seen struct {
			w     *Walk[*item]
			begin int
			times map[*item]int
			done  bool
		}
		var walks []*seen
		gone := map[*item]bool{}
		for range 60 {
			switch random.IntN(6) {
			case 0:
				walks = append(walks, &seen{list.Walk(), made, map[*item]int{}, false})
			case 1:
				add()
			case 2, 3:
				if n := list.Len(); n > 0 {
					x := list.All()[random.IntN(n)]
					gone[x] = true
					list.Remove(x)
				}
			default:
				for _, s := range walks {
					if !s.done {
						s.done = s.w.Some(random.IntN(5), func(x *item) { s.times[x]++ })
					}
				}
			}
		}
		for _, s := range walks {
			for !s.done {
				s.done = s.w.Some(7, func(x *item) { s.times[x]++ })
			}
			for x, n := range s.times {
				if n != 1 {
					t.Fatalf("round %d: item %d visited %d times", round, x.number, n)
				}
			}
			for _, x := range list.All() {
				if x.number < s.begin && s.times[x] == 0 {
					t.Fatalf("round %d: item %d left out", round, x.number)
				}
			}
		}
		if list.Walks() != 0 {
			t.Fatalf("round %d: %d walks have not ended", round, list.Walks())
		}
		for i, x := range list.All() {
			if int(x.place) != i || gone[x] {
				t.Fatalf("round %d: the list is wrong at %d", round, i)
			}
		}
		for x := range gone {
			if x.place != -1 {
				t.Fatalf("round %d: item %d was removed, and is at %d", round, x.number, x.place)
			}
		}
	}
}

func TestAWalkThatIsStoppedHasEnded(t *testing.T) {
	var list List[*item]
	for n := range 3 {
		list.Add(&item{number: n})
	}
	w := list.Walk()
	if w.Some(1, func(*item) {}) || w.Left() != 2 || list.Walks() != 1 {
		t.Errorf("%d left, %d walks", w.Left(), list.Walks())
	}
	if w.Stop(); list.Walks() != 0 {
		t.Errorf("%d walks", list.Walks())
	}
}
