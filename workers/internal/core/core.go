// Package core makes all decisions of a drainer: its lease, the partitions it owns, and when
// their jobs start. The caller reports events with their times (an arrival, the end of a run, a
// changed record), and the core answers with actions. It does no I/O and reads no clock, so the
// simulation in this package runs years of traffic, crashes and takeovers in virtual time.
//
//   - lease.go, ownership.go: live drainers, and owners of partitions; distribute.go: preferred
//     owners; takeover.go: state of a partition that is taken over; checkpoint.go: periodic records
//     of an owner's state;
//   - policies.go: policies with a valve (package valve), which decides when their jobs start;
//     jobs.go, workers.go, asked.go: events for the valves about jobs, workers and questions;
//   - shared.go: limits that several policies share, and the lines they form;
//   - core.go: all of it together; events.go: its input; actions.go: its output.
package core

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/crew"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

type Core struct {
	options    Options
	Lease      lease
	identities int
	nonces     uint64
	cluster
	valves    map[string]*livePolicy
	memory    *valve.Memory
	overrides map[string]map[job.Key]policy.Override
	policies  map[string]*QueuePolicy
	// by policy with shared limits; named after the line's first one
	lines     map[string]string
	slots     crew.Slots
	sorted    []*livePolicy
	awake     []*livePolicy // to be visited in each iteration, by name
	out       actions
	spare     actions
	questions valve.Questions

	server    serverClock
	synced    bool // the records' first state has arrived
	Connected bool
	// the ends of jobs could not be stored
	Unstorable bool
	Leaving    bool
	wasOpen    bool
	acted      pace.Instant // when starts were last allowed
	told       pace.Instant
	TickAt     pace.Instant
	most       int // bytes of a record
	tenures    uint64
}

type cluster struct {
	peers  map[string]*peer
	shares map[string]*share
	// records by key, also of unknown policies
	owners   map[string]Record
	order    []*share
	changed  bool // favourites must be recomputed
	calm     bool
	allAt    pace.Instant // next visit to all
	steadyAt pace.Instant
	// undelivered outcomes of handed-over partitions, by share
	unsettled map[string]int
}

// anew recomputes favourites and visits all shares, because drainers changed.
func (c *cluster) anew() { c.changed, c.allAt = true, 0 }

type Options struct {
	Name   string
	Lease  time.Duration
	Host   string
	Pid    int
	Random func() float64
	Memory int64 // bytes for waiting jobs, approximately; 0: unlimited
	Slots  int   // local jobs of all policies at once; 0: unlimited
	gather int   // overrides mostGathered if not 0
	// OwnersMade is when the table of ownership records was created: again, if policies are older.
	OwnersMade time.Time

	Version string
	Started time.Time
	Crews   func() map[string]record.Crew
}

// tick is the interval of checks of leases and ownership, allEvery of visits to all shares.
const tick, allEvery = 100 * time.Millisecond, 10 * time.Second

func New(o Options) *Core {
	c := &Core{
		options: o, most: record.MostBytes, memory: valve.NewMemory(o.Memory),
		slots: crew.Slots{Most: o.Slots},
		cluster: cluster{peers: map[string]*peer{}, shares: map[string]*share{},
			owners: map[string]Record{}, unsettled: map[string]int{}},
		valves: map[string]*livePolicy{}, overrides: map[string]map[job.Key]policy.Override{},
		policies: map[string]*QueuePolicy{},
	}
	c.identify()
	return c
}

// part returns an owned partition for an event, and marks its valve to be visited.
func (c *Core) part(name handle.Partition) *partition {
	if s := c.share(name); s != nil && s.part.Owned() {
		c.valve(name.Policy)
		return s.part
	}
	return nil
}

func (c *cluster) share(name handle.Partition) *share {
	s := c.shares[record.ShareKey(name.Policy, name.Number)]
	if s == nil || s.part == nil || s.part.Partition != name {
		return nil
	}
	return s
}

