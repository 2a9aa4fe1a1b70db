package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// Callers exchange the messages of docs/workers-protocol.md about calls, as in package permits.
// Messages are lost, late, repeated and reordered; callers give up, stop answering, omit and repeat
// settlements, ask again, and lie.

type caller struct {
	w       *world
	policy  string
	key     queue.Key
	id      string
	cost    int64
	tokens  int64
	wait    time.Duration
	first   time.Duration
	at      time.Duration
	asked   int
	silent  bool
	over    bool
	begun   bool
	applied bool // its settlement, by some owner
	deaf    bool // to confirmations
	places  map[*partition]time.Duration
	request *request
}

func callWorld(seed uint64, s sabotage) *world {
	w := limitWorld(seed, s)
	w.calling()
	return w
}

func (w *world) calling() {
	w.callSlots = map[string][]slot{}
	for range 3 {
		name, key := w.policies[w.rng.IntN(len(w.policies))].Name, someKey(w)
		for at := w.between(0, 2*time.Second); at < busy; at += w.between(50*time.Millisecond,
			4*time.Second) {
			w.after(at, func() {
				for range 1 + w.rng.IntN(8) {
					w.call(name, key)
				}
			})
		}
	}
}

func (w *world) call(name string, key queue.Key) {
	w.names++
	c := &caller{w: w, policy: name, key: key, id: fmt.Sprint("c", w.names), cost: 1, first: w.now,
		wait: w.between(0, 20*time.Second), silent: w.chance(0.1), deaf: w.chance(0.3),
		places: map[*partition]time.Duration{}}
	w.callers = append(w.callers, c)
	if w.chance(0.2) {
		c.cost = 1 + w.rng.Int64N(4)
	}
	if w.chance(0.3) {
		c.tokens = 1 + w.rng.Int64N(12)
	}
	c.ask()
	w.after(w.between(0, c.wait+time.Second), func() {
		if !c.over && !c.begun && w.chance(0.3) {
			c.over = true
			status := job.SettledReturned
			if w.chance(0.1) && w.arrivals == nil { // a lie
				status = job.SettledDone
			}
			c.report(job.OpSettle, job.Settlement{Status: status})
		}
	})
}

func (c *caller) claim(op string) job.Claim {
	q := job.Claim{Op: op, Want: job.WantPermit, Key: c.key, Cost: c.cost, ID: c.id, N: c.asked,
		Partitions: c.w.policyOf(c.policy).Partitions, AgeMS: (c.w.now - c.first).Milliseconds()}
	if c.tokens > 0 {
		q.Costs = map[string]int64{"tokens": c.tokens}
	}
	q.WaitMS = max(0, c.wait.Milliseconds()-q.AgeMS)
	return q
}

func (c *caller) send(q job.Claim, hear func(t job.Turn, began *slot)) {
	w := c.w
	number := partitionOf(c.key, w.policyOf(c.policy).Partitions)
	if q.Op != job.OpProgress {
		clear(c.places)
	}
	for _, d := range w.drainers {
		s := d.core.shares.all[record.ShareKey(c.policy, number)]
		if !d.alive || s == nil || s.part == nil || !s.part.Owned() {
			continue
		}
		part := s.part
		message := func() { w.message(nil, d, func() { c.heardBy(d, part, q, hear) }) }
		message()
		if w.chance(0.02) {
			w.after(w.between(0, 2*time.Second), message)
		}
	}
}

func (c *caller) heardBy(d *drainer, part *partition, q job.Claim,
	hear func(t job.Turn, began *slot)) {

	w := c.w
	if d.core.part(part.Partition) == nil {
		return
	}
	w.heard(d, part, c, q, func() {
		d.core.Handle(Heard{Part: part.Partition, Claim: q, Reply: func(t job.Turn) {
			began := w.granting
			if q.N == c.asked && (t.State == job.TurnGo && t.LeaseMS > 0 ||
				q.Op == job.OpProgress && t.State == job.TurnSettled) {
				lease := float64(d.told[c.policy].Timeout) * (1 - 2*mostDrift)
				c.places[part] = w.now + time.Duration(lease)
			}
			repeated := q.Op == job.OpSettle && c.applied
			c.applied = c.applied || q.Op == job.OpSettle && t.State == job.TurnSettled
			if t.State == job.TurnSettled && !repeated && d.lost == 0 &&
				d.consumes(part.Partition) {
				bucket := bucketOf(c.policy, c.key)
				w.cool[bucket] = max(w.cool[bucket],
					w.now+time.Duration(q.RetryAfterMS)*time.Millisecond)
			}
			w.message(d, nil, func() { hear(t, began) })
		}}, d.clock())
	})
}

