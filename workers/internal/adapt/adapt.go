// Package adapt learns at what rate a target that does not tell its limit throttles. What it knows
// is a value, and so is time: it reads no clock.
//
// It is TCP's answer to the same question, additive increase and multiplicative decrease (RFC
// 5681), in the form of CUBIC (RFC 9438): a throttle lowers the rate and leaves a ceiling behind,
// to which the rate rises fast at first and then ever more slowly, stays near it for long, and goes
// beyond with ever larger steps until the next throttle. Halving alone, as Reno does, uses three
// quarters of a limit; this uses 95 % and more.
//
//	starts/s                                 the limit rises
//	  limit ─ ─ ─╮─ ─ ─ ─ ─ ─ ─ ─╭╮─ ─ ─ ─ ─╭─ ─ ─ ─ ─ ─
//	             │    ╭──────────╯│  ╭─────╯
//	             ╰────╯           ╰──╯  first 5 %, twice as much for each throttle in a row
//
// Two things are not CUBIC's. Its step of 30 % is for queues that must drain; a limit has none, so
// the first step is 5 %. It is doubled, up to a half, for each throttle that comes as soon as the
// pause after the one before is over, because then the limit itself has fallen: from ten times too
// much it takes seven steps. And time is not counted by round trips, but is the same for all rates.
package adapt

import (
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	// Step is by which part the first throttle lowers the rate, and MostStep the most that one
	// does.
	Step, MostStep = 0.05, 0.5
	// Recovery is the unit of time in which rates come back. At rest a target throttles about once
	// in half of it; the rate is back at the ceiling after 0.37 of it when one step has lowered it,
	// after all of it when it was halved, and beyond it by a half after as much again.
	Recovery = 75 * time.Second
	// atOnce is how soon after a pause a throttle counts as one in a row, or within three starts.
	atOnce = 5 * time.Second
	// mostRow bounds what is counted of throttles in a row.
	mostRow = 16
)

// State is what is known of a target's limit. The zero State knows nothing.
type State struct {
	ceiling float64       // starts per second near which the target throttles; 0: not known
	low     float64       // what the last throttle lowered the rate to
	since   time.Duration // by the caller's clock: when the rate began to rise from there
	row     int           // throttles in a row but for the first
}

// Known reports whether anything is known.
func (s State) Known() bool { return s.ceiling > 0 }

// Rate returns the rate at now, in starts per second: at least least, and at most most.
func (s State) Rate(now time.Duration, least, most float64) float64 {
	if !s.Known() {
		return most
	}
	x := (max(now, s.since) - s.since - s.back()).Seconds() / Recovery.Seconds()
	return max(min(most, s.ceiling*(1+MostStep*x*x*x)), min(least, most))
}

// back is how long it takes from the last throttle to the ceiling.
func (s State) back() time.Duration {
	return time.Duration(math.Cbrt((1-s.low/s.ceiling)/MostStep) * float64(Recovery))
}

// Until returns when the rate is most again, and so nothing is known that matters.
func (s State) Until(most float64) time.Duration {
	if !s.Known() || s.ceiling >= most && s.low >= most {
		return s.since
	}
	beyond := math.Cbrt((most/s.ceiling-1)/MostStep) * float64(Recovery)
	return s.since + s.back() + time.Duration(min(beyond, float64(24*time.Hour)))
}

// Throttled returns what is known after a target has throttled a run that began at an instant, and
// that the bucket starts nothing until another. Of the runs that began before the rate was lowered,
// or during the pause, none lowers it again: that is once per round trip.
func (s State) Throttled(began, until time.Duration, least, most float64) (State, bool) {
	if s.Known() && began < s.since {
		s.since = max(s.since, until)
		return s, false
	}
	at := s.Rate(began, least, most)
	row := 0
	if s.Known() && (began-s.since).Seconds() < max(atOnce.Seconds(), 3/at) {
		row = min(s.row+1, mostRow)
	}
	step := min(MostStep, Step*math.Pow(2, float64(row)))
	// What was too much was so by little, unless it is again at once: the ceiling is half a first
	// step below it.
	return State{ceiling: at * (1 - Step/2), low: at * (1 - step), since: until, row: row}, true
}

// Text is the state as records hold it, by durations from now: see [Parse].
func (s State) Text(now time.Duration, most float64) string {
	number := func(f float64) string { return strconv.FormatFloat(f, 'g', 6, 64) }
	return strings.Join([]string{number(most), number(s.ceiling), number(s.low),
		strconv.FormatInt((now - s.since).Milliseconds(), 10), strconv.Itoa(s.row)}, " ")
}

// Parse reads what was told at an instant. What was learnt below another rate than most is not
// known any more, nor what cannot be read.
func Parse(text string, told time.Duration, most float64) State {
	words := strings.Split(text, " ")
	if len(words) != 5 {
		return State{}
	}
	var n [5]float64
	for i, word := range words {
		var err error
		if n[i], err = strconv.ParseFloat(word, 64); err != nil || math.IsNaN(n[i]) ||
			math.IsInf(n[i], 0) {
			return State{}
		}
	}
	s := State{ceiling: n[1], low: n[2], row: int(min(max(n[4], 0), mostRow)),
		since: told - time.Duration(min(max(n[3], -1e12), 1e12))*time.Millisecond}
	if math.Abs(n[0]-most) > 1e-4*most || s.low <= 0 || s.low > s.ceiling || s.ceiling > 1e12 {
		return State{}
	}
	return s
}
