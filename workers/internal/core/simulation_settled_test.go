package core

import (
	"fmt"
	"maps"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// A settlement that its caller repeats, to the same owner or a later one, charges nothing again, if
// an owner applied it before the last record that came into this one's hands.

// ids are those of calls whose settlement an owner has applied.
type ids map[string]bool

type tenure struct {
	of *drainer
	handle.Partition
}

type storedIDs struct {
	revision uint64
	ids      ids
}

// toStore returns the settlements that a record must tell. A record without an owner's own state
// repeats what the one before it told.
func (w *world) toStore(d *drainer, p Put) (own ids, repeats bool) {
	key := p.Key
	if p.Why == whyCheckpoint {
		key = key[:len(key)-len(record.CheckpointSuffix)]
	}
	s := d.core.shares.all[key]
	if s == nil || s.part == nil || s.part.fresh {
		return nil, true
	}
	return maps.Clone(w.settledAt[tenure{d, s.part.Partition}]), false
}

func (w *world) stores(p Put, own ids, repeats bool, revision uint64) {
	if before := w.settledIn[p.Key]; repeats && before.revision == p.Revision {
		own = before.ids
	}
	w.settledIn[p.Key] = storedIDs{revision, own}
}

func (w *world) inherits(d *drainer, found *Opened) {
	if w.has(damages) || w.has(tightRecords) {
		return
	}
	p, told := found.Part, ids{}
	for key, revision := range map[string]uint64{
		record.ShareKey(p.Policy, p.Number):      found.Epoch,
		record.CheckpointKey(p.Policy, p.Number): found.Revision,
	} {
		if in := w.settledIn[key]; in.revision == revision {
			maps.Copy(told, in.ids)
		}
	}
	w.settledAt[tenure{d, p}] = told
}

// heard handles a settlement at an owner, and checks that a repeated one changes no balance. While
// its partition is being opened, an owner applies none.
func (w *world) heard(d *drainer, part *partition, c *caller, q job.Claim, handle func()) {
	at := tenure{d, part.Partition}
	left := func() string {
		b := d.ask(part, job.Question{Op: job.OpBucket, Key: q.Key}).Bucket
		return fmt.Sprint(b.Limits, b.CallsRunning)
	}
	if q.Op != job.OpSettle || q.Status == job.SettledReturned || part.fresh {
		handle()
		return
	}
	known, before := w.settledAt[at][q.ID], ""
	if known {
		before = left()
	}
	handle()
	switch {
	case known:
		w.repeats++
		if now := left(); now != before {
			w.fail("settlement of %s repeated to %s: the balances were %s, and are %s", q.ID,
				shareOf(at.Partition), before, now)
		}
	// Sooner its final check may be unknown to the owner.
	case c.at >= d.frozen && w.now-c.at >= second:
		if w.settledAt[at] == nil {
			w.settledAt[at] = ids{}
		}
		w.settledAt[at][q.ID] = true
	}
}
