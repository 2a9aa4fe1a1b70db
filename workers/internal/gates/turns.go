package gates

import (
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// Total is the rate of all buckets together. A limit would cost a guard and a checkpoint.
type Total struct {
	*pace.Pace
	Clock pace.Clock
	awake bool
}

// Next returns until when it holds all buckets.
func (t *Total) Next() Hold { return Hold{By: ByTotalRate, Until: t.Pace.Next(&t.Clock)} }

// Wake begins a series of starts, without credit for the time before.
func (t *Total) Wake(now pace.Instant) {
	if !t.awake {
		t.awake = true
		t.Pace.Wake(&t.Clock, now)
	}
}

// Rest ends a series of starts.
func (t *Total) Rest() { t.awake = false }

func (t *Total) Take(cost int64, now pace.Instant) { t.Pace.Take(&t.Clock, now, cost) }

// Return gives the slots of a start back.
func (t *Total) Return(cost int64) { t.Spare(&t.Clock, cost) }

// Hold allows the next start at an instant, without a burst.
func (t *Total) Hold(until pace.Instant) { t.Pace.Hold(&t.Clock, until) }

// Change replaces the rate.
func (t *Total) Change(to *pace.Pace, now pace.Instant) {
	if before := t.Pace; before != nil && to != nil {
		to.Adapt(&t.Clock, before, now)
	} else {
		t.Clock.Reset()
		to.Hold(&t.Clock, now)
	}
	t.Pace = to
}

// Turns is the virtual time of start-time fair queueing (Goyal, Vin and Cheng, 1996), in starts by
// weight. Who becomes active starts from Now.
type Turns struct {
	Now  float64
	most float64
}

// Take returns the turn of who starts something in its turn.
func (t *Turns) Take(turn float64, cost int64, weight float64) float64 {
	t.Now = max(t.Now, turn)
	turn = t.Now + float64(cost)/weight
	t.most = max(t.most, turn)
	return turn
}

// Rest lets all begin anew, because none waits.
func (t *Turns) Rest() { t.Now = t.most }
