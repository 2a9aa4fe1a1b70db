package workers

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// result is what a worker reports to the loop.
type result struct {
	run     run
	outcome outcome
}

// work is one worker: it makes the last checks, runs the handler and reports. The valve has counted it among the policy's
// workers.
func (d *Drainer) work(r run, handle Handler, timeout time.Duration, created time.Time) {
	var now instant
	if !r.decide(func() bool {
		now = d.now()
		return now < instant(d.fence.Load()) && (r.latest == 0 || now <= r.latest)
	}) {
		d.report(result{r, outcome{Seq: r.Seq, Kind: outcomeReturned}})
		return
	}
	job := Job{
		ID:          r.part.policy + ":" + strconv.FormatUint(r.Seq, 10),
		Idempotency: idempotency(r, created),
		Policy:      r.part.policy,
		Key:         r.Key,
		Body:        r.Body,
		Header:      r.Header,
		Attempt:     r.attempt,
		Accepted:    r.Stored,
		Started:     d.epoch.Add(time.Duration(now)),
	}
	d.options.Observer.Started(job.Policy, max(0, now.since(r.due)), max(0, job.Started.Sub(job.Accepted)))
	d.log.Debug("start", "job", job.ID, "key", job.Key, "attempt", job.Attempt, "started", job.Started)
	ctx, cancel := context.WithTimeout(d.jobs, timeout)
	err := call(ctx, handle, job)
	cancel()
	o := outcomeOf(r.Seq, err)
	if o.Kind == outcomeFailed && d.jobs.Err() != nil {
		o.Kind = outcomeReturned // interrupted by this drainer's own end: no attempt
	}
	d.options.Observer.Finished(job.Policy, string(o.Kind))
	if err != nil {
		d.log.Debug("attempt ended", "job", job.ID, "key", job.Key, "attempt", job.Attempt, "outcome", o.Kind, "error", o.Error)
	}
	d.report(result{r, o})
}

func (d *Drainer) report(r result) {
	select {
	case d.results <- r:
	case <-d.stopped:
	}
}

func idempotency(r run, created time.Time) string {
	if own := header(r.Header, "Idempotency-Key"); own != "" {
		return own
	}
	return r.part.policy + "-" + strconv.FormatInt(created.Unix(), 10) + "-" + strconv.FormatUint(r.Seq, 10)
}

func header(h nats.Header, name string) string {
	for key, values := range h {
		if len(values) > 0 && strings.EqualFold(key, name) {
			return values[0]
		}
	}
	return ""
}
