package workers

import (
	"log/slog"

	"github.com/penstock-mq/penstock/queue"
)

// outages tells operators of targets that are down, and that they are back: a line for each policy, and none more often
// than every lettersEvery. It belongs to the loop.
type outages struct {
	log      *slog.Logger
	observe  func(policy string, open int)
	policies map[string]*outage // that had a breaker open
}

type outage struct {
	open   int     // breakers
	since  instant // there is one
	key    queue.Key
	err    string // of the last that opened
	told   bool   // that the target is down
	toldAt instant
}

// opened takes that a breaker opened.
func (o *outages) opened(policy string, key queue.Key, err string, now instant) {
	p := o.policies[policy]
	if p == nil {
		p = &outage{since: now}
		o.policies[policy] = p
	}
	p.key, p.err = key, err
}

// tell writes what is due.
func (o *outages) tell(valves map[string]*valve, now instant) {
	for name, v := range valves {
		if v.opened() > 0 && o.policies[name] == nil { // it was inherited
			o.policies[name] = &outage{}
		}
	}
	for name, p := range o.policies {
		open := 0
		v := valves[name]
		if v != nil {
			open = v.opened()
		}
		if open != p.open {
			if p.open == 0 {
				p.since = now
			}
			p.open = open
			o.observe(name, open)
		}
		switch recently := p.toldAt != 0 && now.since(p.toldAt) < lettersEvery; {
		case v == nil: // the policy is gone, or another drainer's: nothing is known of its target
			delete(o.policies, name)
		case recently:
		case open > 0 && !p.told:
			p.told, p.toldAt = true, now
			o.log.Warn("target is down: no attempts count, and jobs start one by one to see whether it is back",
				"policy", name, "buckets", v.broken, "all", v.breaker.open, "key", p.key, "error", p.err)
		case open == 0 && p.told:
			p.told, p.toldAt = false, now
			o.log.Info("target is back", "policy", name, "after", now.since(p.since))
		case open == 0:
			delete(o.policies, name)
		}
	}
}
