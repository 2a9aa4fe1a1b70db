package deep

import "slices"

// Named costs are separate from a page's records, because most jobs have none.

// mostNames bounds a store's cost names, because publishers may send any.
const mostNames = 1 << 10

type cost struct {
	slot, name uint16
	units      int32
}

// name returns the index of a name, added if there is room; −1: no room.
func (s *Store[O]) name(name string) int {
	i := slices.Index(s.names, name)
	if i < 0 && len(s.names) < mostNames {
		i = len(s.names)
		s.names = append(s.names, name)
	}
	return i
}

func (s *Store[O]) TakesCosts(costs map[string]int64) bool {
	for name := range costs {
		if s.name(name) < 0 {
			return false
		}
	}
	return true
}

func (s *Store[O]) Costs(seq uint64) (costs map[string]int64) {
	at := s.find(seq)
	if at == nowhere {
		return nil
	}
	of := s.pages[at>>slotBits].costsOf(int(at & (1<<slotBits - 1)))
	for _, c := range of {
		if costs == nil {
			costs = make(map[string]int64, len(of))
		}
		costs[s.names[c.name]] = int64(c.units)
	}
	return costs
}

func (p *page) costsOf(slot int) []cost {
	bySlot := func(c cost, slot int) int { return int(c.slot) - slot }
	first, _ := slices.BinarySearchFunc(p.costs, slot, bySlot)
	end, _ := slices.BinarySearchFunc(p.costs, slot+1, bySlot)
	return p.costs[first:end]
}
