package core

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

type stream struct {
	missing   bool
	created   time.Time
	seq       uint64
	messages  map[uint64]*job.Arrived
	consumers map[int][]*consumer // by partition; one, unless sabotaged
	depth     map[queue.Key]int64
}

type consumer struct {
	stream  *stream
	epoch   uint64
	owner   *drainer
	part    *partition
	last    uint64 // stream's last sequence at its creation
	pending map[uint64]bool
	lastAt  time.Duration // deliveries stay in order
	handed  uint64        // last sequence handed over
	counted uint64        // last sequence that it counts; less than last when it lags
	swept   bool
	// a delivery was lost: later ones wait until the backlog is reopened
	lost   bool
	lean   bool
	open   bool
	closed bool
}

// deliver sends messages to a consumer's owner, in order, after a gap. A lost one makes a hole,
// which the backlog notices.
func (w *world) deliver(c *consumer, messages []*job.Arrived, gap time.Duration) {
	for _, a := range messages {
		c.pending[a.Seq] = true
	}
	if w.down || c.owner.cut > w.now || !w.flawless && w.chance(0.003) {
		if !c.lost {
			c.lost = true
			w.to(c.owner, w.between(10*time.Millisecond, 6*time.Second), func() {
				c.owner.core.Handle(Broken{c.part.Partition, c.epoch}, c.owner.clock())
			})
		}
		return
	}
	at := max(c.lastAt+gap, w.now+w.latency())
	c.lastAt = at
	w.to(c.owner, at-w.now, func() {
		if c.lost || c.closed {
			return
		}
		messages := slices.DeleteFunc(messages, func(a *job.Arrived) bool {
			return c.swept && a.Seq <= c.last && c.stream.messages[a.Seq] == nil
		})
		if len(messages) == 0 {
			return
		}
		batch := make([]job.Arrived, len(messages))
		for i, a := range messages {
			batch[i] = *a
			w.garble(&batch[i])
			if c.lean {
				batch[i].Body, batch[i].Lean = nil, true
			}
		}
		if c.epoch == c.part.Epoch && c.part.Owned() {
			w.delivered(c.part, batch)
		}
		c.owner.core.Handle(Arrived{Part: c.part.Partition, Epoch: c.epoch,
			Jobs: batch}, c.owner.clock())
		w.sweep(c, batch[len(batch)-1].Seq)
		if w.has(twice) && w.chance(0.1) {
			w.again(c, batch)
		}
	})
}

func (w *world) again(c *consumer, batch []job.Arrived) {
	w.after(w.latency(), func() {
		batch = slices.DeleteFunc(batch, func(a job.Arrived) bool {
			return c.stream.messages[a.Seq] == nil
		})
		w.to(c.owner, w.between(0, 50*time.Millisecond), func() {
			if !c.lost && !c.closed && len(batch) > 0 {
				c.owner.core.Handle(Arrived{Part: c.part.Partition, Epoch: c.epoch,
					Jobs: batch}, c.owner.clock())
			}
		})
	})
}

// sweep asks the leader, after a delivery, whether jobs stored at the opening are still to come,
// and retries failures.
func (w *world) sweep(c *consumer, through uint64) {
	if c.swept || c.closed || c.lost || through < c.handed {
		return
	}
	c.handed = through
	w.to(c.owner, w.latency(), func() {
		switch {
		case c.swept || c.closed || c.lost || c.handed != through:
		case w.down || w.headless(c.part.Policy) || c.owner.cut > w.now || w.stored(c, through):
			w.after(500*time.Millisecond, func() { w.sweep(c, through) })
		default:
			c.swept = true
			c.owner.core.Handle(Arrived{Part: c.part.Partition, Epoch: c.epoch,
				Swept: true}, c.owner.clock())
		}
	})
}

func (w *world) stored(c *consumer, through uint64) bool {
	last := c.last
	if w.sabotage == countsBelieved {
		last = c.counted
	}
	for seq := through + 1; seq <= last; seq++ {
		if m := w.streams[c.part.Policy].messages[seq]; m != nil && m.Partition == c.part.Number {
			return true
		}
	}
	return false
}

func (w *world) lag(c *consumer, stored []*job.Arrived) (from uint64, late time.Duration) {
	lags := w.has(lagging) || w.sabotage == countsBelieved
	if len(stored) == 0 || !lags || w.chance(0.4) {
		return 0, 0
	}
	from = stored[w.rng.IntN(len(stored))].Seq
	c.counted = from - 1
	return from, w.between(0, 4*time.Second)
}

