package workers

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

// What JetStream stores and delivers in the simulation: streams, consumers, records.

type stream struct {
	missing   bool // it is deleted, and not made again yet
	created   time.Time
	seq       uint64
	messages  map[uint64]*queue.Arrived
	consumers map[int][]*consumer // by partition; one, unless sabotaged
	depth     map[queue.Key]int64
}

type consumer struct {
	stream  *stream
	epoch   uint64
	owner   *drainer
	part    *partition
	last    uint64          // sequence of the stream when it was made
	pending map[uint64]bool // delivered to someone
	lastAt  time.Duration   // deliveries stay in order
	handed  uint64          // sequence of what was handed over last
	counted uint64          // sequence up to which it counts: less than last when it lags
	swept   bool
	lost    bool // a delivery was lost: nothing after it is handed to the valve until the backlog is opened anew
	lean    bool // it delivers no bodies
	open    bool // its owner has it
	closed  bool
}

// deliver sends messages to a consumer's owner, in order, and no sooner than a gap after those before. One that is lost
// makes a hole, which the backlog notices.
func (w *world) deliver(c *consumer, messages []*queue.Arrived, gap time.Duration) {
	for _, a := range messages {
		c.pending[a.Seq] = true
	}
	if w.down || c.owner.cut > w.now || !w.flawless && w.chance(0.003) {
		if !c.lost {
			c.lost = true
			w.to(c.owner, w.between(10*time.Millisecond, 6*time.Second), func() { c.owner.core.broke(c.part, c.epoch, c.owner.clock()) })
		}
		return
	}
	at := max(c.lastAt+gap, w.now+w.latency())
	c.lastAt = at
	w.to(c.owner, at-w.now, func() {
		if c.lost || c.closed {
			return
		}
		messages := slices.DeleteFunc(messages, func(a *queue.Arrived) bool { // the backlog leaves them out
			return c.swept && a.Seq <= c.last && c.stream.messages[a.Seq] == nil
		})
		if len(messages) == 0 {
			return
		}
		batch := make([]queue.Arrived, len(messages))
		for i, a := range messages {
			batch[i] = *a
			w.garble(&batch[i])
			if c.lean {
				batch[i].Body, batch[i].Lean = nil, true
			}
		}
		if c.epoch == c.part.epoch && c.part.state <= partitionLive {
			w.delivered(c.part, batch)
		}
		c.owner.core.arrived(c.part, c.epoch, batch, c.owner.clock())
		w.sweep(c, batch[len(batch)-1].Seq)
		if w.has(twice) && w.chance(0.1) {
			w.again(c, batch)
		}
	})
}

// again delivers messages once more, of which some may be acknowledged while they are on the way.
func (w *world) again(c *consumer, batch []queue.Arrived) {
	w.after(w.latency(), func() {
		batch = slices.DeleteFunc(batch, func(a queue.Arrived) bool {
			return c.stream.messages[a.Seq] == nil
		})
		w.to(c.owner, w.between(0, staleFor/2), func() {
			if !c.lost && !c.closed && len(batch) > 0 {
				c.owner.core.arrived(c.part, c.epoch, batch, c.owner.clock())
			}
		})
	})
}

// sweep asks the stream's leader, some time after a delivery, whether anything else is to come of what was stored when the
// consumer was made. Like the backlog it asks again when it comes to nothing.
func (w *world) sweep(c *consumer, through uint64) {
	if c.swept || c.closed || c.lost || through < c.handed {
		return
	}
	c.handed = through
	w.to(c.owner, w.latency(), func() {
		switch {
		case c.swept || c.closed || c.lost || c.handed != through:
		case w.down || w.headless(c.part.policy) || c.owner.cut > w.now || w.stored(c, through):
			w.after(500*time.Millisecond, func() { w.sweep(c, through) })
		default:
			c.swept = true
			c.owner.core.swept(c.part, c.epoch, c.owner.clock())
		}
	})
}

// stored reports whether a stream holds anything for a consumer after a sequence, up to the last one when that was made.
func (w *world) stored(c *consumer, through uint64) bool {
	last := c.last
	if w.sabotage == countsBelieved {
		last = c.counted
	}
	for seq := through + 1; seq <= last; seq++ {
		if m := w.streams[c.part.policy].messages[seq]; m != nil && m.Partition == c.part.number {
			return true
		}
	}
	return false
}