func (c *caller) ask() {
	if c.over || c.w.now-c.first > c.wait {
		c.over = true
		return
	}
	c.asked++
	c.at = c.w.now
	n := c.asked
	c.send(c.claim(job.OpClaim), func(t job.Turn, began *slot) { c.hear(n, t, began) })
	c.again(n, c.w.between(time.Second, 2*time.Second))
}

func (c *caller) again(n int, in time.Duration) {
	c.w.after(in, func() {
		if c.asked == n && !c.over && !c.begun {
			c.ask()
		}
	})
}

func (c *caller) hear(n int, t job.Turn, began *slot) {
	w := c.w
	switch {
	case c.over || c.begun || n != c.asked:
	case t.State == job.TurnGo && w.now-c.at <= job.ClaimWindow && !(c.silent && w.chance(0.5)):
		c.begin(t, began)
	case t.State == job.TurnGo && c.silent:
		c.over = true
		if w.sabotage == lateCaller {
			c.beginsRequest(began)
			c.request.to += time.Second
		}
		c.report(job.OpSettle, job.Settlement{Status: job.SettledReturned})
	case t.State == job.TurnGo, t.State == job.TurnOffer && !c.silent:
		c.ask()
	case t.State == job.TurnMoved:
		c.again(n, 100*time.Millisecond)
	case t.State == job.TurnRefused:
		c.over = true
	}
}

func (c *caller) begin(t job.Turn, began *slot) {
	w := c.w
	c.begun = true
	bucket := bucketOf(c.policy, c.key)
	began.tokens = c.tokens
	c.beginsRequest(began)
	var used map[string]int64
	if c.tokens > 0 && !c.silent && w.chance(0.5) {
		began.tokens = 1 + w.rng.Int64N(c.tokens)
		used = map[string]int64{"tokens": began.tokens}
		if c.request != nil {
			c.request.tokens = began.tokens
		}
	}
	w.callSlots[bucket] = append(w.callSlots[bucket], *began)
	lease := time.Duration(t.LeaseMS) * time.Millisecond
	if c.silent {
		return
	}
	took := w.between(0, 2*time.Second)
	if w.chance(0.05) {
		took = w.between(0, 3*lease)
	}
	c.answers(took)
	for at := lease / 3; lease > 0 && at < took; at += lease / 3 {
		w.after(at, func() { c.report(job.OpProgress, job.Settlement{}) })
	}
	if w.chance(0.05) && w.arrivals == nil { // a lie: it continues, and its owner counts it no more
		w.after(w.between(0, took), func() {
			c.settle(job.Settlement{Status: job.SettledDone}, 0)
		})
	}
	w.after(took, func() {
		c.over = true
		status := job.SettledDone
		switch x := w.rng.Float64(); {
		case x < 0.05:
			status = job.SettledThrottled
		case x < 0.1:
			status = job.SettledFailed
		case x < 0.15:
			status = job.SettledUnavailable
		}
		s := job.Settlement{Status: status, Used: used}
		if w.chance(0.1) {
			s.RetryAfterMS = w.rng.Int64N(2000)
		}
		c.settle(s, 0)
	})
}

func (c *caller) report(op string, s job.Settlement) {
	c.tell(op, s, func(job.Turn, *slot) {})
}

func (c *caller) tell(op string, s job.Settlement, hear func(job.Turn, *slot)) {
	c.asked++
	q := c.claim(op)
	q.Settlement = s
	c.send(q, hear)
}

