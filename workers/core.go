package workers

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// core is everything that a drainer decides: its lease, which partitions it owns, and the valves of their policies. It is
// pure, like the valve: events go in, actions come out. The drainer is the loop around it; the simulation is another.
type core struct {
	options    coreOptions
	lease      lease
	identities int
	nonces     uint64
	peers      map[string]*peer
	shares     map[string]*share
	owners     map[string]record // ownership records by key, also of policies that are not known yet
	order      []*share          // the shares by key, nil when it must be made again
	valves     map[string]*valve
	overrides  map[string]map[queue.Key]policy.Override // by policy, also of those that are not known yet
	known      map[string]bool                          // the policies that exist
	sorted     []*valve                                 // the same, by name
	out        actions

	server    serverClock
	synced    bool // the records' first state was received
	connected bool
	leaving   bool
	wasOpen   bool // starts were allowed when last looked at
	changed   bool // the favourites must be computed again
	favourite map[*share]string
	settledAt instant
	tickAt    instant
	most      int            // bytes of a record
	unsettled map[string]int // runs of handed-over partitions whose outcome is not delivered, by share
}

type coreOptions struct {
	name   string        // of this process, unique
	lease  time.Duration // its duration
	host   string
	pid    int
	random func() float64
	gather int // mostGathered, when it is not 0
	// ownersMade is when the table of ownership records was made: anew, if policies are older.
	ownersMade time.Time

	// For people who look at leases.

	version string
	started time.Time
	crews   func() map[string]crewRecord // nil: not told
}

// tick is how often leases and ownership are looked at when nothing happens.
const tick = 100 * time.Millisecond

func newCore(o coreOptions) *core {
	c := &core{
		options: o, most: mostRecordBytes, peers: map[string]*peer{}, shares: map[string]*share{}, owners: map[string]record{},
		valves: map[string]*valve{}, overrides: map[string]map[queue.Key]policy.Override{}, unsettled: map[string]int{},
	}
	c.identify()
	return c
}

func (c *core) nonce() uint64 {
	c.nonces++
	return c.nonces
}

// open reports whether jobs may start at now: while the lease lasts, and while there is a connection, because a job that
// ends without one cannot be acknowledged and would run again if another takes over before it is back.
func (c *core) open(now instant) bool { return now < c.fence() }

// fence is the instant before which jobs may start.
func (c *core) fence() instant {
	if !c.lease.held || !c.connected || !c.server.known {
		return 0
	}
	return c.lease.fence
}

func (c *core) sortedShares() []*share {
	if c.order == nil {
		c.order = slices.SortedFunc(maps.Values(c.shares), func(a, b *share) int {
			return cmp.Or(cmp.Compare(a.policy, b.policy), cmp.Compare(a.number, b.number))
		})
	}
	return c.order
}

// next is whose turn it is now or soon.
func (c *core) next(name string) nextTurn {
	if v := c.valves[name]; v != nil {
		return v.next()
	}
	return nextTurn{}
}

// refused takes that a worker elsewhere has room, but not for a bucket.
func (c *core) refused(name string, key queue.Key) {
	if v := c.valves[name]; v != nil {
		v.claims.refused(key)
	}
}

// offered takes the end of an offer to workers elsewhere; a claim was passed to claimed before.
func (c *core) offered(name string, result offerResult, now instant) {
	if v := c.valves[name]; v != nil {
		v.offered(result, now)
	}
}

// claimed takes the claim of a worker elsewhere, which advance gives the job whose turn it is, or refuses.
func (c *core) claimed(name string, worker claimed) {
	if v := c.valves[name]; v != nil {
		v.claims.held = append(v.claims.held, worker)
	} else {
		c.out.refusals = append(c.out.refusals, worker.worker)
	}
}

// lend takes a local worker for another drainer's valve, and unlend gives it back.
func (c *core) lend(name string) bool {
	v := c.valves[name]
	return v != nil && !c.leaving && v.lend()
}

func (c *core) unlend(name string) {
	if v := c.valves[name]; v != nil {
		v.lent--
	}
}

