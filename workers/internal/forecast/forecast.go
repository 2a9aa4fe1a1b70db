// Package forecast tells the slots that go to other buckets before a bucket's turn, where buckets
// take turns. It assumes that every bucket takes its turns evenly, by weight, in jobs of its
// average cost, and errs to the late side, by at most one job of each other bucket.
package forecast

import "math"

// Waits is what waits in a bucket. One without jobs takes no turn.
type Waits struct {
	Turn        float64 // its next one
	Weight      int64
	Slots, Jobs int64
}

func (w Waits) perJob() float64 { return float64(w.Slots) / float64(w.Jobs) }

// Until returns the slots that a bucket takes before a turn, from another on.
func (w Waits) Until(turn, from float64) int64 {
	ahead := (turn - max(w.Turn, from)) * float64(w.Weight)
	if w.Jobs == 0 || ahead < 0 {
		return 0
	}
	perJob := w.perJob()
	return min(w.Slots, int64((math.Floor(ahead/perJob)+1)*perJob))
}

const (
	turnBits = 6 // mantissa bits that select a bin
	turnBins = 48 << turnBits
)

// Forecast sums up many buckets. Turns are exact to one part in 64.
type Forecast struct {
	From float64 // the turn from which it counts
	// A bucket's slots grow linearly between its first and last turn, as fixed + slope·turn. The
	// bins hold sums over all buckets that have begun, minus the ended ones.
	fixed, slope [turnBins]float64
}

// turnBin returns the bin of some turns. Bins widen as floating-point numbers do.
func turnBin(turns float64) int {
	const mantissa, bias = 52, 1023
	return min(int(math.Float64bits(1+turns)>>(mantissa-turnBits))-bias<<turnBits, turnBins-1)
}

// Add adds a bucket, until Sum. It takes no turn before from, the present one: a forecast may have
// begun earlier.
func (f *Forecast) Add(w Waits, from float64) {
	if w.Jobs == 0 {
		return
	}
	weight := float64(w.Weight)
	first := max(0, max(w.Turn, from)-f.From)
	last := first + (float64(w.Slots)-w.perJob())/weight
	f.line(first, w.perJob()-first*weight, weight)
	f.line(last, last*weight, -weight)
}

func (f *Forecast) line(from, fixed, slope float64) {
	bin := turnBin(from)
	f.fixed[bin] += fixed
	f.slope[bin] += slope
}

// Sum ends the forecast.
func (f *Forecast) Sum() {
	for i := 1; i < turnBins; i++ {
		f.fixed[i] += f.fixed[i-1]
		f.slope[i] += f.slope[i-1]
	}
}

// Before returns the slots of others before a bucket, which was added too, has taken some slots and
// takes a turn.
func (f *Forecast) Before(turn float64, w Waits, slots int64) int64 {
	ahead := max(0, turn-f.From)
	bin := turnBin(ahead)
	others := f.fixed[bin] + f.slope[bin]*ahead
	if w.Jobs > 0 {
		others -= min(float64(w.Slots), float64(slots)+w.perJob())
	}
	return int64(max(0, others))
}