func (d *drainer) ack(a handle.Ref) { d.ackSeq(a.Part, a.Seq) }

func (d *drainer) ackSeq(p handle.Partition, seq uint64) {
	w := d.w
	s := w.streams[p.Policy]
	for _, c := range s.consumers[p.Number] {
		if c.owner != d || c.part.Partition != p || c.epoch != c.part.Epoch || !c.open {
			continue
		}
		var try func()
		try = func() {
			if c.closed || !d.alive {
				return
			}
			if w.down || d.cut > w.now || w.headless(p.Policy) || !c.pending[seq] ||
				w.chance(0.005) {
				w.after(2*time.Second, try)
				return
			}
			if m := s.messages[seq]; m != nil {
				delete(s.messages, seq)
				s.depth[m.Key]--
				d.says("has done %s", job.ID(p.Policy, seq))
			}
			if w.chance(0.005) {
				w.after(2*time.Second, try)
				return
			}
			w.to(d, w.latency(), func() { d.core.Handle(Confirmed{p, []uint64{seq}}, d.clock()) })
		}
		w.after(w.latency(), try)
	}
}

func (w *world) write(t Table, key string, r Record) {
	r.Stored = w.stamp(tableNames[t])
	w.records[t][key] = &r
	if t == TablePartitions && strings.HasSuffix(key, record.CheckpointSuffix) {
		return
	}
	for _, d := range w.drainers {
		at := max(d.lastAt[key], w.now+w.latency())
		if d.cut > w.now || w.down {
			at = max(at, d.cut+w.latency())
		}
		d.lastAt[key] = at
		w.to(d, at-w.now, func() { d.watched(t, key, r) })
	}
}

func (d *drainer) put(p Put) {
	if p.Why == whyTake {
		d.w.aimed(d, atAClaim, 50*time.Millisecond)
	}
	w := d.w
	const patience = time.Second
	composed, value := w.decisions, p.Bytes()
	settled, repeats := w.toStore(d, p)
	if decisions, pieces := d.gathered[p.gathering]; pieces {
		composed = decisions
		delete(d.gathered, p.gathering)
	}
	apply := func() (result putResult, revision uint64) {
		current := w.records[p.Table][p.Key]
		defer func() { w.wrote(d, p, value, current, result) }()
		switch {
		case w.down || d.cut > w.now || w.headless(tableNames[p.Table]):
			return putUnknown, 0
		case current == nil && p.Revision != 0,
			current != nil && current.Exists && current.Revision != p.Revision,
			current != nil && !current.Exists && p.Revision != 0 && p.Revision != current.Revision:
			return putConflict, 0
		}
		if p.Why == whyTombstone {
			w.buried(p.Key)
		}
		w.revision++
		if p.Why == whyCheckpoint {
			w.composed[w.revision] = composed
		}
		w.stores(p, settled, repeats, w.revision)
		written := Record{Exists: true, Value: value, Revision: w.revision}
		w.write(p.Table, p.Key, written)
		if p.Why == whyRelease {
			w.leavesOut(p.Key, value)
		}
		if p.Why == whyRelease && w.has(strangers) && w.chance(0.5) {
			w.after(w.between(0, time.Millisecond), func() { w.estrange(p.Key, written) })
		}
		return putOK, written.Revision
	}
	answer := func(delay time.Duration, revision uint64) {
		w.to(d, delay, func() { d.core.Handle(Written{p, revision}, d.clock()) })
	}
	x := w.rng.Float64()
	if x < 0.03 && p.Why != whyCheckpoint {
		d.hinder()
	}
	switch {
	case x < 0.01, p.Why == WhyRenew && d.mute > w.now:
		answer(patience, 0)
	case x < 0.02: // applied, the answer is lost
		w.after(w.latency(), func() { apply() })
		answer(patience, 0)
	case p.Why == whyCheckpoint && w.held > w.now:
		d.heldUp(func() { apply() })
		answer(patience, 0)
	case x < 0.03:
		w.after(w.between(0, 3*time.Second), func() { apply() })
		answer(patience, 0)
	default:
		w.after(w.latency(), func() {
			result, revision := apply()
			if result == putUnknown {
				answer(patience, 0)
			} else {
				answer(w.latency(), revision)
			}
		})
	}
}

