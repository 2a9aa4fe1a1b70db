package algorithms

import (
	"errors"
	"time"
)

// Bound is what a rule promises of any time T, whatever the requests:
//
//	Rate is given       at most Units + Rate·T
//	Window alone        at most Units in T ≤ Window, ends excluded
//	Aligned             at most Units in each window of the clock, so 2·Units in T ≤ Window
//	Aligned, Estimated  the same, and Units·(1 + T/Window) in T ≤ Window, rounded up
type Bound struct {
	Units  int64
	Rate   Rate
	Window time.Duration // an average one for calendar months
	// Aligned: windows are the clock's.
	Aligned bool
	// Estimated: the units of the previous window count in part.
	Estimated bool
}

// Interval returns the time per unit at full use.
func (b Bound) Interval() time.Duration {
	if b.Window == 0 {
		return b.Rate.Interval()
	}
	return b.Window / time.Duration(max(1, b.Units))
}

// ErrEstimated is why a [SlidingCounter] cannot bound arrivals.
var ErrEstimated = errors.New("a sliding counter takes the units of the previous window for " +
	"spread evenly: requests that are held up together would arrive as many as twice the limit " +
	"in a window's length")

// Arrivals returns nil if a rule with the bound keeps it for arrivals too, when units are held
// until they are answered: see [Holding].
func (b Bound) Arrivals() error {
	if b.Estimated {
		return ErrEstimated
	}
	return nil
}
