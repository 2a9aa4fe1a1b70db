package workers

import (
	"errors"
	"fmt"
)

// proof is what is told of this drainer's lease. It belongs to the loop.
type proof struct {
	held bool  // as the observer was last told
	lost bool  // as the log was last told
	err  error // of the last renewal
}

var (
	errNoLease   = errors.New("the drainer has no lease yet")
	errLeaseLost = errors.New("the lease cannot be renewed, and nothing starts without it")
)

// Health is nil while this drainer takes part, and otherwise says why it starts nothing: it has no lease yet, or its lease
// could not be renewed, as when JetStream does not answer or has no room.
func (d *Drainer) Health() error {
	if err := d.health.Load(); err != nil {
		return *err
	}
	if d.options.LendOnly {
		return nil
	}
	return errNoLease
}

// watchLease tells when the lease is lost and when it is held again. An outage of the connection is told by others.
func (d *Drainer) watchLease(now instant) {
	held := now < d.core.lease.fence
	if held != d.proof.held || d.health.Load() == nil {
		d.options.Observer.Lease(held)
		d.proof.held = held
	}
	var health error
	switch {
	case held:
		if d.proof.lost {
			d.log.Info("the lease is held again", "id", d.core.lease.id)
			d.proof.lost = false
		}
	case !d.core.lease.held && now.since(d.born) < d.options.Lease:
		health = errNoLease
	default:
		health = errLeaseLost
		if d.proof.err != nil {
			health = fmt.Errorf("%w: %w", errLeaseLost, d.proof.err)
		}
		if !d.proof.lost && d.core.connected {
			d.log.Warn("the lease cannot be renewed: nothing starts until it is", "id", d.core.lease.id, "error", d.proof.err)
			d.proof.lost = true
		}
	}
	d.health.Store(&health)
}
