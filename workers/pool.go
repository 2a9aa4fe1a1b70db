package workers

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/timepiece"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// pool runs this drainer's jobs in local workers. It belongs to the loop; each run has a goroutine.
type pool struct {
	*calls
	gate      *gate
	broker    *jet.Broker
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
	a, handle := p.attempt(r), p.catalog.running[r.Part.Policy]
	go func() {
		if !a.begin(nil) {
			return
		}
		o := exited(r.Seq)
		defer func() { a.end(o) }()
		o = unlessInterrupted(p.jobs, call(p.jobs, p.seldom, a.timeout, handle, r.Seq, a.job))
	}()
}

// grant starts a call, whose end its caller reports to the valve.
func (p *pool) grant(r valve.Run) {
	name := r.Part.Policy
	a := attempt{pool: p, run: r, job: Job{ID: job.CallID(name), Policy: name, Key: r.Key,
		Accepted: r.Stored}}
	if a.begin(r.Call.Tell) {
		a.report(r.Call.Outcome(true))
	}
}

// attempt is a job or call that starts or runs, here or elsewhere.
type attempt struct {
	*pool
	run     valve.Run
	job     Job
	owed    callback
	timeout time.Duration
	began   pace.Instant
}

// attempt belongs to the loop, unlike the methods of what it returns.
func (p *pool) attempt(r valve.Run) *attempt {
	name, created := r.Part.Policy, p.backlogs.born(r.Part, r.Stored)
	policy := p.catalog.policies[name]
	said := &settled{kept: policy.ResultRetention > 0}
	if policy.CountsArrivals() {
		said.maxDelay = time.Duration(policy.MaxDelay)
	}
	return &attempt{pool: p, run: r, timeout: p.catalog.timeout(name, r.Header),
		owed: p.callbacks.of(policy.Callbacks, name, r.Key, r.Header, created, r.Seq),
		job: Job{ID: job.ID(name, r.Seq),
			IdempotencyKey: job.IdempotencyKey(r.Header, name, created, r.Seq), Policy: name,
			Key: r.Key, Body: r.Body, Header: r.Header, Attempt: r.Attempt, Accepted: r.Stored,
			settled: said}}
}

// begin makes the final check, and tells those who follow a start of it. False: it did not pass.
// tell, if not nil, starts what passes; see [valve.Ticket.Decide].
func (a *attempt) begin(tell func()) (passed bool) {
	if a.began, passed = a.run.Decide(a.gate.check, tell); !passed {
		a.sink.Take(queue.Event{Type: jet.EventReturned, Policy: a.job.Policy,
			Name: string(a.run.Returned())})
		a.report(record.Outcome{Seq: a.run.Seq, Kind: record.OutcomeReturned})
		return false
	}
	a.job.Started = a.clock.Date(a.began)
	a.job.settled.with(func(s *settled) {
		if s.pass = a.progress; s.maxDelay > 0 {
			s.answer = a.answered
		}
	})
	e := a.job.event(queue.EventStarted)
	e.WaitMS = max(0, a.job.Started.Sub(a.job.Accepted)).Milliseconds()
	e.At, e.Costs, e.For = a.job.Started, a.run.Costs, max(0, a.began.Since(a.run.Due))
	e.Trace = job.SampledTrace(a.job.Header)
	if a.run.Cost != 1 {
		e.Cost = a.run.Cost
	}
	for limit, by := range a.run.Shadow {
		if e.Shadow == nil {
			e.Shadow = map[string]int64{}
		}
		e.Shadow[limit] = by.Milliseconds()
	}
	a.sink.Take(e)
	return true
}

// answered reports that the answer to the request has begun by the instant it returns.
func (a *attempt) answered() (at pace.Instant) {
	at = a.now() // not the loop's, which may be earlier
	a.post(func(now pace.Instant) {
		a.core.Handle(core.Answered{Policy: a.job.Policy, Run: a.run.Number, At: at}, now)
	})
	return at
}

func (a *attempt) progress(text string) {
	e := a.job.event(queue.EventProgress)
	e.Progress = text
	a.sink.Take(e)
	a.post(func(pace.Instant) { a.goesOn(text) })
}