func (c *Core) valve(name string) *livePolicy {
	v := c.valves[name]
	if v != nil {
		c.rouse(v)
	}
	return v
}

func (c *Core) rouse(v *livePolicy) {
	if v.awake {
		return
	}
	v.awake, v.told = true, false
	v.Rested(c.acted)
	c.awake = inserted(c.awake, v, byPolicy)
}

func (c *Core) rouseAll() {
	for _, v := range c.sorted {
		v.awake, v.told = true, false
		v.Rested(c.acted)
	}
	c.awake = append(c.awake[:0], c.sorted...)
}

// rest drops idle valves from further iterations.
func (c *Core) rest() {
	c.awake = slices.DeleteFunc(c.awake, func(v *livePolicy) bool {
		v.awake = v.of.shared || !v.Idle() || slices.ContainsFunc(v.shares, func(s *share) bool {
			return s.part != nil && s.part.checkpointDue() != pace.Never
		})
		return !v.awake
	})
}

func (c *Core) nonce() uint64 {
	c.nonces++
	return c.nonces
}

// Open reports whether jobs may start.
func (c *Core) Open(now pace.Instant) bool { return now < c.Fence() }

// Ready reports whether the others' records are known, too.
func (c *Core) Ready(now pace.Instant) bool { return c.synced && c.Open(now) }

// Jobs may start before Fence, by the workers' own readings (law 2). Without a connection, or while
// nothing can be stored, no job may start, because its end could not be acknowledged.
func (c *Core) Fence() pace.Instant {
	if !c.Lease.Held || !c.Connected || c.Unstorable || !c.server.known {
		return 0
	}
	return c.Lease.Fence
}

// Sorted, because a seed must reproduce a run.

func byName(a, b *share) int {
	return cmp.Or(cmp.Compare(a.policy, b.policy), cmp.Compare(a.number, b.number))
}

func byPolicy(a, b *livePolicy) int { return cmp.Compare(a.Policy.Name, b.Policy.Name) }

func inserted[T any](in []T, x T, order func(a, b T) int) []T {
	i, _ := slices.BinarySearchFunc(in, x, order)
	return slices.Insert(in, i, x)
}

// Events were missed, so the wait for other leases and the opening of backlogs begin again, except
// of resting ones.
func (e Connected) apply(c *Core, now pace.Instant) {
	c.Connected = e.Up
	c.most = cmp.Or(e.Most, c.most)
	if !e.Up {
		return
	}
	for _, p := range c.peers {
		p.seen = now
	}
	for _, s := range c.shares {
		if s.part != nil && !e.Resting[s.part.Partition] {
			c.stir(s)
			s.part.broken = true
		}
	}
	c.TickAt = now
}

func (Synced) apply(c *Core, now pace.Instant) {
	c.synced = true
	c.TickAt = now
}

func (e Storing) apply(c *Core, now pace.Instant) {
	c.Unstorable = e.Fails
	c.TickAt = now
}

// After a conflict or an unknown result the record is read: the write may be applied.
func (e Written) apply(c *Core, now pace.Instant) {
	c.TickAt = now
	switch p := e.Put; {
	case p.Why == whyCheckpoint:
		c.checkpointed(p, e.Revision, now)
	case e.Revision == 0:
		c.out.reads = append(c.out.reads, p)
	case p.Why == WhyRenew:
		c.renewed(p, e.Revision, now)
	case p.Why == whyTombstone:
		c.leaseSeen(p.Key, Record{Exists: true, Value: p.value, Revision: e.Revision}, now)
	default:
		c.owned(p, e.Revision, now)
	}
}

type Record struct {
	Exists   bool
	Value    []byte
	Revision uint64
	Stored   time.Time
	// time of its live delivery by a watch; 0: perhaps older
	seen pace.Instant
}

// vanished reports whether the record and its deletion marker are missing, because the table was
// recreated. A lost record's owner writes it again, within its fence. The last contents remain in
// effect for a lease.
func (r Record) vanished() bool { return !r.Exists && r.Stored.IsZero() }

