// Package whatif simulates a trace of requests under a policy in virtual time, and reports
// refusals, waits, depths, the most starts in a window, and stale jobs.
//
// Production code decides: the limiter of package admission/limiter, and a drainer's valve. Only
// their environment is simulated: one drainer owns all partitions, clocks are exact, messages take
// no time, every run succeeds.
package whatif

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/limiter"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/heap"
)

// Request is one request of a trace.
type Request struct {
	At       int64 // Unix ns, 0 or later
	Key      queue.Key
	IP       string        // of the client; empty if unknown
	Cost     int64         // at least 1
	Deadline time.Duration // from At; 0: as in the [Options]
	Duration time.Duration // of its run, which its answer ends; 0: as in the [Options]
	Priority int
}

// Options are the settings of [Play]. The zero value is useful.
type Options struct {
	Duration time.Duration // of runs, which the target's answer ends
	Workers  int           // of all drainers; 0: the policy's
	Deadline time.Duration // default for jobs; 0: unlimited
	Window   time.Duration // for Figures.Worst; default 1s
	Keys     int           // number of keys to report, by most requests
	Bins     int           // of the [Report], at most twice as many

	memory int64 // of jobs in memory, in bytes; 0: as in production
}

// Play simulates requests, in order of time, until all accepted ones have ended or no event
// follows. Shared limits are private here.
func Play(p policy.Policy, requests iter.Seq[Request], o Options) (*Report, error) {
	p = p.WithDefaults()
	if err := policy.Invalid(p.Validate()); err != nil {
		return nil, err
	}
	p = p.Alone()
	if o.Workers > 0 {
		p.Workers = o.Workers
	}
	if o.Window <= 0 {
		o.Window = time.Second
	}
	w := &world{policy: p, options: o, account: newAccount(p.Name, o)}
	if !p.Paced() {
		made, err := limiter.New(limiter.Options{Now: w.wall}).Limit(p, nil)
		if err != nil {
			return nil, err
		}
		w.door = &made
	}
	last := int64(0)
	for r := range requests {
		if r.At < last {
			return nil, fmt.Errorf("a request at %v comes after one at %v", time.Unix(0, r.At),
				time.Unix(0, last))
		}
		last = r.At
		if w.drainer == nil && p.HasQueue() {
			w.drainer = newDrainer(w, r.At)
		}
		if err := w.pass(r.At); err != nil {
			return nil, err
		}
		if err := w.request(&r); err != nil {
			return nil, err
		}
	}
	if err := w.pass(math.MaxInt64); err != nil {
		return nil, err
	}
	return w.account.report(), nil
}

type world struct {
	policy  policy.Policy
	options Options
	now     int64
	door    *admission.Limit // nil: only the queue decides
	drainer *drainer         // nil: no queue, or no request yet
	later   heap.Heap[event]
	events  int
	account *account
}

// event is the end of a run, or a meter's allowed request that proceeds.
type event struct {
	at     int64
	number int // orders events of one instant
	happen func()
}

func (e event) Before(f event) bool { return e.at < f.at || e.at == f.at && e.number < f.number }
func (e event) Moved(int)           {}

func (w *world) after(d time.Duration, happen func()) {
	w.events++
	w.later.Push(event{w.now + int64(d), w.events, happen})
}

func (w *world) wall() time.Time { return time.Unix(0, w.now).UTC() }

// pass advances time, with everything due until then.
func (w *world) pass(until int64) error {
	for {
		next := int64(math.MaxInt64)
		if len(w.later) > 0 {
			next = w.later[0].at
		}
		if w.drainer != nil {
			next = min(next, w.drainer.next())
		}
		if next > until || next == math.MaxInt64 {
			break
		}
		w.now = max(w.now, next)
		for len(w.later) > 0 && w.later[0].at <= w.now {
			w.later.Remove(0).happen()
		}
		if w.drainer != nil {
			if err := w.drainer.turn(); err != nil {
				return err
			}
		}
	}
	if until != math.MaxInt64 {
		w.now = until
	}
	return nil
}

func (w *world) request(r *Request) error {
	of := w.account.requested(r)
	if !w.possible(r) {
		w.account.refused(of, r.At, Cost)
		return nil
	}
	deadline := cmp.Or(r.Deadline, w.options.Deadline)
	if w.drainer != nil && deadline > 0 && w.drainer.late(r, deadline) {
		w.account.refused(of, r.At, Deadline)
		return nil
	}
	from, ctx := admission.Caller{Key: r.Key, IP: r.IP}, context.Background()
	if w.door != nil {
		d, err := w.door.Limiter.Take(ctx, from, r.Cost)
		switch {
		case err != nil:
			return err
		case !d.Allowed:
			w.account.refused(of, r.At, Limit)
			return nil
		case w.drainer == nil:
			of.Accepted++
			proceed := func() { w.account.started(of, w.now, r.At, r.Cost) }
			if d.Delay == 0 {
				proceed()
			} else {
				w.after(d.Delay, proceed)
			}
			return nil
		}
	}
	full := w.full(of)
	if full != "" {
		w.account.refused(of, r.At, full)
		if w.door != nil {
			return w.door.Limiter.Refund(ctx, from, r.Cost)
		}
		return nil
	}
	of.Accepted++
	w.account.stored(of, r.At)
	return w.drainer.arrive(r, deadline)
}

func (w *world) full(of *keyAccount) Reason {
	switch {
	case of.held >= w.policy.QueueCapacity():
		return Capacity
	case w.account.held >= w.policy.QueueJobs():
		return Jobs
	}
	return ""
}

// possible reports whether a cost can ever pass.
func (w *world) possible(r *Request) bool {
	if w.door != nil {
		return (r.Cost <= w.door.Quota.Units || w.door.Shadow) && (r.IP != "" || !w.door.ByIP)
	}
	limit, _, _ := w.policy.BeyondLimits(r.Cost, nil)
	return r.Cost <= w.policy.Capacity && limit == ""
}
