package workers

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// proof reports the state of this drainer's lease. It belongs to the loop, except health.
type proof struct {
	log     *slog.Logger
	observe func(held bool)
	patient time.Duration // how long to wait for the first lease
	born    pace.Instant  // when it was first requested
	held    bool          // as last reported to the observer
	lost    bool          // as last logged
	err     error         // of the last renewal
	health  atomic.Pointer[error]
}

var (
	errNoLease   = errors.New("the drainer has no lease yet")
	errLeaseLost = errors.New("the lease cannot be renewed, and nothing starts without it")
)

// tell reports when the lease is lost and regained. Outages of the connection are reported
// elsewhere.
func (p *proof) tell(c *core.Core, now pace.Instant) {
	held := now < c.Lease.Fence
	if held != p.held || p.health.Load() == nil {
		p.observe(held)
		p.held = held
	}
	var health error
	switch {
	case held:
		if p.lost {
			p.log.Info("the lease is held again", "id", c.Lease.Id)
			p.lost = false
		}
	case !c.Lease.Held && now.Since(p.born) < p.patient:
		health = errNoLease
	default:
		health = errLeaseLost
		if p.err != nil {
			health = fmt.Errorf("%w: %w", errLeaseLost, p.err)
		}
		if !p.lost && c.Connected {
			p.log.Warn("the lease cannot be renewed: nothing starts until it is", "id", c.Lease.Id,
				"error", p.err)
			p.lost = true
		}
	}
	p.health.Store(&health)
}
