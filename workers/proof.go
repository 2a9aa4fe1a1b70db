package workers

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/internal/base/notice"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

type proof struct {
	*loop
	patient time.Duration
	born    pace.Instant
	held    bool // as last told
	err     error
	health  atomic.Pointer[error]
}

var (
	errNoLease   = errors.New("the drainer has no lease yet")
	errLeaseLost = errors.New("the lease cannot be renewed, and nothing starts without it")
	errNoAnswer  = errors.New("no renewal was acknowledged in time")
)

var leaseLost = notice.Kind{Level: slog.LevelWarn,
	Begin: "lease renewal fails: no jobs start until it succeeds",
	End:   "lease renewed again"}

func (p *proof) look(c *core.Core, now pace.Instant) {
	held := now < c.Lease.Fence
	if held != p.held || p.health.Load() == nil {
		p.loop.tell(queue.EventLease, "", queue.Whether(held))
		p.held = held
	}
	var health error
	switch {
	case held:
		p.notices.Tell(&leaseLost, "", "", "id", c.Lease.Id)
	case !c.Lease.Held && now.Since(p.born) < p.patient:
		health = errNoLease
	default:
		why := cmp.Or(p.err, errNoAnswer)
		health = fmt.Errorf("%w: %w", errLeaseLost, why)
		if c.Connected {
			p.notices.Tell(&leaseLost, "", "lost", "id", c.Lease.Id, "error", why)
		}
	}
	p.health.Store(&health)
}
