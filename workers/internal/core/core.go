// Package core makes all decisions of a drainer: its lease, the partitions it owns, and when
// their jobs start. The caller reports events with their times (an arrival, the end of a run, a
// changed record), and the core answers with actions. It does no I/O and reads no clock, so the
// simulation in this package runs years of traffic, crashes and takeovers in virtual time.
//
//   - known.go: records that others write, too; serverclock.go: JetStream's clock; lease.go: this
//     process's lease; peers.go: those of other drainers;
//   - shares.go, step.go: the partitions, and what to do about one; ownership.go: the records of
//     its owners; distribute.go: preferred owners; takeover.go: state of a partition that is taken
//     over; checkpoint.go: periodic records of an owner's state;
//   - roster.go: the valves (package valve), which decide when a policy's jobs start; policies.go:
//     the policies; jobs.go, workers.go, asked.go: events for the valves about jobs, workers and
//     questions;
//   - shared.go: limits that several policies share, and the lines they form;
//   - core.go: all of it together; events.go: its input; actions.go: its output.
package core

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/crew"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

type Core struct {
	options   *Options
	Lease     *lease
	peers     *peers
	server    *serverClock // JetStream's
	shares    *shares
	valves    *roster
	policies  map[string]*QueuePolicy
	lines     lines
	overrides map[string]map[queue.Key]inforce.Override
	// records of owners by key, also of unknown policies
	owners    map[string]Record
	memory    *valve.Memory
	slots     crew.Slots
	workers   map[string]*crew.Workers // by policy
	questions valve.Questions
	out       actions
	spare     *actions

	synced    bool // the records' first state has arrived
	Connected bool
	// the ends of jobs could not be stored
	Unstorable bool
	Leaving    bool
	wasOpen    bool
	TickAt     pace.Instant
	most       int // bytes of a record
	tenures    uint64
}

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
	first := lease{name: o.Name, duration: o.Lease}
	return &Core{
		options: &o, Lease: first.next(), server: &serverClock{},
		peers:  &peers{all: map[string]*peer{}, lease: o.Lease},
		shares: &shares{all: map[string]*share{}, changed: true},
		valves: &roster{all: map[string]*livePolicy{}}, policies: map[string]*QueuePolicy{},
		overrides: map[string]map[queue.Key]inforce.Override{}, owners: map[string]Record{},
		memory: valve.NewMemory(o.Memory), slots: crew.Slots{Most: o.Slots},
		workers: map[string]*crew.Workers{},
		spare:   &actions{}, most: record.MostBytes,
	}
}

// part returns an owned partition for an event, and marks its valve to be visited.
func (c *Core) part(name handle.Partition) *partition {
	if s := c.shares.of(name); s != nil && s.part.Owned() {
		c.valves.visit(name.Policy)
		return s.part
	}
	return nil
}

// backlog returns the share of an owned partition for an event of its backlog: of this epoch, not
// of an earlier one.
func (c *Core) backlog(name handle.Partition, epoch uint64) *share {
	s := c.shares.of(name)
	if s == nil || !s.part.Owned() || s.part.Epoch != epoch {
		return nil
	}
	c.valves.visit(name.Policy)
	return s
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
	c.peers.anew(now)
	for _, s := range c.shares.order {
		if s.part != nil && !e.Resting[s.part.Partition] {
			c.shares.stir(s)
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
	switch {
	case e.Put.Why == whyCheckpoint:
		c.checkpointed(e.Put, e.Revision, now)
	case e.Revision == 0:
		c.out.reads = append(c.out.reads, e.Put)
	default:
		Found{e.Put, e.Put.stored(e.Revision, now)}.apply(c, now)
	}
	c.TickAt = now
}

func (e Found) apply(c *Core, now pace.Instant) {
	switch p, found := e.Put, e.Record; p.Why {
	case WhyRenew:
		c.leaseAnswered(p, found, now)
	case whyTombstone:
		c.peers.of(p.Key, now).inFlight = false
		c.leaseSeen(p.Key, found, now)
	case whyTake, whyRelease:
		c.ownerAnswered(p, found, now)
	case whyCheckpoint:
		if s := c.shares.of(p.gathering.Of.Partition); s != nil {
			c.valves.visit(s.policy)
			s.part.Checkpoints.Replace(found.Revision)
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
		if s := c.shares.all[key]; s != nil {
			c.ownerSeen(s, found, now)
		}
	}
	c.TickAt = now
}

func (e Broken) apply(c *Core, now pace.Instant) {
	if s := c.backlog(e.Part, e.Epoch); s != nil {
		s.part.broken = true
		c.shares.stir(s)
		c.TickAt = now
	}
}

func (Stopped) apply(c *Core, now pace.Instant) {
	if !c.Leaving {
		c.Leaving = true
		c.shares.anew()
		c.TickAt, c.Lease.renewAt = now, now
	}
}

// Left reports whether this process owns no partition, runs no job, and has no outcome to report
// (law 3).
func (c *Core) Left() bool { return c.Running() == 0 && c.shares.left() }

// Decide does all work due at now, except checkpoints. Valves are informed of a lapsed lease before
// they start jobs again.
func (c *Core) Decide(now pace.Instant) {
	if now >= c.Lease.due() {
		c.renew(now)
	}
	if now >= c.TickAt {
		c.TickAt = now.Add(tick)
		if c.Ready(now) {
			c.peers.expire(c.shares.names, &c.out, now)
			c.distribute(now)
		}
	}
	fence := c.Fence()
	open := now < fence
	if open != c.wasOpen {
		c.valves.rouseAll()
	}
	if open && !c.wasOpen {
		for _, v := range c.valves.sorted {
			v.Resume(now)
		}
	}
	c.wasOpen = open
	if open {
		c.valves.acted = now
	}
	for _, v := range c.valves.awake {
		if v.Leads() {
			v.Advance(now, fence)
		}
	}
	c.valves.rest()
}

// Wake returns when Decide and Ponder must be called next without an event: perhaps early, never
// late.
func (c *Core) Wake(now pace.Instant) pace.Instant {
	at := min(c.TickAt, c.questions.Due(), c.Lease.due())
	for _, v := range c.valves.awake {
		if at = min(at, v.Wake(c.wasOpen)); c.wasOpen {
			at = min(at, v.checkpointDue())
		}
	}
	return at
}
