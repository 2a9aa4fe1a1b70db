package core

import (
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// Performer carries out what the core wants done: the drainer, or a simulation. What one of them
// forgets does not compile.
type Performer interface {
	Close(p handle.Partition)
	Open(o Opening)
	Start(r valve.Run)
	StartElsewhere(r valve.Run, worker string)
	Refuse(worker string)
	Offer(policy string)
	Ack(r handle.Ref)
	Write(p Put)
	Read(p Put)
	WorkOn(a valve.Aside)
	Delete(p Put)
	Fetch(refs []handle.Ref)
	Save(s valve.Save)
	Bury(u valve.Burial)
	NoteDone(e valve.Ending)
	NoteEnd(e valve.Ending)
	Forget(f valve.Forgotten)
	Report(r record.Report)
	TellAccepted(j valve.Seen)
	TellCancelled(j valve.Seen)
	TellBreaker(t valve.Turned)
	TellAdapted(a valve.Adapted)
	TellTakeover(p handle.Partition)
	TellVanished(jobs int)
	TellLost()
}

// Perform hands p everything that is to be done, in the order in which it must begin: what is
// closed goes before what is opened, and starts before what can wait.
func (c *Core) Perform(p Performer) {
	out := c.out
	c.out, c.spare = c.spare, actions{}
	each(out.closes, p.Close)
	each(out.opens, p.Open)
	each(out.Starts, p.Start)
	for _, l := range out.Elsewhere {
		p.StartElsewhere(l.Run, l.Worker)
	}
	each(out.Refusals, p.Refuse)
	each(out.Offers, p.Offer)
	each(out.Acks, p.Ack)
	each(out.puts, p.Write)
	for _, r := range out.reads {
		p.Read(r.Put)
	}
	each(out.Asides, p.WorkOn)
	each(out.deletes, p.Delete)
	if len(out.Fetches) > 0 {
		p.Fetch(out.Fetches)
	}
	each(out.Saves, p.Save)
	each(out.Burials, p.Bury)
	each(out.Done, p.NoteDone)
	each(out.Endings, p.NoteEnd)
	each(out.Forgets, p.Forget)
	each(out.Reports, p.Report)
	each(out.Accepted, p.TellAccepted)
	each(out.Cancelled, p.TellCancelled)
	each(out.Breakers, p.TellBreaker)
	each(out.Adapted, p.TellAdapted)
	each(out.takeovers, p.TellTakeover)
	if out.Vanished > 0 {
		p.TellVanished(out.Vanished)
	}
	if out.lost > 0 {
		p.TellLost()
	}
	out.reset()
	c.spare = out
}

func each[A any](actions []A, perform func(A)) {
	for _, a := range actions {
		perform(a)
	}
}

// actions is what is to be done, until [Core.Perform] hands it to whoever does it.
type actions struct {
	valve.Actions           // what valves want
	puts          []Put     // compare-and-set a record
	reads         []read    // read a record from its leader
	deletes       []Put     // delete a record
	opens         []Opening // open a backlog
	closes        []handle.Partition
	takeovers     []handle.Partition // of owners that crashed
	lost          int                // times that this process was declared dead
}

// reset empties the lists and keeps the memory of those that are long.
func (a *actions) reset() {
	a.Actions.Reset()
	*a = actions{Actions: a.Actions}
}

// Table names one of the buckets of records.
type Table uint8

const (
	TableDrainers Table = iota
	TablePartitions
)

// Put is a write of a record if its revision is still the given one; 0: if there is none. The
// answer goes to core.put, with the same put.
type Put struct {
	Table    Table
	Key      string
	value    []byte
	Revision uint64
	nonce    uint64
	sent     pace.Instant
	Why      reason
	// Bytes that cannot be read and that this write replaces: they must be kept elsewhere before.
	Aside []byte

	// Of a checkpoint, in place of value: it takes a while, and whoever writes it calls it.
	compose   func() []byte
	gathering *valve.Gathering // that it is composed of
}

// Bytes is the value.
func (p *Put) Bytes() []byte {
	if p.compose != nil {
		return p.compose()
	}
	return p.value
}

// reason tells what a write or a read of a record is for.
type reason uint8

const (
	WhyRenew reason = iota
	whyTombstone
	whyTake
	whyRelease
	whyCheckpoint
)

// read asks for a record because the result of a write is unknown or a conflict was met.
type read struct{ Put }

// putResult is how a write ended.
type putResult uint8

const (
	PutOK putResult = iota
	PutConflict
	PutUnknown // it may have been applied, or may yet be
)

// Opening asks for a partition's backlog by its epoch, and for what the predecessor left when
// inherit is set.
type Opening struct {
	Part    handle.Partition
	Epoch   uint64
	Inherit bool
}
