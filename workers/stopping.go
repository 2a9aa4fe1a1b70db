package workers

import (
	"context"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/core"
)

// A drainer hands over its partitions (beginToLeave), interrupts running jobs after the grace
// period (cutOff), and another lease later stops waiting for them.

func (d *Drainer) beginToLeave() {
	d.leave = nil
	d.grace = time.After(d.options.Grace)
	d.lender.close()
	d.core.Handle(core.Stopped{}, d.now())
	partitions, jobs := d.unfinished()
	d.log.Info("handing over and waiting for running jobs", "partitions", partitions, "jobs",
		jobs, "until", time.Now().Add(d.options.Grace).UTC().Format(time.RFC3339))
}

func (d *Drainer) cutOff() {
	partitions, jobs := d.unfinished()
	d.log.Warn("grace period over: interrupting running jobs", "partitions",
		partitions, "jobs", jobs, "grace", d.options.Grace)
	d.interrupt()
	d.late = time.After(d.options.Lease)
}

func (d *Drainer) unfinished() (partitions, jobs int) {
	for _, n := range d.backlogs.owned {
		partitions += n
	}
	return partitions, d.core.Running()
}

func (d *Drainer) resign() {
	ctx, cancel := context.WithTimeout(context.Background(), d.patience)
	defer cancel()
	if err := d.broker.Tables().Drainers.Delete(ctx, d.core.Lease.Id, 0); err != nil {
		d.log.Warn("lease not released: other drainers wait until it expires", "error", err)
	}
}
