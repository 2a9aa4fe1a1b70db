package workers

import "time"

// SetPolicies changes [Options.Policies] while the drainer runs: partitions of policies that it may not own any more
// are handed over.
func (d *Drainer) SetPolicies(names []string) {
	d.post(func(now instant) {
		d.options.Policies = names
		if d.set != nil {
			d.setPolicies(d.set, now)
		}
	})
}

// unfinished counts what a drainer that stops waits for: partitions to hand over, and jobs that run here, for this
// process's valves or others'.
func (d *Drainer) unfinished() (partitions, jobs int) {
	for _, n := range d.owned {
		partitions += n
	}
	for _, v := range d.core.valves {
		jobs += v.busy + v.lent + v.claims.running
	}
	return partitions, jobs
}

func (d *Drainer) sayStopping() {
	partitions, jobs := d.unfinished()
	d.log.Info("handing over, and waiting for jobs that run", "partitions", partitions, "jobs", jobs,
		"until", time.Now().Add(d.options.Grace).UTC().Format(time.RFC3339))
}

func (d *Drainer) sayCutOff() {
	partitions, jobs := d.unfinished()
	d.log.Warn("the grace period is over: jobs that run are interrupted", "partitions", partitions, "jobs", jobs,
		"grace", d.options.Grace)
}
