package core

import "time"

// Some crashes are aimed at critical moments: shortly after a start, and around a claim.

type aim uint8

const (
	atNothing aim = iota
	atAStart
	atAClaim
)

func (w *world) aims(until time.Duration) {
	w.poison = w.chance(0.1)
	if w.chance(0.5) {
		return
	}
	for at := w.between(time.Second, 10*time.Second); at <
		until; at += w.between(2*time.Second, 15*time.Second) {
		w.after(at, func() { w.aim = atAStart + aim(w.rng.IntN(2)) })
	}
}

func (w *world) aimed(d *drainer, what aim, within time.Duration) {
	if w.aim == what && w.now < busy {
		w.aim = atNothing
		w.crash(d, within)
	}
}

func (w *world) crash(d *drainer, within time.Duration) {
	w.after(w.between(0, within), func() {
		if d.alive {
			d.crash()
			if w.chance(0.7) {
				w.after(w.between(0, 5*time.Second), w.join)
			}
		}
	})
}