// settle repeats a settlement until it is confirmed, for up to five seconds.
func (c *caller) settle(s job.Settlement, after time.Duration) {
	confirmed := false
	c.tell(job.OpSettle, s, func(t job.Turn, _ *slot) {
		confirmed = confirmed || t.State == job.TurnSettled && !c.deaf
	})
	c.w.after(time.Second, func() {
		if !confirmed && after < 5*time.Second {
			c.settle(s, after+time.Second)
		}
	})
}

func (d *drainer) grant(r valve.Run) {
	w := d.w
	w.decisions++
	t := d.told[r.Part.Policy]
	s := &slot{number: w.decisions, by: d, cost: r.Cost, own: t.own(r.Key), total: t.total()}
	most := t.concurrency(r.Key)
	if until := w.cool[bucketOf(r.Part.Policy, r.Key)]; w.now+roundOff < until {
		w.fail("cool-down: a call of %s starts, which cools down until %v", r.Key, until)
	}
	of := bucketAt{d.core.part(r.Part), r.Key}
	previous := d.latest[of]
	d.latest[of] = r.Ticket
	delay := w.between(0, 200*time.Microsecond)
	if w.chance(0.02) {
		delay = w.between(0, 80*time.Millisecond)
	}
	w.after(delay, func() { d.granted(r, s, most, previous) })
}

func (d *drainer) granted(r valve.Run, s *slot, most int, previous *valve.Ticket) {
	w := d.w
	switch {
	case !d.alive:
		return
	case d.frozen > w.now:
		w.after(d.frozen-w.now, func() { d.granted(r, s, most, previous) })
		return
	case previous != nil && !w.decided[previous]:
		w.after(50*time.Microsecond, func() { d.granted(r, s, most, previous) })
		return
	}
	w.decided[r.Ticket] = true
	_, passed := r.Decide(d.gate, func() {
		s.at = w.now
		now := d.told[r.Part.Policy]
		s.own, s.total = s.own.larger(now.own(r.Key)), s.total.larger(now.total())
		w.granting = s
		r.Call.Tell()
		w.granting = nil
		bucket := bucketOf(r.Part.Policy, r.Key)
		w.checkConcurrency(d.core.part(r.Part), r.Key, bucket, most)
		w.startedWhilePaused(d, bucket)
	})
	w.to(d, w.between(0, 100*time.Microsecond), func() {
		d.core.Handle(Finish(r, r.Call.Outcome(passed)), d.clock())
	})
}

func (w *world) checkConcurrency(p *partition, key queue.Key, bucket string, most int) {
	calls := 0
	for _, c := range w.callers {
		if c.key == key && w.now < c.places[p] {
			calls++
		}
	}
	if jobs := len(w.active[bucket]); most > 0 && jobs+calls > most {
		w.fail("concurrency: %d jobs and %d calls of %s run, at most %d may", jobs, calls, bucket,
			most)
	}
}

func TestSimulationOfCalls(t *testing.T) {
	begun, repeats := 0, 0
	testLimits(t, func(seed uint64, s sabotage) *world {
		w := callWorld(seed, s)
		w.after(busy, func() {
			for _, slots := range w.callSlots {
				begun += len(slots)
			}
			repeats += w.repeats
		})
		return w
	})
	if (begun == 0 || repeats == 0) && *seeds > 5 {
		t.Errorf("%d calls began, %d repeated settlements", begun, repeats)
	}
}

func (w *world) starts() (buckets, totals map[string][]slot) {
	buckets, totals = map[string][]slot{}, map[string][]slot{}
	for _, f := range w.fates() {
		buckets[f.bucket] = append(buckets[f.bucket], f.slots...)
		totals[f.policy] = append(totals[f.policy], f.slots...)
	}
	for _, p := range w.policies {
		for _, key := range keys {
			calls := w.callSlots[bucketOf(p.Name, key)]
			buckets[bucketOf(p.Name, key)] = append(buckets[bucketOf(p.Name, key)], calls...)
			totals[p.Name] = append(totals[p.Name], calls...)
		}
	}
	return buckets, totals
}
