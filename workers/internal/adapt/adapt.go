// Package adapt estimates the rate limit of a target that does not publish it, from its throttles.
// Its state is a value, and it reads no clock.
//
// It uses TCP's additive increase and multiplicative decrease (RFC 5681), in the form of CUBIC (RFC
// 9438). A throttle lowers the rate and leaves a ceiling, to which the rate rises fast at first,
// and then more slowly. It stays near the ceiling for long, and then exceeds it with growing steps
// until the next throttle. Halving alone, as in Reno, uses three quarters of a limit; this uses 95
// % and more.
//
//	starts/s                                 the limit rises
//	  limit ─ ─ ─╮─ ─ ─ ─ ─ ─ ─ ─╭╮─ ─ ─ ─ ─╭─ ─ ─ ─ ─ ─
//	             │    ╭──────────╯│  ╭─────╯
//	             ╰────╯           ╰──╯  first 5 %, twice as much for each throttle in a row
//
// It differs from CUBIC in two ways. CUBIC's step of 30 % is for queues that must drain; a limit
// has none, so the first step is 5 %. The step doubles, up to a half, for each throttle right after
// the pause of the one before, because then the limit itself has fallen: from ten times too much it
// takes seven steps. And time does not count in round trips, but is the same for all rates.
package adapt

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	// Step is the relative decrease by the first throttle, and MostStep the largest one.
	Step, MostStep = 0.05, 0.5
	// Recovery is the time scale: in equilibrium a target throttles about once per half of it. The
	// rate is back at the ceiling after 0.37 of it following one step, after all of it following a
	// halving, and exceeds the ceiling by a half after as much again.
	Recovery = 75 * time.Second
	// atOnce is the time after a pause, or at least three starts, within which a throttle counts as
	// consecutive.
	atOnce  = 5 * time.Second
	mostRow = 16
)

// State is an estimate of a target's limit. The zero State is unknown.
type State struct {
	ceiling float64       // starts per second near which the target throttles; 0: unknown
	low     float64       // rate after the last throttle
	since   time.Duration // by the caller's clock: when the rate began to rise from low
	row     int           // consecutive throttles after the first
}

// Known reports whether anything is known.
func (s State) Known() bool { return s.ceiling > 0 }

// Rate returns the rate at now, in starts per second, from least to most.
func (s State) Rate(now time.Duration, least, most float64) float64 {
	if !s.Known() {
		return most
	}
	x := (max(now, s.since) - s.since - s.back()).Seconds() / Recovery.Seconds()
	return max(min(most, s.ceiling*(1+MostStep*x*x*x)), min(least, most))
}

func (s State) back() time.Duration {
	return time.Duration(math.Cbrt((1-s.low/s.ceiling)/MostStep) * float64(Recovery))
}

// Until returns when the rate is most again, where the state ends.
func (s State) Until(most float64) time.Duration {
	if !s.Known() || s.ceiling >= most && s.low >= most {
		return s.since
	}
	beyond := math.Cbrt((most/s.ceiling-1)/MostStep) * float64(Recovery)
	return s.since + s.back() + time.Duration(min(beyond, float64(24*time.Hour)))
}

// Throttled returns the state after a throttle of a run that began at an instant; the bucket pauses
// until another. Runs that began before the last decrease, or during the pause, do not lower the
// rate again, like once per round trip in TCP.
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
	// The excess was small, unless the next throttle follows at once: the ceiling is half a
	// first step below.
	return State{ceiling: at * (1 - Step/2), low: at * (1 - step), since: until, row: row}, true
}

// RisingFrom returns the state of a pause that ends at an instant, if it would end later.
func (s State) RisingFrom(at time.Duration) State {
	s.since = min(s.since, at)
	return s
}

// Text encodes the state relative to now; see [Parse].
func (s State) Text(now time.Duration, most float64) string {
	return fmt.Sprintf("%.6g %.6g %.6g %d %d", most, s.ceiling, s.low,
		(now - s.since).Milliseconds(), s.row)
}

// Parse decodes a state recorded at an instant. The zero State is returned if the text is
// unreadable, or was learnt below another rate than most.
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
