package quota

import (
	"time"

	"github.com/penstock-mq/penstock/policy"
)

// Candidates are shadow limits, each simulated separately: starts join a virtual queue, which it
// drains.
type Candidates struct{ each []*Limits }

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

type Trial struct {
	sets []*Set
	last []time.Duration // last virtual starts, by the process's clock
}

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
		ch.Done(at, End{}, Noted{})
		if t.last[i] = at.Own; at.Own > now.Own {
			if delays == nil {
				delays = map[string]time.Duration{}
			}
			delays[l.all[0].name] = at.Own - now.Own
		}
	}
	return t, delays
}

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

func (n Now) plus(d time.Duration) Now {
	n.Own, n.Wall = n.Own+d, n.Wall.Add(d)
	return n
}
