package workers

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/timepiece"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// pool runs this drainer's jobs in local workers, with code for remote runs, too. start belongs to
// the loop; runs have goroutines.
type pool struct {
	*calls
	gate      *gate
	broker    *queue.Broker
	catalog   *catalog
	backlogs  *backlogs
	callbacks *callbacks
	jobs      context.Context // of all handlers
	results   chan core.Finished
}

func (p *pool) start(r valve.Run) {
	if r.Call != nil {
		go p.grant(r)
		return
	}
	handle := p.catalog.running[r.Part.Policy]
	timeout, born := p.catalog.timeout(r.Part.Policy, r.Header), p.born(r)
	go func() {
		p.work(&r, newJob(&r, born), born.owed, nil, func(j Job) record.Outcome {
			return unlessInterrupted(p.jobs, call(p.jobs, p.seldom, timeout, handle, r.Seq, j))
		})
	}()
}

type born struct {
	created time.Time
	owed    callback
	said    *settled
}

func (p *pool) born(r valve.Run) born {
	name, created := r.Part.Policy, p.backlogs.born(r.Part, r.Stored)
	policy := p.catalog.policies[name]
	said := &settled{kept: policy.ResultRetention > 0}
	if policy.CountsArrivals() {
		said.maxDelay = time.Duration(policy.MaxDelay)
	}
	return born{created, p.callbacks.of(policy.Callbacks, name, r.Key, r.Header, created, r.Seq),
		said}
}

// work makes a job's final check, runs it and reports. False: it did not pass.
func (p *pool) work(r *valve.Run, job Job, owed callback, begin func(),
	run func(Job) record.Outcome) bool {
	now, passed := r.Decide(p.gate.check, begin)
	if !passed {
		p.tellReturned(*r)
		p.report(*r, record.Outcome{Seq: r.Seq, Kind: record.OutcomeReturned})
		return false
	}
	job.Started = p.clock.Date(now)
	p.tellStart(r, job, now)
	o := exited(r.Seq)
	defer func() {
		o = p.end(job, o, owed, now)
		p.linger(r, job, &o)
		p.report(*r, o)
	}()
	o = run(job)
	return true
}

// linger waits until the request of a run without an answer no longer arrives, as far as a limit
// asks. A pause begins at once. If the drainer stops meanwhile, the outcome says so.
func (p *pool) linger(r *valve.Run, job Job, o *record.Outcome) {
	if job.settled.maxDelay == 0 || o.Answer != record.AnswerNone {
		return
	}
	if o.RetryAfter > 0 {
		paused := core.Paused{Policy: r.Part.Policy, Run: r.Number, For: o.RetryAfter}
		p.post(func(now pace.Instant) { p.core.Handle(paused, now) })
		o.RetryAfter = max(1, o.RetryAfter-job.settled.maxDelay)
	}
	timer := time.NewTimer(job.settled.maxDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
		o.Answer = record.AnswerSeen // as of now
	case <-p.jobs.Done():
	}
}

func (p *pool) grant(r valve.Run) {
	now, passed := r.Decide(p.gate.check, r.Call.Tell)
	if name := r.Part.Policy; passed {
		p.tellStart(&r, Job{ID: job.CallID(name), Policy: name, Key: r.Key, Accepted: r.Stored,
			Started: p.clock.Date(now)}, now)
	} else {
		p.tellReturned(r)
	}
	p.report(r, r.Call.Outcome(passed))
}

func (p *pool) tellReturned(r valve.Run) {
	p.sink.Take(queue.Event{Type: queue.EventReturned, Policy: r.Part.Policy,
		Name: string(r.Returned())})
}

func (p *pool) report(r valve.Run, o record.Outcome) {
	finished := core.Finish(r, o)
	select {
	case p.results <- finished: // usually has room, at half of the cost
		return
	default:
	}
	select {
	case p.results <- finished:
	case <-p.stopped:
	}
}

func newJob(r *valve.Run, born born) Job {
	return Job{ID: job.ID(r.Part.Policy, r.Seq),
		IdempotencyKey: job.IdempotencyKey(r.Header, r.Part.Policy, born.created, r.Seq),
		Policy:         r.Part.Policy, Key: r.Key, Body: r.Body, Header: r.Header,
		Attempt: r.Attempt, Accepted: r.Stored, settled: born.said}
}

// answered reports that the answer to a run's request has begun by the instant it returns.
func (p *pool) answered(r valve.Run) (at pace.Instant) {
	at = p.now() // not the loop's, which may be earlier
	p.post(func(now pace.Instant) {
		p.core.Handle(core.Answered{Policy: r.Part.Policy, Run: r.Number, At: at}, now)
	})
	return at
}

func (p *pool) tellStart(r *valve.Run, j Job, now pace.Instant) {
	if j.settled != nil {
		j.settled.pass = func(text string) {
			e := newJob(r, born{}).event(queue.EventProgress) // j would move to the heap
			e.Progress = text
			p.sink.Take(e)
			p.post(func(pace.Instant) { p.progressed(*r, text) })
		}
		if j.settled.maxDelay > 0 {
			j.settled.answer = func() pace.Instant { return p.answered(*r) }
		}
	}
	e := j.event(queue.EventStarted)
	e.WaitMS = max(0, j.Started.Sub(j.Accepted)).Milliseconds()
	e.At, e.Costs, e.For = j.Started, r.Costs, max(0, now.Since(r.Due))
	e.Trace = job.SampledTrace(j.Header)
	if r.Cost != 1 {
		e.Cost = r.Cost
	}
	for limit, by := range r.Shadow {
		if e.Shadow == nil {
			e.Shadow = map[string]int64{}
		}
		e.Shadow[limit] = by.Milliseconds()
	}
	p.sink.Take(e)
}

