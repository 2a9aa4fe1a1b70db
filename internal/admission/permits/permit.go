package permits

import (
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/queue/claims"
	"github.com/penstock-mq/penstock/internal/queue/job"
)

// Status says how a call ended.
type Status string

const (
	Done        Status = job.SettledDone        // the target answered
	Failed      Status = job.SettledFailed      // it failed, perhaps because of the call
	Unavailable Status = job.SettledUnavailable // it is down: several in a row open a breaker
	Unreached   Status = job.SettledUnreached   // it is down, and the call used no units
	Throttled   Status = job.SettledThrottled   // it asked for a pause of the bucket
)

// Result says how a call ended, for [Permit.Settle].
type Result struct {
	Status Status
	// RetryAfter pauses the bucket, for any status; 0: no pause, or the policy's backoff after
	// Throttled.
	RetryAfter time.Duration
	Used       map[string]int64 // actual costs, by name; omitted ones stay as estimated
	Err        error
	// Unanswered: the target gave no answer, or one that a gateway may have made, such as a 504, so
	// that the request may still arrive. Failed and Unavailable imply it. It has no effect if
	// [Permit.Answered] was called.
	Unanswered bool
}

// Permit allows one call, which must begin by StartBy or be returned.
type Permit struct {
	StartBy time.Time
	ID      string
	// Lease is the permit's life without renewal; 0: only an end that pauses the bucket must be
	// reported.
	Lease time.Duration
	// MaxDelay is not 0 if a limit counts from the answer: [Permit.Answered] is to be called, and a
	// call that ends without an answer counts for so long after its end.
	MaxDelay time.Duration

	tell     func(op string, s job.Settlement) error
	once     sync.Once
	answered atomic.Bool
	reports  chan report // of a leased call, for keep
}

type report struct {
	op string
	job.Settlement
}

// mostReports has room for the answer, the end, and pauses that are told at once.
const mostReports = 8

func newPermit(id string, startBy time.Time, lease time.Duration) *Permit {
	return &Permit{ID: id, StartBy: startBy, Lease: lease, reports: make(chan report, mostReports)}
}

// Lent is a permit of another process ([Client.Lend]), which gets the reports of tell.
func Lent(id string, startBy time.Time, lease time.Duration,
	tell func(op string, s job.Settlement) error) *Permit {

	p := newPermit(id, startBy, lease)
	if p.tell = tell; lease > 0 {
		go p.keep(nil, nil)
	}
	return p
}

// Answered reports that the target's answer has begun, not only an informational one (1xx): for a
// limit that counts from the answer, the call counts from now on, and no longer from its end. A
// call of several requests reports the last answer.
func (p *Permit) Answered() {
	if p.MaxDelay > 0 && !p.answered.Swap(true) {
		p.reports <- report{op: job.OpAnswered}
	}
}

// Settle reports how the call ended. Only the first Settle or Return counts. An unknown [Status] is
// Failed, and negative usage does not count.
func (p *Permit) Settle(r Result) {
	switch r.Status {
	case Done, Unavailable, Unreached, Throttled:
	default: // a refused settlement would hold its place until the lease ends
		r.Status = Failed
	}
	used := maps.Clone(r.Used)
	maps.DeleteFunc(used, func(_ string, n int64) bool { return n < 0 })
	s := job.Settlement{Status: string(r.Status), RetryAfterMS: ceil(max(r.RetryAfter, 0)),
		Used: used, Error: text(r.Err)}
	switch {
	case p.MaxDelay == 0:
	case p.answered.Load():
		s.Answer = job.SettledAnswered
	case r.Unanswered:
		s.Answer = job.SettledUnanswered
	}
	p.settle(s)
}

// Pause pauses the bucket during the call.
func (p *Permit) Pause(d time.Duration) {
	paused := report{job.OpProgress, job.Settlement{RetryAfterMS: ceil(d)}}
	switch {
	case p.Lease == 0:
		go p.repeat(paused)
	case len(p.reports) == 0: // otherwise another one waits for its owner
		p.reports <- paused
	}
}

// Return gives the permit back: the call did not begin.
func (p *Permit) Return() { p.settle(job.Settlement{Status: job.SettledReturned}) }

func ceil(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() }

// mostError bounds the text of an error, in bytes: it may quote an answer's whole header, and a
// message has a largest size.
const mostError = 1024

func text(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), mostError)], "")
}

// Without a lease, only an end that gives a start back or pauses the bucket is of interest.
func (p *Permit) settle(s job.Settlement) {
	p.once.Do(func() {
		switch {
		case p.Lease > 0:
			p.reports <- report{job.OpSettle, s}
		case s.Status != job.SettledDone || s.RetryAfterMS > 0:
			go p.repeat(report{job.OpSettle, s})
		}
	})
}

// keep renews the lease at a third of it, and soon after its owner has changed: the call counts
// there before others ask.
func (p *Permit) keep(turns <-chan *claims.Turn, closed <-chan struct{}) {
	every := max(p.Lease/3, time.Millisecond)
	renew := time.NewTimer(every)
	defer renew.Stop()
	for {
		select {
		case r := <-p.reports:
			if p.repeat(r); r.op == job.OpSettle {
				return
			}
		case t := <-turns:
			if t.State == job.TurnMoved {
				renew.Reset(min(claims.Pause/10, every))
			}
		case <-renew.C:
			_ = p.tell(job.OpProgress, job.Settlement{}) // the next one may get through
			renew.Reset(every)
		case <-closed:
			return
		}
	}
}

const settleTries = 5

func (p *Permit) repeat(r report) {
	for range settleTries {
		if err := p.tell(r.op, r.Settlement); !errors.Is(err, admission.ErrUnavailable) &&
			!errors.Is(err, admission.ErrNoDrainer) {
			return
		}
		time.Sleep(claims.Pause)
	}
}
