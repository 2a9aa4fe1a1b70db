package main

import (
	"math/rand/v2"
	"runtime"
	"sync"
)

// the largest limit searched at random, because a leaking bucket is asked for each unit
const mostSearched = 100

type move struct {
	wait  waiting
	extra int64 // µs beyond
	units int64
}

type waiting int

const (
	forNothing waiting = iota // only the extra time
	forEdge                   // last µs of a window
	forRoom                   // until a unit could pass
	waitings
)

const (
	moves    = 12
	searches = 5
)

func randomMove(random *rand.Rand, limit int64) move {
	m := move{wait: waiting(random.Int64N(int64(waitings))), units: limit}
	switch random.Int64N(3) {
	case 0:
		m.extra = random.Int64N(4)
	case 1:
		m.extra = random.Int64N(windowMicros / 50)
	case 2:
		m.extra = random.Int64N(windowMicros)
	}
	if random.Int64N(2) == 0 {
		m.units = 1 + random.Int64N(limit)
	}
	return m
}

func (s subject) play(history []passed, sought []move, limit int64) []passed {
	k := s.fresh(limit)
	var at, wait int64
	for _, m := range sought {
		switch m.wait {
		case forEdge:
			at += windowMicros - 1 - at%windowMicros
		case forRoom:
			at += wait
		}
		at += m.extra
		history, wait = k.ask(history, at, m.units)
	}
	return history
}

// search climbs hills: it changes one move of a random history at a time, and keeps changes that do
// not reduce the units passed in an interval.
func (s subject) search(random *rand.Rand, changes int, limit, length int64) (best int64) {
	var history []passed
	for range searches {
		sought := make([]move, moves)
		for i := range sought {
			sought[i] = randomMove(random, limit)
		}
		var reached int64
		for range changes {
			i := random.IntN(moves)
			before := sought[i]
			sought[i] = randomMove(random, limit)
			history = s.play(history[:0], sought, limit)
			if n := most(history, length); n >= reached {
				reached = n
			} else {
				sought[i] = before
			}
		}
		best = max(best, reached)
	}
	return best
}

type worstCase struct {
	subject       subject
	limit, length int64
	constructed   int64
	found         int64
	bound         int64
}

func (w worstCase) most() int64 { return max(w.constructed, w.found) }

func (w worstCase) ratio() float64 { return float64(w.most()) / float64(w.limit) }

func worstCases(seed uint64, changes int) []worstCase {
	cases := make([]worstCase, 0, len(subjects)*len(limits)*len(lengths))
	for _, s := range subjects {
		for _, limit := range limits {
			for _, length := range lengths {
				cases = append(cases, worstCase{subject: s, limit: limit, length: length,
					constructed: s.constructed(limit, length), bound: s.bound(limit, length-1)})
			}
		}
	}
	next := make(chan int)
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for i := range next {
				c := &cases[i]
				c.found = c.subject.search(rand.New(rand.NewPCG(seed, uint64(i))), changes, c.limit,
					c.length)
			}
		})
	}
	for i, c := range cases {
		if c.limit <= mostSearched {
			next <- i
		}
	}
	close(next)
	group.Wait()
	return cases
}