// goesOn tells the core, or a new owner of the partition. It belongs to the loop.
func (a *attempt) goesOn(text string) {
	report, handedOver := a.core.Progress(a.run, text)
	if !handedOver {
		return
	}
	question := encodeOutcome(report.Outcome)
	a.call(a.jobs, purpose{a.job.Policy, "pass progress on"}, func() {
		ctx, cancel := context.WithTimeout(a.jobs, a.patience)
		defer cancel()
		if _, err := a.broker.AskValve(ctx, a.job.Policy, a.run.Part.Number, question); err != nil {
			a.log.Debug("progress not passed on", "job", a.job.ID, "error", err)
		}
	})
}

// end delivers the result to waiters and callback, and reports the outcome.
func (a *attempt) end(o record.Outcome) {
	took := a.now().Since(a.began)
	a.job.settled.with(func(s *settled) { s.pass = nil })
	if t, ended := told(a.job, o); ended {
		if !a.owed.settle(a.jobs, t) {
			o = record.Outcome{Seq: o.Seq, Kind: record.OutcomeUncounted, Answer: o.Answer}
		} else {
			a.broker.PublishResult(a.job.Header, t)
		}
	}
	e := a.job.ended(o, took)
	if counts := a.job.settled.maxDelay > 0; counts && o.Answer != record.AnswerUnsent {
		e.Started = a.job.Started
		e.AnswerMS = a.job.settled.unanswered(o.Answer, a.began, took).Milliseconds()
	}
	lingers := a.job.settled.maxDelay > 0 && o.Answer == record.AnswerNone
	if lingers && o.RetryAfter > 0 {
		a.pause(&o) // before anybody can react to the event
	}
	a.sink.Take(e)
	if lingers {
		a.linger(&o)
	}
	a.report(o)
}

// pause begins the bucket's pause at once, although the outcome that names it comes later.
func (a *attempt) pause(o *record.Outcome) {
	paused := core.Paused{Policy: a.job.Policy, Run: a.run.Number, For: o.RetryAfter}
	a.post(func(now pace.Instant) { a.core.Handle(paused, now) })
	o.RetryAfter = max(1, o.RetryAfter-a.job.settled.maxDelay)
}

// linger waits until the request of a run without an answer no longer arrives. If the drainer stops
// meanwhile, the outcome says so.
func (a *attempt) linger(o *record.Outcome) {
	timer := time.NewTimer(a.job.settled.maxDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
		o.Answer = record.AnswerSeen // as of now
	case <-a.jobs.Done():
	}
}

func (a *attempt) report(o record.Outcome) {
	finished := core.Finish(a.run, o)
	select {
	case a.results <- finished: // usually has room, at half of the cost
		return
	default:
	}
	select {
	case a.results <- finished:
	case <-a.stopped:
	}
}

func (j Job) event(kind string) queue.Event {
	return queue.Event{Type: kind, Policy: j.Policy, Job: j.ID, Key: j.Key, Tags: j.Tags(),
		Header: j.Header, Attempt: j.Attempt, Accepted: j.Accepted}
}

var ends = map[record.OutcomeKind]string{record.OutcomeDone: queue.EventDone,
	record.OutcomeFailed: queue.EventFailed, record.OutcomePermanent: queue.EventFailed,
	record.OutcomeThrottled: queue.EventThrottled, record.OutcomeReturned: jet.EventUncounted,
	record.OutcomeUncounted: jet.EventUncounted}

func (j Job) ended(o record.Outcome, took time.Duration) queue.Event {
	e := j.event(ends[o.Kind])
	e.Name, e.Reply, e.DurationMS = string(o.Kind), j.settled.said(), took.Milliseconds()
	e.Error, e.Used, e.PauseMS = o.Error, o.Used, o.RetryAfter.Milliseconds()
	e.Answer = string(o.Answer)
	e.For = took
	return e
}

// told returns the result for waiters, if the job has ended. Others end when they are buried.
func told(j Job, o record.Outcome) (t queue.Result, ended bool) {
	t = queue.Result{Job: j.ID, Attempts: j.Attempt - 1}
	switch o.Kind {
	case record.OutcomeDone:
		t.End = queue.EndDone
	case record.OutcomePermanent:
		t.End, t.Reason, t.Error = queue.EndDead, queue.ReasonPermanent, o.Error
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
	case queue.EventDone, queue.EventFailed, queue.EventThrottled, jet.EventUncounted:
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
