package core

import (
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// Performer carries out the core's actions.
type Performer interface {
	Close(p handle.Partition)
	Open(o Opening)
	Start(r valve.Run)
	Refuse(worker string)
	Offer(policy string)
	Ack(r handle.Ref)
	Write(p Put)
	Read(p Put)
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

// Perform passes all actions to p in the order of their beginnings: closings before openings,
// starts before actions that can wait.
func (c *Core) Perform(p Performer) {
	out := c.out
	c.out, *c.spare = *c.spare, actions{}
	each(out.closes, p.Close)
	each(out.opens, p.Open)
	each(out.Starts, p.Start)
	each(out.Refusals, p.Refuse)
	each(out.Offers, p.Offer)
	each(out.Acks, p.Ack)
	each(out.puts, p.Write)
	each(out.reads, p.Read)
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
	*c.spare = out
}

func each[A any](actions []A, perform func(A)) {
	for _, a := range actions {
		perform(a)
	}
}

type actions struct {
	valve.Actions
	puts      []Put // compare-and-set a record
	reads     []Put // read a record from its leader after such a write
	deletes   []Put
	opens     []Opening
	closes    []handle.Partition
	takeovers []handle.Partition // from crashed owners
	lost      int
}

func (a *actions) reset() {
	a.Actions.Reset()
	*a = actions{Actions: a.Actions}
}

type Table uint8

const (
	TableDrainers Table = iota
	TablePartitions
)

// Put writes a record by compare-and-set; revision 0: the record must not exist.
type Put struct {
	Table    Table
	Key      string
	value    []byte
	Revision uint64
	sent     pace.Instant
	Why      reason
	// Unreadable bytes to save elsewhere first.
	Aside []byte

	// For a checkpoint, in place of value: encoding takes long.
	compose   func() []byte
	gathering *valve.Gathering
}

func (p *Put) Bytes() []byte {
	if p.compose != nil {
		return p.compose()
	}
	return p.value
}

type reason uint8

const (
	WhyRenew reason = iota
	whyTombstone
	whyTake
	whyRelease
	whyCheckpoint
)

// Opening requests a backlog, and with Inherit the predecessor's state.
type Opening struct {
	Part    handle.Partition
	Epoch   uint64
	Inherit bool
}