func (d *drainer) read(p Put) {
	w := d.w
	w.after(w.latency(), func() {
		if w.down || d.cut > w.now || w.headless(tableNames[p.Table]) || w.chance(0.05) {
			if d.alive {
				w.after(250*time.Millisecond, func() { d.read(p) })
			}
			return
		}
		var found Record
		if r := w.records[p.Table][p.Key]; r != nil {
			found = *r
		}
		w.to(d, w.latency(), func() { d.core.Handle(Found{p, found}, d.clock()) })
	})
}

// open plays the opening of a backlog: it reads the predecessor's records, deletes other consumers,
// and delivers all stored jobs, at times slowly.
func (d *drainer) open(o Opening) {
	w := d.w
	policy, number := o.Part.Policy, o.Part.Number
	part := d.core.part(o.Part)
	if part == nil {
		w.fail("ownership: %s opens %s, which it has given up", d.core.options.Name,
			shareOf(o.Part))
	}
	if _, shared := record.Shared(policy); shared {
		d.openShared(o)
		return
	}
	for _, c := range w.streams[policy].consumers[number] {
		if c.owner == d && c.part == part {
			c.closed = true
		}
	}
	fails := func() {
		w.stands.failures[shareOf(o.Part)]++
		d.says("cannot open %s", shareOf(o.Part))
		missing := w.streams[policy].missing && !w.down
		w.to(d, w.latency(), func() { d.core.Handle(Unopened{o, missing}, d.clock()) })
	}
	w.after(w.between(time.Millisecond, 60*time.Millisecond), func() {
		if w.down || d.cut > w.now || w.headless(policy) || o.Inherit && w.headless(attemptsName) ||
			!w.flawless && w.chance(0.02) {
			fails()
			return
		}
		found := Opened{Opening: o, Attempts: map[uint64]StoredAttempt{}}
		if o.Inherit {
			w.readLegacy(&found)
			w.inherits(d, &found)
			found.Read = d.hosted()
		}
		s := w.streams[policy]
		if slices.ContainsFunc(s.consumers[number], func(c *consumer) bool {
			return c.epoch > o.Epoch
		}) {
			fails()
			return
		}
		c, stored := w.consume(d, part, o.Epoch)
		found.Last, found.Created = c.last, s.created
		if w.sabotage == streamsAlike {
			found.Created = originWall
		}
		c.lastAt = w.now + w.latency()
		w.to(d, c.lastAt-w.now, func() {
			w.opens(part, s, len(stored))
			d.says("has opened %s, with %d jobs", shareOf(o.Part), len(stored))
			c.open = true
			d.opened(found)
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

func (w *world) consume(d *drainer, p *partition,
	epoch uint64) (c *consumer, stored []*job.Arrived) {
	s := w.streams[p.Policy]
	held := map[uint64]bool{}
	c = &consumer{stream: s, epoch: epoch, owner: d, part: p, last: s.seq, counted: s.seq,
		pending: map[uint64]bool{}}
	c.lean = w.has(leanBodies) && w.chance(0.7)
	if w.sabotage == oldConsumerStays {
		for _, old := range s.consumers[p.Number] {
			maps.Copy(held, old.pending)
		}
		s.consumers[p.Number] = append(s.consumers[p.Number], c)
	} else {
		for _, old := range s.consumers[p.Number] {
			old.closed = true
			w.to(old.owner, w.latency(), func() {
				old.owner.core.Handle(Broken{old.part.Partition, old.epoch}, old.owner.clock())
			})
		}
		s.consumers[p.Number] = []*consumer{c}
	}
	for _, seq := range slices.Sorted(maps.Keys(s.messages)) {
		if m := s.messages[seq]; m.Partition == p.Number && !held[seq] {
			stored = append(stored, m)
		}
	}
	return c, stored
}

func (d *drainer) consumes(p handle.Partition) bool {
	return slices.ContainsFunc(d.w.streams[p.Policy].consumers[p.Number], func(c *consumer) bool {
		return c.owner == d && c.part.Partition == p && !c.closed
	})
}

func (d *drainer) closeConsumers(p handle.Partition) {
	w := d.w
	if _, shared := record.Shared(p.Policy); shared {
		return
	}
	for _, c := range w.streams[p.Policy].consumers[p.Number] {
		if c.owner == d && c.part.Partition == p {
			c.closed = true
		}
	}
	if s := d.core.shares.of(p); s != nil && !s.part.Owned() && !s.part.Lost() {
		for s := range w.stints() {
			if s.Part == p && s.d == d {
				s.fate.handed, s.fate.heard = true, w.now
			}
		}
	}
}
