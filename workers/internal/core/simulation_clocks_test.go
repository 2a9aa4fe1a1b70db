package core

import (
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
)

const (
	// the host stops a process with its clocks, and then sets its wall clock
	stoppedClocks hazard = "stopped-clocks"
	// the clocks of the leaders of owner and attempt records are wrong, and change with the leader
	serverClocks hazard = "server-clocks"
	hostClocks   hazard = "host-clocks"
	// checkpoints are stored long after they were put together
	lateCheckpoints hazard = "late-checkpoints"
)

// stopClocks stops a process. Afterwards it detects that its wall clock was set, but not the length
// of the stop.
func (w *world) stopClocks() {
	d := w.someDrainer()
	if d == nil || d.frozen > w.now {
		return
	}
	length := w.between(100*time.Millisecond, 12*time.Second)
	d.frozen = w.now + length
	d.cut = max(d.cut, d.frozen+w.between(0, 2*time.Second))
	w.to(d, d.cut-w.now, func() {
		if d.cut <= w.now && !d.core.Connected {
			d.core.Handle(Connected{Up: true}, d.clock())
		}
	})
	w.after(length, func() {
		d.offset -= time.Duration(float64(length) * (1 + d.drift))
		d.jumps++
	})
}

func (d *drainer) gate() (fence, now pace.Instant) {
	if d.jumps != d.heard && d.w.sabotage != jumpsUnheard {
		return 0, d.clock()
	}
	return d.core.Fence(), d.clock()
}

func (d *drainer) hearJumps() {
	if d.jumps != d.heard && d.w.sabotage != jumpsUnheard {
		d.core.Handle(Jumped{}, d.clock())
	}
	d.heard = d.jumps
}

// holdCheckpoints delays writes of owner records for longer than a lease. An owner may crash before
// its next checkpoint.
func (w *world) holdCheckpoints() {
	if w.held > w.now {
		return
	}
	w.held = w.now + w.between(simulatedLease, 3*simulatedLease)
	name := tableNames[TablePartitions]
	w.orphaned[name] = max(w.orphaned[name], w.held)
}

func (d *drainer) heldUp(apply func()) {
	w := d.w
	w.after(w.held-w.now, apply)
	if w.chance(0.5) {
		w.after(w.held-w.now+w.between(0, 300*time.Millisecond), d.crash)
	}
}

func (w *world) stepServers() {
	for _, name := range []string{tableNames[TablePartitions], attemptsName} {
		if w.chance(0.5) {
			w.skews[name] = w.between(-10*time.Second, 10*time.Second)
		}
	}
}

func (w *world) stamp(name string) time.Time { return w.wall().Add(w.skews[name]) }

func (d *drainer) hosted() time.Time { return d.w.wall().Add(d.wrong) }

func (d *drainer) pickHostClock() {
	if w := d.w; w.has(hostClocks) && !w.has(serverClocks) {
		d.wrong = w.between(-20*365*24*time.Hour, 20*365*24*time.Hour)
	}
}
