package workers

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue"
)

// result is what a worker reports to the loop.
type result struct {
	run     run
	outcome outcome
}

// gate is what the last check before a start goes by. The loop writes the fence before what it has heard of, which is read
// here the other way round: a fence that counts is one of a core that knows of every jump.
func (d *Drainer) gate() (fence, now instant) {
	heard := d.heard.Load()
	fence = instant(d.fence.Load())
	if now = d.now(); d.clock.jumps.Load() != heard {
		fence = 0
	}
	return fence, now
}

// work is one worker: it makes the last check, runs the handler and reports. The valve has counted it among the policy's
// workers.
func (d *Drainer) work(r run, handle Handler, timeout time.Duration, created time.Time) {
	now, passed := r.decide(d.gate, nil)
	if !passed {
		d.report(result{r, outcome{Seq: r.Seq, Kind: outcomeReturned}})
		return
	}
	job := newJob(r, created)
	job.Started = d.clock.date(now)
	d.tellStart(r, job, now)
	ctx, cancel := context.WithTimeout(d.jobs, timeout)
	err := call(ctx, handle, job)
	cancel()
	o := outcomeOf(r.Seq, err)
	if o.Kind == outcomeFailed && d.jobs.Err() != nil {
		o.Kind = outcomeUncounted // interrupted by this drainer's own end: no attempt
	}
	d.tellEnd(job, o, d.now().since(now))
	d.report(result{r, o})
}

// newJob is the job of a run, but for when it started.
func newJob(r run, created time.Time) Job {
	return Job{
		ID:          jobID(r.part.policy, r.Seq),
		Idempotency: idempotency(r.part.policy, r.Arrived, created),
		Policy:      r.part.policy,
		Key:         r.Key,
		Body:        r.Body,
		Header:      r.Header,
		Attempt:     r.attempt,
		Accepted:    r.Stored,
	}
}

// tellStart tells observers of a start.
func (d *Drainer) tellStart(r run, job Job, now instant) {
	wait := max(0, job.Started.Sub(job.Accepted))
	d.options.Observer.Started(job.Policy, max(0, now.since(r.due)), wait)
	if d.log.Enabled(context.Background(), slog.LevelDebug) {
		d.log.Debug("start", "policy", job.Policy, "job", job.ID, "key", job.Key, "attempt", job.Attempt, "wait", wait, "started", job.Started)
	}
	d.broker.Tell(job.Policy, queue.Event{
		Type: queue.EventStarted, Job: job.ID, Key: job.Key, Attempt: job.Attempt, WaitMS: wait.Milliseconds(),
	})
}

// tellEnd tells observers how an attempt ended.
func (d *Drainer) tellEnd(job Job, o outcome, took time.Duration) {
	d.options.Observer.Finished(job.Policy, string(o.Kind))
	d.logEnd(job, o, took)
	event := queue.EventFailed
	switch o.Kind {
	case outcomeDone:
		event = queue.EventDone
		d.options.Observer.Ended(job.Policy, string(o.Kind))
	case outcomeThrottled:
		event = queue.EventThrottled
	case outcomeReturned, outcomeUncounted:
		return
	}
	d.broker.Tell(job.Policy, queue.Event{
		Type: event, Job: job.ID, Key: job.Key, Attempt: job.Attempt, DurationMS: took.Milliseconds(), Error: o.Error,
	})
}

// logEnd writes the line of an attempt's end, which is that of its start with the outcome.
func (d *Drainer) logEnd(job Job, o outcome, took time.Duration) {
	if !d.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	args := []any{"policy", job.Policy, "job", job.ID, "key", job.Key, "attempt", job.Attempt, "outcome", o.Kind, "took", took}
	if o.Error != "" {
		args = append(args, "error", o.Error)
	}
	d.log.Debug("end", args...)
}

func (d *Drainer) report(r result) {
	select {
	case d.results <- r:
	case <-d.stopped:
	}
}

func jobID(policy string, seq uint64) string { return policy + ":" + strconv.FormatUint(seq, 10) }

// idempotency is the Idempotency-Key that a job's runs carry.
func idempotency(policy string, a queue.Arrived, created time.Time) string {
	if own := header(a.Header, "Idempotency-Key"); own != "" {
		return own
	}
	return policy + "-" + strconv.FormatInt(created.Unix(), 10) + "-" + strconv.FormatUint(a.Seq, 10)
}

func header(h nats.Header, name string) string {
	for key, values := range h {
		if len(values) > 0 && strings.EqualFold(key, name) {
			return values[0]
		}
	}
	return ""
}
