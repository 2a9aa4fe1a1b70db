// Package pacetest judges starts by law 2 of DESIGN.md. Tests of the clock, of the core and of
// whole drainers share it, so that all of them mean the same law.
package pacetest

import (
	"fmt"
	"time"
)

// Exceeds says where starts of one slot each break law 2, rate·(1.002·T + 2 ms) + burst of them in
// a window of T ≥ 1 s, and returns an empty string when they break it nowhere.
func Exceeds(starts []time.Duration, rate float64, burst int64) string {
	for i, from := range starts {
		for j, to := range starts[i:] {
			window := max(time.Second, to-from)
			if most := rate*(1.002*window.Seconds()+0.002) + float64(burst); float64(j+1) >
				most+1e-9 {
				return fmt.Sprintf("%d starts at %v/s burst %d within %v, %v to %v", j+1, rate,
					burst, window, from, to)
			}
		}
	}
	return ""
}
