// Package calls keeps a partition's calls: jobs that are not stored, because their callers wait for
// a start and make the request themselves. It knows who waits, who holds a start and who has ended,
// and what a caller's message is to its call; what follows from that for limits, clocks and
// breakers is the valve's.
//
//   - calls.go: a partition's calls, and messages about them;
//   - line.go: a bucket's calls, between its stored jobs; who was refused, and when it comes back.
package calls

import (
	"maps"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/claimant"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Calls has a partition's calls by their callers' ids, each with the job of type J that stands for
// it in its bucket. They are timed with the valve's other claimants.
type Calls[J any] struct {
	*claimant.Set[J]
	known map[string]*claimant.Claimant[J]
	given uint64
	ended claimant.Names // whose end was reported
	open  claimant.Names // that left without an answer, and hold units
}

// New returns no calls.
func New[J any](timed *claimant.Set[J]) Calls[J] {
	return Calls[J]{Set: timed, known: map[string]*claimant.Claimant[J]{}}
}

// Heard is what a message is to its call.
type Heard uint8

const (
	Unknown Heard = iota // the first one, or of a call that another owner started
	Old                  // a later one has come before, or it repeats a claim
	Ended                // its call's end was reported
	Early                // the final check of its start is not known
	Waits                // its call waits for a start
	Runs                 // its call was started
)

// Hear returns the call of a message, nil for one that is not known.
func (c *Calls[J]) Hear(m *job.Claim) (*claimant.Claimant[J], Heard) {
	k := c.known[m.ID]
	switch {
	case k != nil && (m.N < k.N || m.N == k.N && m.Op == job.OpClaim):
		return k, Old
	case c.ended.Has(m.ID):
		return k, Ended
	case k == nil:
		return nil, Unknown
	case k.State() == claimant.Granted:
		return k, Early
	case k.State() == claimant.Running:
		return k, Runs
	}
	return k, Waits
}

// firstSeq is the least sequence of a call. Calls are ordered by their first question.
const firstSeq = 1 << 63

// Add returns a new call, which came as long ago as its caller says: its place survives owners.
func (c *Calls[J]) Add(m *job.Claim, of J, line *Line[J], now pace.Instant) *claimant.Claimant[J] {
	k := claimant.New(of, &line.Queue)
	k.ID, k.Takes = m.ID, quota.Cost{Job: max(m.Cost, 1), Named: m.Costs}
	k.Priority = min(max(m.Priority, job.MinPriority), job.MaxPriority)
	c.given++
	k.Came = now - pace.Instant(min(max(m.AgeMS, 0), time.Duration(now).Milliseconds()))*
		pace.Instant(time.Millisecond)
	k.Seq = firstSeq | uint64(time.Duration(k.Came).Milliseconds())<<20 | c.given&(1<<20-1)
	c.known[m.ID] = k
	return k
}

// Drop forgets a call that waits or runs no more.
func (c *Calls[J]) Drop(k *claimant.Claimant[J]) { delete(c.known, k.ID) }

// All returns the calls, in an order that a seed reproduces.
func (c *Calls[J]) All() (all []*claimant.Claimant[J]) {
	for _, id := range slices.Sorted(maps.Keys(c.known)) {
		all = append(all, c.known[id])
	}
	return all
}

// GoesOn renews the lease of a call that runs, or was adopted, and reports whether there is one.
func (c *Calls[J]) GoesOn(k *claimant.Claimant[J], m *job.Claim, until pace.Instant) bool {
	event := claimant.Progress
	if m.Op == job.OpAnswered {
		event = claimant.Answered
	}
	if !c.Take(k, event, until) {
		return false
	}
	k.Ending = nil
	k.Answers = k.Answers || event == claimant.Answered
	return true
}

// Lingers keeps a call running, with its outcome, while its request may arrive without an answer.
func (c *Calls[J]) Lingers(k *claimant.Claimant[J], o record.Outcome, until pace.Instant) bool {
	if k.Answers || !c.Take(k, claimant.Progress, until) {
		return false
	}
	o.Answer = record.AnswerSeen // as of then
	k.Ending = &o
	return true
}

// Offer offers a waiting call its turn.
func (c *Calls[J]) Offer(k *claimant.Claimant[J], now pace.Instant) {
	if c.Take(k, claimant.Offer, min(now.Add(job.ClaimWindow), k.Ends)) {
		k.Reply(job.Turn{State: job.TurnOffer})
	}
}

// Settles ends a call, and reports whether it waited or ran.
func (c *Calls[J]) Settles(k *claimant.Claimant[J]) bool {
	return c.Take(k, claimant.Settle, pace.Never)
}

// Report notes that a call's end was reported, so that a repeated report counts nothing again.
func (c *Calls[J]) Report(k *claimant.Claimant[J], now pace.Instant) { c.ended.Add(k.ID, now) }

// Leave notes a call that holds units, and whose end the next owner hears.
func (c *Calls[J]) Leave(k *claimant.Claimant[J], now pace.Instant) { c.open.Add(k.ID, now) }

// Held reports whether a call holds units that a former owner noted. It does so once.
func (c *Calls[J]) Held(k *claimant.Claimant[J]) bool { return c.open.Take(k.ID) }

// Tell returns what the next owner is to know: what ended, and what holds units.
func (c *Calls[J]) Tell() (ended, open []uint64) { return c.ended.Last(), c.open.Last() }

// Inherit takes what the former owner told. After its crash, units are counted without their calls.
func (c *Calls[J]) Inherit(ended, open []uint64, crashed bool, now pace.Instant) {
	c.ended.Inherit(ended, now)
	if !crashed {
		c.open.Inherit(open, now)
	}
}