// lag lets a consumer fall behind from somewhere in what it has to deliver: all after that comes late.
func (w *world) lag(c *consumer, stored []*queue.Arrived) (from uint64, late time.Duration) {
	lags := w.has(lagging) || w.sabotage == countsBelieved
	if len(stored) == 0 || !lags || w.chance(0.4) {
		return 0, 0
	}
	from = stored[w.rng.IntN(len(stored))].Seq
	c.counted = from - 1
	return from, w.between(0, 4*time.Second)
}

func (d *drainer) ack(a recordOf) { d.ackSeq(a.part, a.seq) }

// ackSeq acknowledges until it is confirmed or the backlog is closed.
func (d *drainer) ackSeq(p *partition, seq uint64) {
	w := d.w
	s := w.streams[p.policy]
	for _, c := range s.consumers[p.number] {
		if c.owner != d || c.part != p || c.epoch != p.epoch || !c.open {
			continue
		}
		var try func()
		try = func() {
			if c.closed || !d.alive {
				return
			}
			if w.down || d.cut > w.now || w.headless(p.policy) || !c.pending[seq] || w.chance(0.005) {
				w.after(2*time.Second, try)
				return
			}
			if m := s.messages[seq]; m != nil {
				delete(s.messages, seq)
				s.depth[m.Key]--
			}
			if w.chance(0.005) {
				w.after(2*time.Second, try) // the confirmation was lost
				return
			}
			w.to(d, w.latency(), func() { d.core.confirmed(p, []uint64{seq}, d.clock()) })
		}
		w.after(w.latency(), try)
	}
}

// write changes a record and tells everyone who watches.
func (w *world) write(t table, key string, r record) {
	r.stored = w.stamp(tableNames[t])
	w.records[t][key] = &r
	if t == tablePartitions && strings.HasSuffix(key, checkpointSuffix) {
		return
	}
	for _, d := range w.drainers {
		at := max(d.lastAt[key], w.now+w.latency())
		if d.cut > w.now || w.down {
			at = max(at, d.cut+w.latency()) // a watch reads everything again after a break
		}
		d.lastAt[key] = at
		w.to(d, at-w.now, func() { d.watched(t, key, r) })
	}
}

// put plays a compare-and-set whose answer, or which itself, may be lost or late.
func (d *drainer) put(p put) {
	if p.why == whyClaim {
		d.w.aimed(d, atAClaim, 50*time.Millisecond)
	}
	w := d.w
	const patience = time.Second
	composed, value := w.decisions, p.bytes()
	if decisions, pieces := d.gathered[p.gathering]; pieces {
		composed = decisions
		delete(d.gathered, p.gathering)
	}
	apply := func() (putResult, uint64) {
		current := w.records[p.table][p.key]
		switch {
		case w.down || d.cut > w.now || w.headless(tableNames[p.table]):
			return putUnknown, 0
		case current == nil && p.revision != 0,
			current != nil && current.exists && current.revision != p.revision,
			current != nil && !current.exists && p.revision != 0 && p.revision != current.revision:
			return putConflict, 0
		}
		if p.why == whyTombstone {
			w.buried(p.key)
		}
		w.revision++
		if p.why == whyCheckpoint {
			w.composed[w.revision] = composed
		}
		written := record{exists: true, value: value, revision: w.revision}
		w.write(p.table, p.key, written)
		if p.why == whyRelease {
			w.leavesOut(p.key, value)
		}
		if p.why == whyRelease && w.has(strangers) && w.chance(0.5) {
			w.after(w.between(0, time.Millisecond), func() { w.estrange(p.key, written) })
		}
		return putOK, written.revision
	}
	answer := func(delay time.Duration, result putResult, revision uint64) {
		w.to(d, delay, func() { d.core.put(p, result, revision, d.clock()) })
	}
	x := w.rng.Float64()
	if x < 0.03 && p.why != whyCheckpoint {
		d.hinder()
	}
	switch {
	case x < 0.01, p.why == whyRenew && d.mute > w.now: // never arrives
		answer(patience, putUnknown, 0)
	case x < 0.02: // applied, the answer is lost
		w.after(w.latency(), func() { apply() })
		answer(patience, putUnknown, 0)
	case p.why == whyCheckpoint && w.held > w.now:
		d.heldUp(func() { apply() })
		answer(patience, putUnknown, 0)
	case x < 0.03: // applied late
		w.after(w.between(0, 3*time.Second), func() { apply() })
		answer(patience, putUnknown, 0)
	default:
		w.after(w.latency(), func() {
			result, revision := apply()
			if result == putUnknown {
				answer(patience, result, 0)
			} else {
				answer(w.latency(), result, revision)
			}
		})
	}
}

