package quota

import (
	"time"

	"github.com/penstock-mq/penstock/policy"
)

// Candidates are limits that hold nothing back. Each is tried by itself: what starts joins a queue
// of the mind, from which the limit lets go what it would have let go, and how long that takes is
// by how much it would have delayed the start.
type Candidates struct{ each []*Limits }

// NewCandidates returns a policy's; nil: it has none.
func NewCandidates(p policy.Policy) *Candidates {
	c := &Candidates{}
	for _, l := range p.Candidates() {
		c.each = append(c.each, newLimits(p, policy.Limits{l}))
	}
	if len(c.each) == 0 {
		return nil
	}
	return c
}

// Trial is how a bucket stands with candidates; nil: nothing has started.
type Trial struct {
	sets []*Set
	last []time.Duration // when they let the last start go, by the process's clock
}

// Start takes a start, and returns by how much which limits would have delayed it.
func (c *Candidates) Start(t *Trial, now Now, cost Cost) (*Trial, map[string]time.Duration) {
	if t == nil {
		t = &Trial{make([]*Set, len(c.each)), make([]time.Duration, len(c.each))}
	}
	var delays map[string]time.Duration
	for i, l := range c.each {
		at := now.plus(max(0, t.last[i]-now.Own))
		wait, _ := l.Next(t.sets[i], at, cost)
		at = at.plus(wait)
		var ch *Charge
		t.sets[i], ch = l.Take(t.sets[i], at, cost)
		l.close(t.sets[i], ch)
		if t.last[i] = at.Own; at.Own > now.Own {
			if delays == nil {
				delays = map[string]time.Duration{}
			}
			delays[l.all[0].name] = at.Own - now.Own
		}
	}
	return t, delays
}

// FreshIn is how long it takes until a trial is as good as none.
func (c *Candidates) FreshIn(t *Trial, now Now) (wait time.Duration) {
	if t == nil {
		return 0
	}
	for i, l := range c.each {
		ahead := max(0, t.last[i]-now.Own)
		wait = max(wait, ahead+l.FreshIn(t.sets[i], now.plus(ahead)))
	}
	return wait
}

func (n Now) plus(d time.Duration) Now { return Now{n.Own + d, n.Wall.Add(d)} }