// connection tells that the connection to NATS was lost or is back. What was delivered, or said by others, in between is
// not known: the wait for their leases begins anew and backlogs are opened anew.
func (c *core) connection(up bool, now instant) {
	c.connected = up
	if !up {
		return
	}
	for _, p := range c.peers {
		p.seen = now
	}
	for _, s := range c.shares {
		if s.part != nil {
			s.part.broken = true
		}
	}
	c.tickAt = now
}

// put takes the answer to a write of a record.
func (c *core) put(p put, result putResult, revision uint64, now instant) {
	switch p.why {
	case whyRenew:
		c.renewed(p, result, revision, now)
	case whyTombstone:
		c.entombed(p, result, revision, now)
	case whyClaim, whyRelease:
		c.owned(p, result, revision, now)
	case whyCheckpoint:
		c.checkpointed(p, result, revision, now)
	}
	c.tickAt = now
}

// record is what a read or a watch found.
type record struct {
	exists   bool
	value    []byte
	revision uint64
	stored   time.Time
	seen     instant // when its watch told of it while this process looked on; 0: it may be older
}

// vanished reports whether there is nothing, not even the marker of a deletion: the table was made anew.
func (r record) vanished() bool { return !r.exists && r.stored.IsZero() }

// read takes the answer to a read.
func (c *core) read(p put, found record, now instant) {
	switch p.why {
	case whyRenew:
		c.leaseRead(p, found, now)
	case whyTombstone:
		c.entombedRead(p, found, now)
	case whyClaim, whyRelease:
		c.ownerRead(p, found, now)
	case whyCheckpoint:
		if s := c.checkpointShare(p); s != nil {
			s.part.checkpointed.revision = found.revision
			s.part.checkpointed.pending = false
			s.part.checkpointed.changed = true
		}
	}
	c.tickAt = now
}

// watched takes a record that a watch delivered.
func (c *core) watched(t table, key string, found record, now instant) {
	if c.synced {
		found.seen = now
	}
	if t == tableDrainers {
		c.leaseSeen(key, found, now)
	} else {
		if c.owners[key] = found; found.vanished() {
			delete(c.owners, key)
		}
		if s := c.shares[key]; s != nil {
			c.ownerSeen(s, found, now)
		}
	}
	c.tickAt = now
}

// broke is told that a backlog lost its way.
func (c *core) broke(p *partition, epoch uint64, now instant) {
	if p.epoch == epoch && p.state <= partitionLive {
		p.broken = true
		c.tickAt = now
	}
}

// arrived takes delivered jobs.
func (c *core) arrived(p *partition, epoch uint64, jobs []queue.Arrived, now instant) {
	v := c.valves[p.policy]
	if p.epoch != epoch || p.state > partitionLive || v == nil {
		return
	}
	wall := c.wall(now)
	for i := range jobs {
		v.arrive(p, &jobs[i], now, wall)
	}
}

// swept tells that everything has arrived that was stored when a backlog was opened.
func (c *core) swept(p *partition, epoch uint64, now instant) {
	if v := c.valves[p.policy]; v != nil && p.epoch == epoch && p.state <= partitionLive {
		v.swept(p, now)
	}
}

// strayed takes jobs that lie outside the partitions, which come in no order with others.
func (c *core) strayed(p *partition, epoch uint64, jobs []queue.Arrived, now instant) {
	if v := c.valves[p.policy]; v != nil && p.epoch == epoch && p.state <= partitionLive {
		highest, wall := p.highest, c.wall(now) // the highest of what came in order
		for i := range jobs {
			v.arrive(p, &jobs[i], now, wall)
		}
		p.highest = highest
	}
}

// confirmed takes confirmed acknowledgements.
func (c *core) confirmed(p *partition, seqs []uint64, now instant) {
	if v := c.valves[p.policy]; v != nil && p.state <= partitionLive {
		for _, seq := range seqs {
			v.confirmed(p, seq, now)
		}
	}
}

