// Package core is everything that a drainer decides: its lease, which partitions it owns, and when
// their jobs start. It is told what happened and when (a job arrived, a run ended, a record
// changed, time passed), and answers with what is to be done; it does no I/O and reads no clock, so
// that the simulation beside it runs years of traffic, crashes and takeovers in virtual time.
//
//   - lease.go, ownership.go: who is alive, and who owns which partition; distribute.go: who should
//     own it; takeover.go: what is known of one that is taken over; checkpoint.go: when an owner
//     notes how it stands;
//   - policies.go: which policies have a valve (package valve), which decides when their jobs
//     start; jobs.go, workers.go, asked.go: what their valves hear of jobs, of workers, and of
//     those who ask;
//   - shared.go: limits that several policies share, and what hangs together by them;
//   - core.go: these together; events.go: what they are told; actions.go: what they want done.
package core

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// Core is everything that a drainer decides: its lease, which partitions it owns, and the valves of
// their policies. It is pure, like the valve: events go in, actions come out. The drainer is the
// loop around it; the simulation is another.
type Core struct {
	options    Options
	Lease      lease
	identities int
	nonces     uint64
	peers      map[string]*peer
	shares     map[string]*share
	// ownership records by key, also of policies that are not known yet
	owners map[string]Record
	order  []*share // the shares by key, nil when it must be made again
	valves map[string]*livePolicy
	memory *valve.Memory
	// by policy, also of those that are not known yet
	overrides map[string]map[job.Key]policy.Override
	known     map[string]bool // the policies that exist
	// which hang together by limits that they share, and with these: by the first one's name
	lines     map[string]string
	sorted    []*livePolicy // the valves, by name
	awake     []*livePolicy // those of them that a turn looks at, by name
	out       actions
	spare     actions // empty lists, for their memory
	questions valve.Questions

	server    serverClock
	synced    bool // the records' first state was received
	Connected bool
	Leaving   bool
	wasOpen   bool         // starts were allowed when last looked at
	acted     pace.Instant // when that was so last
	changed   bool         // the favourites must be computed again
	favourite map[*share]string
	steadyAt  pace.Instant
	TickAt    pace.Instant
	most      int // bytes of a record
	// runs of handed-over partitions whose outcome is not delivered, by share
	unsettled map[string]int
	tenures   uint64 // of partitions and valves, so far
}

type Options struct {
	Name   string        // of this process, unique
	Lease  time.Duration // its duration
	Host   string
	Pid    int
	Random func() float64
	Memory int64 // bytes that waiting jobs may take, about; 0: as many as they take
	gather int   // mostGathered, when it is not 0
	// OwnersMade is when the table of ownership records was made: anew, if policies are older.
	OwnersMade time.Time

	// For people who look at leases.

	Version string
	Started time.Time
	Crews   func() map[string]record.Crew // nil: not told
}

// tick is how often leases and ownership are looked at when nothing happens.
const tick = 100 * time.Millisecond

func New(o Options) *Core {
	c := &Core{
		options: o, most: record.MostBytes, peers: map[string]*peer{}, shares: map[string]*share{},
		owners: map[string]Record{},
		valves: map[string]*livePolicy{}, overrides: map[string]map[job.Key]policy.Override{},
		unsettled: map[string]int{}, memory: valve.NewMemory(o.Memory),
	}
	c.questions.Wall = c.Wall
	c.identify()
	return c
}

// part returns the partition that has the name; nil: this core does not own it any more.
func (c *Core) part(name handle.Partition) *partition {
	if s := c.share(name); s != nil && s.part.Owned() {
		return s.part
	}
	return nil
}

// share returns the share whose partition has the name, also while it is being released.
func (c *Core) share(name handle.Partition) *share {
	s := c.shares[record.ShareKey(name.Policy, name.Number)]
	if s == nil || s.part == nil || s.part.Partition != name {
		return nil
	}
	return s
}

// valve returns the valve of a policy, nil if there is none, for something that happens to it: the
// next turn looks at it.
func (c *Core) valve(name string) *livePolicy {
	v := c.valves[name]
	if v != nil {
		c.rouse(v)
	}
	return v
}

// rouse has every turn look at a valve, until nothing can come of that any more: ten thousand
// policies without jobs cost a turn nothing.
func (c *Core) rouse(v *livePolicy) {
	if v.awake {
		return
	}
	v.awake = true
	v.Rested(c.acted)
	i, _ := slices.BinarySearchFunc(c.awake, v, func(a, b *livePolicy) int {
		return cmp.Compare(a.Policy.Name, b.Policy.Name)
	})
	c.awake = slices.Insert(c.awake, i, v)
}

// rouseAll has the next turn look at all of them.
func (c *Core) rouseAll() {
	for _, v := range c.sorted {
		v.awake = true
		v.Rested(c.acted)
	}
	c.awake = append(c.awake[:0], c.sorted...)
}

// rest leaves out of the next turns valves of which nothing will come by itself. To limits that
// policies share something happens whenever one of these starts a job.
func (c *Core) rest() {
	c.awake = slices.DeleteFunc(c.awake, func(v *livePolicy) bool {
		v.awake = v.shared || !v.Idle() || slices.ContainsFunc(v.shares, func(s *share) bool {
			return s.part != nil && s.part.checkpointDue() != pace.Never
		})
		return !v.awake
	})
}

