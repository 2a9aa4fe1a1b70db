package core

import (
	"slices"
	"strconv"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/crew"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

const (
	simulatedTries = 4 // workers that one offer asks
	// from a time-out until a remote worker counts as gone
	simulatedTravel = 500 * time.Millisecond
	simulatedPause  = 250 * time.Millisecond
)

// Remote workers exchange the messages of docs/workers-protocol.md between remote.go and lender.go.
// The cores decide which claim gets which job. Lost, late and repeated messages, and hanging and
// dying workers, are drawn.

type lendingProcess struct {
	w       *world
	policy  string
	d       *drainer // nil: it only lends
	workers int
	busy    int               // promised, or running
	keys    map[queue.Key]int // those that run
	dead    bool
}

// proposal is an offer on its way through the workers until one claims.
type proposal struct {
	d       *drainer
	policy  string
	at      pace.Instant
	asked   int
	foreign bool
	ended   bool
}

type promise struct {
	from   *lendingProcess
	except []queue.Key
	at     time.Duration
	run    *stint
	ended  bool
}

func (w *world) lend(name string) {
	w.lenders = append(w.lenders,
		&lendingProcess{w: w, policy: name, workers: 2 + w.rng.IntN(12), keys: map[queue.Key]int{}})
}

func (w *world) killLender() {
	if len(w.lenders) == 0 {
		return
	}
	i := w.rng.IntN(len(w.lenders))
	o := w.lenders[i]
	o.dead = true
	w.lenders = slices.Delete(w.lenders, i, i+1)
	w.after(w.between(0, 8*time.Second), func() { w.lend(o.policy) })
}

func (w *world) message(from, to *drainer, do func()) {
	if w.down || from != nil && (!from.alive || from.cut > w.now) || w.chance(0.01) {
		return
	}
	w.after(w.latency(), func() {
		switch {
		case to == nil:
			do()
		case to.cut <= w.now:
			to.receive(do)
		}
	})
}

func (o *lendingProcess) gone() bool { return o.dead || o.d != nil && !o.d.alive }

func (w *world) lender(name string) *lendingProcess {
	var able []*lendingProcess
	if !w.set.elsewhere[name] {
		for _, d := range w.drainers {
			if d.alive && !d.leaving && d.told[name] != nil {
				if d.lends[name] == nil {
					d.lends[name] = &lendingProcess{w: w, policy: name, d: d,
						keys: map[queue.Key]int{}}
				}
				able = append(able, d.lends[name])
			}
		}
	}
	for _, o := range w.lenders {
		if o.policy == name {
			able = append(able, o)
		}
	}
	if len(able) == 0 {
		return nil
	}
	return able[w.rng.IntN(len(able))]
}

func (d *drainer) propose(name string) { (&proposal{d: d, policy: name}).ask() }

func (p *proposal) ask() {
	w, d := p.d.w, p.d
	p.asked++
	p.at = d.clock()
	n := p.asked
	w.to(d, job.ClaimWindow, func() {
		if !p.ended && p.asked == n {
			p.end(crew.OfferBusy)
		}
	})
	o := w.lender(p.policy)
	if o == nil {
		w.message(nil, d, func() {
			if !p.ended && p.asked == n {
				p.end(crew.OfferNobody)
			}
		})
		return
	}
	w.message(d, o.d, func() { o.offered(p, n) })
}

func (p *proposal) again(n int, foreign bool) {
	if p.ended || p.asked != n {
		return
	}
	p.foreign = p.foreign || foreign
	switch {
	case p.asked < simulatedTries:
		p.ask()
	case p.foreign:
		p.end(crew.OfferBusy)
	default:
		p.end(crew.OfferNobody)
	}
}

func (p *proposal) end(result crew.Offered) {
	p.ended = true
	p.d.core.Handle(Offered{p.policy, result}, p.d.clock())
}

func (o *lendingProcess) offered(p *proposal, n int) {
	w := o.w
	switch {
	case o.gone():
		return
	case o.d == p.d:
		p.again(n, false)
		return
	}
	except, able := o.take()
	if !able {
		w.message(o.d, p.d, func() { p.again(n, true) })
		return
	}
	c := &promise{from: o, except: except, at: w.now}
	claim := func() { w.message(o.d, p.d, func() { p.claimed(c, n) }) }
	if w.chance(0.02) {
		w.after(w.between(0, 2*job.ClaimWindow), claim)
	} else {
		claim()
	}
	if w.chance(0.02) {
		claim()
	}
	o.after(job.ClaimWindow, func() {
		if c.run == nil {
			c.giveBack()
		}
	})
}

func (o *lendingProcess) after(delay time.Duration, do func()) {
	if o.d != nil {
		o.w.to(o.d, delay, do)
		return
	}
	o.w.after(delay, func() {
		if !o.dead {
			do()
		}
	})
}

// take takes a worker for a job of a bucket of which it does not run more than three times as many
// jobs as workers stay free, or for any of the promised ones.
func (o *lendingProcess) take() (except []queue.Key, able bool) {
	free := o.workers - o.busy
	if o.d != nil {
		workers := o.d.core.Workers(o.policy)
		free = workers.Free()
	}
	promised := o.busy
	for _, n := range o.keys {
		promised -= n
	}
	if free <= 0 || promised > 3*(free-1) {
		return nil, false
	}
	if o.d != nil {
		if !o.d.core.Reserve(o.policy) {
			return nil, false
		}
	}
	for _, key := range keys {
		if n := o.keys[key]; n > 0 && n+promised > 3*(free-1) {
			except = append(except, key)
		}
	}
	o.busy++
	if o.d != nil {
		o.d.countWorkers(o.policy)
	}
	return except, true
}

func (c *promise) giveBack() {
	if c.ended {
		return
	}
	c.ended = true
	o := c.from
	o.busy--
	if c.run != nil {
		o.keys[c.run.Key]--
	}
	if o.d != nil {
		o.d.core.Release(o.policy)
	}
}

func (p *proposal) claimed(c *promise, n int) {
	d := p.d
	if p.ended || p.asked != n {
		c.refuse(d)
		return
	}
	if !d.core.Fits(p.policy, c.except, d.clock()) {
		c.refuse(d)
		p.again(n, true)
		return
	}
	p.ended = true
	if until := p.at.Add(crew.HoldFor); d.clock() < until {
		d.tokens++
		token := strconv.Itoa(d.tokens)
		d.promises[token] = c
		claim := crew.Claim{Worker: token, Except: c.except, Until: until}
		d.core.Handle(Claimed{p.policy, claim}, d.clock())
	} else {
		c.refuse(d)
	}
	d.core.Handle(Offered{p.policy, crew.OfferClaimed}, d.clock())
}

func (d *drainer) promised(token string) *promise {
	c := d.promises[token]
	delete(d.promises, token)
	return c
}

func (c *promise) refuse(d *drainer) {
	d.w.message(d, c.from.d, func() {
		if c.run == nil {
			c.giveBack()
		}
	})
}

func (s *stint) send() {
	w, d, o := s.d.w, s.d, s.worker.from
	s.wait()
	w.message(d, o.d, func() { s.worker.told(s) })
	if o.gone() {
		w.message(nil, d, func() {
			s.hear(record.Outcome{Seq: s.Seq,
				Kind: record.OutcomeUncounted})
		})
	}
}

func (s *stint) wait() {
	s.patience++
	n := s.patience
	s.d.w.to(s.d, s.timeout()+simulatedTravel, func() {
		if s.over || s.patience != n {
			return
		}
		s.d.w.message(s.d, s.worker.from.d, func() { s.worker.stop(s) })
		s.hear(record.Outcome{Seq: s.Seq, Kind: record.OutcomeFailed,
			Error: "neither progress nor an outcome"})
	})
}

func (s *stint) hear(o record.Outcome) {
	if !s.over {
		s.over = true
		s.lingers(o, s.end)
	}
}

func (s *stint) progress() {
	if s.over {
		return
	}
	s.wait()
	report, handedOver := s.d.core.Progress(s.Run, "")
	if !handedOver {
		return
	}
	w := s.d.w
	w.message(s.d, nil, func() {
		late := s.fate.overdue(w.now, s.timeout())
		if w.reported(report) && !late {
			s.fate.heard = w.now
		}
	})
}

// told takes the job for a claim. A late one, or one without a claim, is not run.
func (c *promise) told(s *stint) {
	w := c.from.w
	switch {
	case c.from.gone():
		return
	case c.ended || c.run != nil || w.now-c.at > job.ClaimWindow:
		if c.run == nil {
			c.giveBack()
		}
		c.confirm(s, record.Outcome{Seq: s.Seq, Kind: record.OutcomeUncounted}, 0)
		return
	}
	c.run = s
	c.from.keys[s.Key]++
	took, o := w.run(s)
	took, o = s.exchange(took, o)
	timeout := s.timeout()
	if w.chance(0.01) {
		took = w.between(timeout, 5*timeout/2)
	}
	hangs := w.chance(0.01)
	if hangs {
		took = 3 * timeout
	}
	c.say(s, timeout/3, hangs)
	c.from.after(took, func() { c.ends(s, o) })
}

func (c *promise) say(s *stint, every time.Duration, hangs bool) {
	c.from.after(every, func() {
		if c.ended || hangs {
			return
		}
		c.from.w.message(c.from.d, s.d, s.progress)
		c.say(s, every, hangs)
	})
}

func (c *promise) stop(s *stint) {
	if c.run == s {
		c.ends(s, record.Outcome{Seq: s.Seq, Kind: record.OutcomeUncounted})
	}
}

func (c *promise) ends(s *stint, o record.Outcome) {
	if !c.ended && !c.from.gone() {
		c.giveBack()
		c.confirm(s, o, 0)
	}
}

// confirm repeats an outcome until it is confirmed, for up to a timeout.
func (c *promise) confirm(s *stint, o record.Outcome, said time.Duration) {
	w := c.from.w
	if c.from.gone() || said > s.timeout() {
		return
	}
	confirmed := false
	w.message(c.from.d, s.d, func() {
		s.hear(o)
		w.message(s.d, c.from.d, func() { confirmed = true })
	})
	pause := min(max(said, 200*time.Millisecond), time.Second)
	c.from.after(pause, func() {
		if !confirmed {
			c.confirm(s, o, said+pause)
		}
	})
}
