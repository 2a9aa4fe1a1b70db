package valve

import (
	"iter"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// ledger is where starts are charged: the usage of their bucket, or that of all buckets or
// policies.
type ledger struct {
	*quota.Limits
	used *quota.Set // nil: none counts
	part *Part      // that stores it
	all  *together  // nil: the bucket's
}

// ledgers returns those of a bucket that are here.
func (l *startLimits) ledgers(b *bucket) iter.Seq[ledger] {
	return func(yield func(ledger) bool) {
		if l.quota != nil && !yield(ledger{l.quota, b.Used, b.Part, nil}) {
			return
		}
		for _, t := range l.common {
			if !l.elsewhere(t) && !yield(ledger{t.Limits, t.used, t.part, t}) {
				return
			}
		}
	}
}

// charged is what a start, or a run, has taken of a ledger.
type charged struct {
	*quota.Charge
	all  *together
	next *charged
}

func (j *heldJob) hold(a ledger, used *quota.Set, charge *quota.Charge) {
	if a.all == nil {
		j.Bucket.own().Used = used
	} else {
		a.all.used = used
	}
	j.charged = &charged{charge, a.all, j.charged}
}

// charge charges a start to all limits, and bounds the time until its final check.
func (l *startLimits) charge(j *heldJob, t *Ticket, now pace.Instant) {
	j.charged = nil
	for a := range l.ledgers(j.Bucket) {
		t.latest = min(t.latest, now.Later(a.Lag(a.used)))
		used, charge := a.Take(a.used, l.wall.reading(now), j.takes())
		j.hold(a, used, charge)
		if a.all != nil {
			a.all.first = nil
		}
		if p := a.part; p.Live() {
			p.Checkpoints.Changed = true
			a.Started(used, j.takes(), p.Checkpoints.Noted)
		}
	}
}

func (l *startLimits) try(j *heldJob, now pace.Instant) (delays map[string]time.Duration) {
	if l.candidates != nil {
		b := j.Bucket
		b.own().trial, delays = l.candidates.Start(b.trial, l.wall.reading(now), j.takes())
	}
	return delays
}

// here reports whether a charge still is to the ledger: not once a partition was handed over, or
// a limit was elsewhere in between.
func (l *startLimits) here(j *heldJob, c *charged) bool {
	if c.all == nil || c.all.host == l {
		return j.Bucket.Part.state <= partitionLive
	}
	return !l.elsewhere(c.all) && c.Of(c.all.used)
}

// answer charges what waited for the answer to a job's or call's request, which had begun by an
// instant.
func (l *startLimits) answer(j *heldJob, at, now pace.Instant) {
	for c := j.charged; c != nil; c = c.next {
		if l.here(j, c) {
			c.Answered(l.wall.reading(now), l.wall.reading(at))
			c.all.callBack(now)
		}
	}
	if b := j.Bucket; b.Late.Limit != "" && b.Part.Live() {
		b.changed()
	}
}

// late is the end of a run whose charges are not here, and what of its units may be held.
type late struct {
	cost quota.Cost
	quota.End
	ends, answers bool
}

// adopt continues a run of another process under the limits that are here.
func (l *startLimits) adoptRun(j *heldJob, end late, now pace.Instant) {
	for a := range l.ledgers(j.Bucket) {
		if a.all == nil || a.all.host == l {
			used, charge := a.Adopt(a.used, end.cost, end.ends, end.answers)
			j.hold(a, used, charge)
		}
	}
	for _, t := range l.common {
		if t.host != l {
			l.tellLate(t, end, now)
		}
	}
}

// account ends a job's charges. A call may have been answered where it began, so what it holds
// there lapses, unless the record names it.
func (l *startLimits) account(j *heldJob, o record.Outcome, local bool, now pace.Instant) {
	end := late{j.takes(), endOf(o, local), j.call == nil, j.call == nil && !o.Answered}
	if j.charged == nil && !local && !o.Ended && o.Kind != record.OutcomeReturned {
		l.adoptRun(j, end, now)
	}
	c := j.charged
	j.charged = nil
	for ; c != nil; c = c.next {
		switch {
		case !l.here(j, c):
			if c.all != nil && c.all.host != l {
				l.tellLate(c.all, end, now)
			}
			continue
		case local && o.Kind == record.OutcomeReturned:
			c.Return(l.wall.reading(now))
		default:
			p, of := j.Bucket.Part, l.quota
			if c.all != nil {
				p, of = c.all.part, c.all.Limits
			}
			c.Done(l.wall.reading(now), end.End, p.Checkpoints.Noted)
			p.Checkpoints.Used(of, o.Used)
		}
		c.all.callBack(now)
	}
}

// awaits holds what another owner's run may hold until it must have reported again.
func (v *Valve) awaits(j *heldJob, now pace.Instant) {
	if j.charged != nil || !v.Policy.CountsArrivals() {
		return
	}
	for a := range v.ledgers(j.Bucket) {
		if a.used != nil {
			a.Await(a.used, v.wall.reading(now))
		}
	}
}

// holds reports whether a run holds units of each limit that is kept with its partition.
func (l *startLimits) holds(j *heldJob) bool {
	holds := j.charged != nil
	for c := j.charged; c != nil; c = c.next {
		holds = holds && (c.all != nil && c.all.host != l || c.Holds())
	}
	return holds
}

// endOf says what an outcome says of limits. Another process's run that is no longer waited for may
// have any outcome.
func endOf(o record.Outcome, local bool) quota.End {
	lost := !local && o.Kind == record.OutcomeReturned
	return quota.End{Used: o.Used, Unanswered: lost || o.Answer == record.AnswerNone,
		Unsent: o.Answer == record.AnswerUnsent}
}