// progressed takes a run's report, and passes it on to a new owner of its partition.
func (p *pool) progressed(r valve.Run, text string) {
	report, handedOver := p.core.Progress(r, text)
	if !handedOver {
		return
	}
	question := encodeOutcome(report.Outcome)
	p.call(p.jobs, purpose{r.Part.Policy, "pass progress on"}, func() {
		ctx, cancel := context.WithTimeout(p.jobs, p.patience)
		defer cancel()
		if _, err := p.broker.AskValve(ctx, r.Part.Policy, r.Part.Number, question); err != nil {
			p.log.Debug("progress not passed on", "job", job.ID(r.Part.Policy, r.Seq),
				"error", err)
		}
	})
}

func (j Job) event(kind string) queue.Event {
	return queue.Event{Type: kind, Policy: j.Policy, Job: j.ID, Key: j.Key, Tags: j.Tags(),
		Header: j.Header, Attempt: j.Attempt, Accepted: j.Accepted}
}

var ends = map[record.OutcomeKind]string{record.OutcomeDone: queue.EventDone,
	record.OutcomeFailed: queue.EventFailed, record.OutcomePermanent: queue.EventFailed,
	record.OutcomeThrottled: queue.EventThrottled, record.OutcomeReturned: queue.EventUncounted,
	record.OutcomeUncounted: queue.EventUncounted}

func (j Job) ended(o record.Outcome, took time.Duration) queue.Event {
	e := j.event(ends[o.Kind])
	e.Name, e.Reply, e.DurationMS = string(o.Kind), j.settled.said(), took.Milliseconds()
	e.Error, e.Used, e.PauseMS = o.Error, o.Used, o.RetryAfter.Milliseconds()
	e.Answer = string(o.Answer)
	e.For = took
	return e
}

// end delivers an attempt's result to waiters and callback, and returns the final outcome.
func (p *pool) end(job Job, o record.Outcome, owed callback, began pace.Instant) record.Outcome {
	took := p.now().Since(began)
	job.settled.with(func(s *settled) { s.pass = nil })
	if t, ended := told(job, o); ended {
		if !owed.settle(p.jobs, t) {
			o = record.Outcome{Seq: o.Seq, Kind: record.OutcomeUncounted, Answer: o.Answer}
		} else {
			p.broker.PublishResult(job.Header, t)
		}
	}
	e := job.ended(o, took)
	if counts := job.settled.maxDelay > 0; counts && o.Answer != record.AnswerUnsent {
		e.Started = job.Started
		e.AnswerMS = job.settled.unanswered(o.Answer, began, took).Milliseconds()
	}
	p.sink.Take(e)
	return o
}

// told returns the result for waiters, if the job has ended. Others end when they are buried.
func told(j Job, o record.Outcome) (t job.Result, ended bool) {
	t = job.Result{Job: j.ID, Attempts: j.Attempt - 1}
	switch o.Kind {
	case record.OutcomeDone:
		t.End = job.EndDone
	case record.OutcomePermanent:
		t.End, t.Reason, t.Error = job.EndDead, job.ReasonPermanent, o.Error
		t.Attempts = j.Attempt
	default:
		return t, false
	}
	t.Reply = j.settled.said()
	return t, true
}

type attempts struct{ log *slog.Logger }

// Take implements [queue.Sink].
func (a attempts) Take(e queue.Event) {
	if !a.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	args := []any{"policy", e.Policy, "job", e.Job, "key", e.Key.Raw(), "attempt", e.Attempt}
	switch e.Type {
	case queue.EventStarted:
		a.log.Debug("start", append(args, "wait", max(0, e.At.Sub(e.Accepted)), "started", e.At)...)
	case queue.EventDone, queue.EventFailed, queue.EventThrottled, queue.EventUncounted:
		args = append(args, "outcome", e.Name, "took", e.For)
		if e.Answer != "" {
			args = append(args, "answer", e.Answer)
		}
		if e.Error != "" {
			args = append(args, "error", e.Error)
		}
		a.log.Debug("end", args...)
	case queue.EventDead:
		a.log.Debug("dead letter", append(args, "reason", e.Reason, "error", e.Error)...)
	}
}

type gate struct {
	clock *timepiece.Timepiece
	fence atomic.Int64  // jobs may start before …
	heard atomic.Uint64 // … and if the core has seen this many jumps of the clock
}

// set writes the fence first, and check reads it last: it counts only if the core knew of every
// jump.
func (g *gate) set(fence pace.Instant, heard uint64) {
	g.fence.Store(int64(fence))
	g.heard.Store(heard)
}

func (g *gate) check() (fence, now pace.Instant) {
	heard := g.heard.Load()
	fence = pace.Instant(g.fence.Load())
	if now = g.clock.Now(); g.clock.Jumps() != heard {
		fence = 0
	}
	return fence, now
}
