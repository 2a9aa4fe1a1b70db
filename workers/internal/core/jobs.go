package core

import (
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

func (e Arrived) apply(c *Core, now pace.Instant) {
	if s := c.backlog(e.Part, e.Epoch); s != nil {
		s.part.Arrive(e.Jobs, !e.Stray, now)
		if e.Swept {
			s.part.Swept(now)
		}
	}
}

func (e Confirmed) apply(c *Core, now pace.Instant) {
	if p := c.part(e.Part); p != nil {
		for _, seq := range e.Seqs {
			p.Confirmed(seq, now)
		}
	}
}

func Finish(r valve.Run, o record.Outcome) Finished { return Finished{r.Part.Policy, r.Number, o} }

func (e Finished) apply(c *Core, now pace.Instant) {
	if v := c.valves.visit(e.Policy); v != nil {
		v.Finished(e.Run, e.Outcome, now)
	}
}

func (e Paused) apply(c *Core, now pace.Instant) {
	if v := c.valves.visit(e.Policy); v != nil {
		v.Pause(e.Run, e.For, now)
	}
}

func (e Answered) apply(c *Core, now pace.Instant) {
	if v := c.valves.visit(e.Policy); v != nil {
		v.Answered(e.Run, e.At, now)
	}
}

func (e Fetched) apply(c *Core, now pace.Instant) {
	for _, t := range e {
		if p := c.part(t.Part); p != nil {
			p.Fetched(t, now)
		}
	}
}

func (e Saved) apply(c *Core, now pace.Instant) {
	if p := c.part(e.Part); p != nil {
		p.Written(&e.Save, now)
	}
}

func (e Buried) apply(c *Core, _ pace.Instant) {
	if p := c.part(e.Part); p != nil {
		p.Buried(e.Ref)
	}
}

func (e Noted) apply(c *Core, _ pace.Instant) {
	c.out.Acks = append(c.out.Acks, e.Ref)
	e.Ending.Noted()
}

// Progress is [valve.Valve.Progress].
func (c *Core) Progress(r valve.Run, text string) (goesOn record.Report, handedOver bool) {
	if v := c.valves.all[r.Part.Policy]; v != nil {
		return v.Progress(r, text)
	}
	return goesOn, false
}

// Matters reports whether a report may find a receiver.
func (c *Core) Matters(r record.Report) bool {
	s := c.shares.all[record.ShareKey(r.Policy, r.Partition)]
	return c.policies[r.Policy] != nil && s != nil && !s.over
}

func (e Delivered) apply(c *Core, _ pace.Instant) {
	key := record.ShareKey(e.Report.Policy, e.Report.Partition)
	if s := c.shares.all[key]; s != nil {
		s.unsettled = max(0, s.unsettled-1)
	}
}