func (c *Core) nonce() uint64 {
	c.nonces++
	return c.nonces
}

// Open reports whether jobs may start at now: while the lease lasts, and while there is a
// connection, because a job that ends without one cannot be acknowledged and would run again if
// another takes over before it is back.
func (c *Core) Open(now pace.Instant) bool { return now < c.Fence() }

// Ready reports whether this process takes part: it knows what others say, and may start jobs.
func (c *Core) Ready(now pace.Instant) bool { return c.synced && c.Open(now) }

// Fence is the instant before which jobs may start.
//
// It is one instant, so that a worker can compare it with a clock that it has read itself: to ask
// whether starts are allowed, and to start then, would leave a moment in between (law 2).
func (c *Core) Fence() pace.Instant {
	if !c.Lease.Held || !c.Connected || !c.server.known {
		return 0
	}
	return c.Lease.Fence
}

// sortedShares are the shares in the one order in which everything goes through them, or a seed of
// the simulation would not go the same way twice.
func (c *Core) sortedShares() []*share {
	if c.order == nil {
		c.order = slices.SortedFunc(maps.Values(c.shares), func(a, b *share) int {
			return cmp.Or(cmp.Compare(a.policy, b.policy), cmp.Compare(a.number, b.number))
		})
	}
	return c.order
}

// What was delivered, or said by others, while there was no connection is not known: the wait for
// their leases and the opening of backlogs begin again.
//
// While there is none the fence is down: a job that ends then cannot be acknowledged, and would run
// again elsewhere.
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
		if s.part != nil {
			s.part.broken = true
		}
	}
	c.TickAt = now
}

func (Synced) apply(c *Core, now pace.Instant) {
	c.synced = true
	c.TickAt = now
}

func (e Written) apply(c *Core, now pace.Instant) {
	switch e.Put.Why {
	case WhyRenew:
		c.renewed(e.Put, e.Result, e.Revision, now)
	case whyTombstone:
		c.entombed(e.Put, e.Result, e.Revision, now)
	case whyTake, whyRelease:
		c.owned(e.Put, e.Result, e.Revision, now)
	case whyCheckpoint:
		c.checkpointed(e.Put, e.Result, e.Revision, now)
	}
	c.TickAt = now
}

// Record is what a read or a watch found.
type Record struct {
	Exists   bool
	Value    []byte
	Revision uint64
	Stored   time.Time
	// when its watch told of it while this process looked on; 0: it may be older
	seen pace.Instant
}

// vanished reports whether there is nothing, not even the marker of a deletion: somebody deleted
// the table, and the next process to start made it again. Its revisions go on above all former
// ones. The owner of a lost record writes it again, within its fence and under its own name. Others
// leave the partition alone for a lease, and what the record said last still stands; so does a
// process that begins then and finds no record, if the policy is older than the table.
func (r Record) vanished() bool { return !r.Exists && r.Stored.IsZero() }

func (e Found) apply(c *Core, now pace.Instant) {
	switch p, found := e.Put, e.Record; p.Why {
	case WhyRenew:
		c.leaseRead(p, found, now)
	case whyTombstone:
		c.entombedRead(p, found, now)
	case whyTake, whyRelease:
		c.ownerRead(p, found, now)
	case whyCheckpoint:
		if s := c.checkpointShare(p); s != nil {
			c.valve(s.policy)
			s.part.checkpointed.revision = found.Revision
			s.part.checkpointed.pending = false
			s.part.Changed = true
		}
	}
	c.TickAt = now
}

// A record of a policy that is not known yet is kept: watches of policies and of records tell in
// any order. What a watch delivers at first may be old, so only later records have been seen to
// come.
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
		c.TickAt = now
	}
}

// A process that is to end hands everything over.
func (Stopped) apply(c *Core, now pace.Instant) {
	if !c.Leaving {
		c.Leaving, c.changed = true, true
		c.TickAt, c.Lease.renewAt = now, now
	}
}

// Left reports whether nothing is owned, running or to be told any more.
//
// To be gone before outcomes are told would let the jobs run again at the next owner (law 3).
func (c *Core) Left() bool {
	for _, s := range c.shares {
		if s.state != shareIdle {
			return false
		}
	}
	return c.Running() == 0 && len(c.unsettled) == 0
}

// Decide does everything that is due at now but checkpoints.
//
// The lease comes first, for all else depends on it; then what is owned; then what starts. A valve
// that may start again after a lapse is told before it does, as its clocks must not make up for
// that.
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

// Checkpoint works on the checkpoints that are due. That takes longer than a start may be under
// way, so what decide has started goes to its workers first.
//
// Without the lease nothing is noted: a successor may have written its own.
func (c *Core) Checkpoint(now pace.Instant) {
	if !c.wasOpen {
		return
	}
	left := cmp.Or(c.options.gather, mostGathered)
	for _, v := range c.awake {
		for _, s := range v.shares {
			if p := s.part; left > 0 && p != nil && now >= p.checkpointDue() {
				left = c.note(v, p, left, now)
			}
		}
	}
}

// Wake is when advance must be called next, and ponder, if nothing happens before.
//
// It may be too early, which costs a turn of the loop, and never too late.
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
