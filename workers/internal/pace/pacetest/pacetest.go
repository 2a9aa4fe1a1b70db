// Package pacetest judges starts by law 2 of DESIGN.md, for tests of the clock, of the core and of
// whole drainers.
package pacetest

import (
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/policy"
)

// Most is law 2's bound for a window, peak·(T + 2 ms) + burst, with the peak in starts per second.
func Most(window time.Duration, peak float64, burst int64) float64 {
	return peak*(window+2*time.Millisecond).Seconds() + float64(burst) + 1e-9
}

// Exceeds describes a window of T ≥ 1 s whose starts, of one slot each, break law 2 at a rate with
// the default peak, or returns "".
func Exceeds(starts []time.Duration, rate float64, burst int64) string {
	peak := rate * policy.DefaultPeak
	for i, from := range starts {
		for j, to := range starts[i:] {
			window := max(time.Second, to-from)
			if most := Most(window, peak, burst); float64(j+1) > most {
				return fmt.Sprintf("%d starts within %v, %v to %v, and %.1f are allowed", j+1,
					window, from, to, most)
			}
		}
	}
	return ""
}
