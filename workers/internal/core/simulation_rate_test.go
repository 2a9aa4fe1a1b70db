package core

import (
	"testing"
	"time"
)

type stall struct{ at, length time.Duration }

// TestSimulationKeepsTheRate checks law 2 from below: with work, workers and no disturbance, 99.5 %
// of the rate starts, net of the machine's stalls, in each stretch of 5 s or more.
func TestSimulationKeepsTheRate(t *testing.T) {
	const begins, ends, stretch = 10 * time.Second, 60 * time.Second, 5 * time.Second
	for _, rate := range []string{"1/s", "3/s", "10/s", "50/s", "200/s"} {
		w := emptyWorld(1, noSabotage)
		w.flawless = true
		p := leaky("p0", rate)
		p.Partitions, p.Workers = 1, 64
		w.add(p.WithDefaults())
		w.join()
		for at := time.Duration(0); at < ends; at += time.Second {
			w.after(at, func() {
				for len(w.streams["p0"].messages) < 500 {
					w.publish("p0", "k0", 0)
				}
			})
		}
		for len(w.queue) > 0 && w.queue[0].at < ends && len(w.broken) == 0 {
			e := w.queue.Remove(0)
			w.now = e.at
			e.do()
		}
		if len(w.broken) > 0 {
			t.Fatal(w.broken)
		}
		perSecond := w.policyOf("p0").Outflow.PerSecond()
		for from := begins; from+stretch <= ends; from += stretch {
			for to := from + stretch; to <= ends; to += stretch {
				taken := 0.0
				for _, f := range w.accepted {
					if len(f.slots) > 0 && f.slots[0].at >= from && f.slots[0].at < to {
						taken += float64(f.cost)
					}
				}
				stalled := time.Duration(0)
				for _, s := range w.stalls {
					if s.at >= from-stretch && s.at < to {
						stalled += s.length
					}
				}
				// A job of ten slots may begin before the stretch or end after it.
				if want := perSecond*0.995*(to-from-stalled).Seconds() - 10; taken < want {
					t.Errorf("%s: %v slots from %v to %v, want %.1f at least; %v stalled", rate,
						taken, from, to, want, stalled)
				}
			}
		}
	}
}