// finished takes the outcome of a run.
func (c *core) finished(r run, o outcome, now instant) {
	v := c.valves[r.part.policy]
	switch {
	case v == nil:
	case r.remote:
		v.claims.running--
	default:
		v.busy--
	}
	switch r.part.state {
	case partitionOpening, partitionLive:
		r.part.checkpointed.changed = true
		if o.Kind == outcomeReturned && !r.turn.passed {
			r.turn.own.refund(&r.bucket.clock)
			r.turn.total.refund(&v.totalClock)
		}
		v.settle(r.job, o, now)
	case partitionSurrendered:
		if r.stage == stageGone {
			return // with its stream: the successor has other jobs under these sequences
		}
		if o.Kind == outcomeFailed {
			o.Attempts = r.attempt
		}
		o.Holder, o.Stream = r.part.holder, r.part.stream()
		c.out.reports = append(c.out.reports, report{r.part.policy, r.part.number, o})
	}
}

// matters reports whether there may be somebody to take a report: not once the policy or its stream is gone.
func (c *core) matters(r report) bool {
	s := c.shares[shareKey(r.policy, r.partition)]
	return c.known[r.policy] && s != nil && !s.over
}

// delivered tells that a report reached the partition's new owner.
func (c *core) delivered(r report) {
	key := shareKey(r.policy, r.partition)
	if c.unsettled[key]--; c.unsettled[key] <= 0 {
		delete(c.unsettled, key)
	}
}

// reported takes the outcome of a job that another process ran when it handed the partition over. False: the partition is
// not ours, or may be another's by now, as when this process was frozen.
func (c *core) reported(policy string, number int, o outcome, now instant) bool {
	s := c.shares[shareKey(policy, number)]
	if !c.open(now) || s == nil || s.part == nil || s.part.state > partitionLive || s.part.fresh {
		return false
	}
	c.valves[policy].reported(s.part, o, now)
	return true
}

// leave begins to hand everything over.
func (c *core) leave(now instant) {
	if !c.leaving {
		c.leaving, c.changed = true, true
		c.tickAt, c.lease.renewAt = now, now
	}
}

// left reports whether nothing is owned, running or to be told any more.
func (c *core) left() bool {
	for _, s := range c.shares {
		if s.state != shareIdle {
			return false
		}
	}
	for _, v := range c.valves {
		if v.busy+v.lent+v.claims.running > 0 {
			return false
		}
	}
	return len(c.unsettled) == 0
}

// advance does everything that is due at now.
func (c *core) advance(now instant) {
	c.decide(now)
	c.checkpoint(now)
}

// decide does everything that is due at now but checkpoints.
func (c *core) decide(now instant) {
	if !c.lease.inFlight && now >= c.lease.renewAt {
		c.renew(now)
	}
	if now >= c.tickAt {
		c.tickAt = now.add(tick)
		if c.synced && c.open(now) {
			c.buryPeers(now)
			c.distribute(now)
		}
	}
	open := c.open(now)
	if open && !c.wasOpen {
		for _, v := range c.sorted {
			v.resume(now)
		}
	}
	c.wasOpen = open
	for _, v := range c.sorted {
		started, lent := len(c.out.starts), len(c.out.lent)
		v.advance(now, open)
		for _, r := range c.out.starts[started:] {
			r.part.checkpointed.changed = true
		}
		for _, l := range c.out.lent[lent:] {
			l.run.part.checkpointed.changed = true
		}
	}
}

// checkpoint works on the checkpoints that are due. That takes longer than a start may be under way, so what decide has
// started goes to its workers first.
func (c *core) checkpoint(now instant) {
	if !c.wasOpen {
		return
	}
	left := cmp.Or(c.options.gather, mostGathered)
	for _, s := range c.sortedShares() {
		if p := s.part; left > 0 && p != nil && now >= p.checkpointDue() {
			left = c.note(c.valves[s.policy], p, left, now)
		}
	}
}

// wake is when advance must be called next, if nothing happens before.
func (c *core) wake(now instant) instant {
	at := c.tickAt
	if !c.lease.inFlight {
		at = min(at, c.lease.renewAt)
	}
	for _, v := range c.sorted {
		at = min(at, v.wake(c.wasOpen))
		if c.wasOpen {
			for _, p := range v.parts {
				at = min(at, p.checkpointDue())
			}
		}
	}
	return at
}