func (d *drainer) read(p put) {
	w := d.w
	w.after(w.latency(), func() {
		if w.down || d.cut > w.now || w.headless(tableNames[p.table]) || w.chance(0.05) {
			if d.alive {
				w.after(250*time.Millisecond, func() { d.read(p) })
			}
			return
		}
		var found record
		if r := w.records[p.table][p.key]; r != nil {
			found = *r
		}
		w.to(d, w.latency(), func() { d.core.read(p, found, d.clock()) })
	})
}

// open plays the opening of a backlog: what the predecessor left is read, other consumers are deleted, everything that is
// stored is delivered, some of the time slowly.
func (d *drainer) open(o opening) {
	w := d.w
	epoch := o.part.epoch
	policy, number := o.part.policy, o.part.number
	if o.part.state > partitionLive {
		w.fail("ownership: %s opens %s, which it has given up", d.core.options.name, shareOf(o.part))
	}
	for _, c := range w.streams[policy].consumers[number] {
		if c.owner == d && c.part == o.part {
			c.closed = true
		}
	}
	fails := func() {
		w.stands.failures[shareOf(o.part)]++
		missing := w.streams[policy].missing && !w.down
		w.to(d, w.latency(), func() { d.core.unopened(o, epoch, missing, d.clock()) })
	}
	w.after(w.between(time.Millisecond, 60*time.Millisecond), func() {
		if w.down || d.cut > w.now || w.headless(policy) || o.inherit && w.headless(attemptsName) || w.chance(0.02) {
			fails()
			return
		}
		found := opened{attempts: map[uint64]storedAttempt{}}
		if o.inherit {
			w.readLegacy(o.part, epoch, &found)
			found.read = d.hosted()
		}
		s := w.streams[policy]
		if slices.ContainsFunc(s.consumers[number], func(c *consumer) bool { return c.epoch > epoch }) {
			fails()
			return
		}
		c, stored := w.consume(d, o.part, epoch)
		found.last, found.created = c.last, s.created
		if w.sabotage == streamsAlike {
			found.created = originWall
		}
		c.lastAt = w.now + w.latency()
		w.to(d, c.lastAt-w.now, func() {
			w.opens(o.part, s, len(stored))
			c.open = true
			d.opened(o, epoch, found)
			w.sweep(c, 0)
		})
		chunk, gap := 16, time.Duration(0)
		if w.chance(0.5) {
			chunk, gap = 1+w.rng.IntN(16), w.between(0, 100*time.Millisecond)
		}
		from, late := w.lag(c, stored)
		for batch := range slices.Chunk(stored, chunk) {
			wait := gap
			if from > 0 && batch[len(batch)-1].Seq >= from {
				from, wait = 0, gap+late
			}
			w.deliver(c, batch, wait)
		}
	})
}

// consume makes the consumer of an epoch and returns what it has to deliver.
func (w *world) consume(d *drainer, p *partition, epoch uint64) (c *consumer, stored []*queue.Arrived) {
	s := w.streams[p.policy]
	held := map[uint64]bool{} // by a consumer that sabotage leaves: until its acknowledgement wait ends
	c = &consumer{stream: s, epoch: epoch, owner: d, part: p, last: s.seq, counted: s.seq, pending: map[uint64]bool{}}
	c.lean = w.has(leanBodies) && w.chance(0.7)
	if w.sabotage == oldConsumerStays {
		for _, old := range s.consumers[p.number] {
			maps.Copy(held, old.pending)
		}
		s.consumers[p.number] = append(s.consumers[p.number], c)
	} else {
		for _, old := range s.consumers[p.number] {
			old.closed = true
			w.to(old.owner, w.latency(), func() { old.owner.core.broke(old.part, old.epoch, old.owner.clock()) })
		}
		s.consumers[p.number] = []*consumer{c}
	}
	for _, seq := range slices.Sorted(maps.Keys(s.messages)) {
		if m := s.messages[seq]; m.Partition == p.number && !held[seq] {
			stored = append(stored, m)
		}
	}
	return c, stored
}

// consumes reports whether a partition's deliveries come to a drainer.
func (d *drainer) consumes(p *partition) bool {
	return slices.ContainsFunc(d.w.streams[p.policy].consumers[p.number], func(c *consumer) bool {
		return c.owner == d && c.part == p && !c.closed
	})
}

func (d *drainer) closeConsumers(p *partition) {
	w := d.w
	for _, c := range w.streams[p.policy].consumers[p.number] {
		if c.owner == d && c.part == p {
			c.closed = true
		}
	}
	if p.state == partitionSurrendered {
		for s := range w.stints() {
			if s.part == p {
				s.fate.handed, s.fate.heard = true, w.now
			}
		}
	}
}