func (e Found) apply(c *Core, now pace.Instant) {
	switch p, found := e.Put, e.Record; p.Why {
	case WhyRenew:
		c.leaseRead(p, found, now)
	case whyTombstone:
		c.peer(p.Key, now).inFlight = false
		c.leaseSeen(p.Key, found, now)
	case whyTake, whyRelease:
		c.ownerRead(p, found, now)
	case whyCheckpoint:
		if s := c.checkpointShare(p); s != nil {
			c.valve(s.policy)
			s.part.checkpointed.revision = found.Revision
			s.part.checkpointed.pending = false
			s.part.Checkpoints.Changed = true
		}
	}
	c.TickAt = now
}

// Watches deliver in any order, so records of unknown policies are kept. A watch's first deliveries
// may be old; only later ones count as live.
func (e Watched) apply(c *Core, now pace.Instant) {
	key, found := e.Key, e.Record
	if c.synced {
		found.seen = now
	}
	if e.Table == TableDrainers {
		c.leaseSeen(key, found, now)
	} else {
		if c.owners[key] = found; found.vanished() {
			delete(c.owners, key)
		}
		if s := c.shares[key]; s != nil {
			c.ownerSeen(s, found, now)
		}
	}
	c.TickAt = now
}

func (e Broken) apply(c *Core, now pace.Instant) {
	if p := c.part(e.Part); p != nil && p.Epoch == e.Epoch {
		p.broken = true
		c.stir(c.share(e.Part))
		c.TickAt = now
	}
}

func (Stopped) apply(c *Core, now pace.Instant) {
	if !c.Leaving {
		c.Leaving = true
		c.anew()
		c.TickAt, c.Lease.renewAt = now, now
	}
}

// Left reports whether this process owns no partition, runs no job, and has no outcome to report
// (law 3).
func (c *Core) Left() bool {
	for _, s := range c.shares {
		if s.state != shareIdle {
			return false
		}
	}
	return c.Running() == 0 && len(c.unsettled) == 0
}

// Decide does all work due at now, except checkpoints. Valves are informed of a lapsed lease before
// they start jobs again.
func (c *Core) Decide(now pace.Instant) {
	if !c.Lease.inFlight && now >= c.Lease.renewAt {
		c.renew(now)
	}
	if now >= c.TickAt {
		c.TickAt = now.Add(tick)
		if c.synced && c.Open(now) {
			c.buryPeers(now)
			c.distribute(now)
		}
	}
	fence := c.Fence()
	open := now < fence
	if open != c.wasOpen {
		c.rouseAll()
	}
	if open && !c.wasOpen {
		for _, v := range c.sorted {
			v.Resume(now)
		}
	}
	c.wasOpen = open
	if open {
		c.acted = now
	}
	for _, v := range c.awake {
		if v.Leads() {
			v.Advance(now, fence)
		}
	}
	c.rest()
}

// Checkpoint works on due checkpoints. Without the lease a successor may have written one.
func (c *Core) Checkpoint(now pace.Instant) {
	if !c.wasOpen {
		return
	}
	left := cmp.Or(c.options.gather, mostGathered)
	for _, v := range c.awake {
		for _, s := range v.shares {
			if p := s.part; left > 0 && p != nil && now >= p.checkpointDue() {
				left = c.note(p, left, now)
			}
		}
	}
}

// Wake returns when Decide and Ponder must be called next without an event: perhaps early, never
// late.
func (c *Core) Wake(now pace.Instant) pace.Instant {
	at := min(c.TickAt, c.questions.Due())
	if !c.Lease.inFlight {
		at = min(at, c.Lease.renewAt)
	}
	for _, v := range c.awake {
		at = min(at, v.Wake(c.wasOpen))
		for _, s := range v.shares {
			if c.wasOpen && s.part != nil {
				at = min(at, s.part.checkpointDue())
			}
		}
	}
	return at
}
