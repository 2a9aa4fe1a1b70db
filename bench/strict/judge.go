package main

import (
	"slices"
	"time"
)

// worst is the most requests in any window of a length, and in how many windows that end with a
// request there were more than allowed.
type worst struct{ most, over int }

// counted judges requests as the target counted them, before any work.
func counted(visits []visit, window time.Duration, allowed int) worst {
	return judge(visits, window, allowed, func(v visit) time.Duration { return v.came })
}

// anywhere judges as if each request were counted at the worst instant between its arrival and its
// answer.
func anywhere(visits []visit, window time.Duration, allowed int) worst {
	return judge(visits, window, allowed, func(v visit) time.Duration {
		if v.answered == unanswered {
			return v.came
		}
		return v.answered
	})
}

// judge counts, in the window up to each arrival, all that came by then and were not over before.
func judge(visits []visit, window time.Duration, allowed int,
	over func(visit) time.Duration) (w worst) {
	ends := make([]time.Duration, len(visits))
	for i, v := range visits {
		ends[i] = over(v)
	}
	slices.Sort(ends)
	gone := 0
	for i, v := range visits { // in the order in which they came
		for gone < len(ends) && ends[gone] <= v.came-window {
			gone++
		}
		n := i + 1 - gone
		w.most = max(w.most, n)
		if n > allowed {
			w.over++
		}
	}
	return w
}

// cycles returns the rate of visits over as many whole cycles of n as there are: requests of a
// window tend to come together.
func cycles(visits []visit, n int) (perSecond float64) {
	whole := (len(visits) - 1) / n * n
	if whole <= 0 {
		return 0
	}
	return float64(whole) / (visits[whole].came - visits[0].came).Seconds()
}

// inUse counts the periods from an instant on that hold nine tenths of n visits: windows in full
// use, if a period is the time that n visits need undisturbed.
func inUse(visits []visit, from, period time.Duration, n int) (full int) {
	held := map[time.Duration]int{}
	for _, v := range visits {
		if v.came >= from {
			held[(v.came-from)/period]++
		}
	}
	for _, many := range held {
		if 10*many >= 9*n {
			full++
		}
	}
	return full
}

func between(visits []visit, from, to time.Duration) []visit {
	return slices.DeleteFunc(slices.Clone(visits), func(v visit) bool {
		return v.came < from || v.came >= to
	})
}
