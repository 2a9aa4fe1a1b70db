package core

import (
	"fmt"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// A drainer's calls to the server for jobs and partitions, and the costs of its steps.

// call acts on the server, informs the owner, and repeats until answered or the backlog is closed.
func (d *drainer) call(on string, do func(), p handle.Partition, then func()) {
	w := d.w
	if d.core.part(p) == nil {
		return
	}
	w.after(w.latency(), func() {
		late := w.has(lateCalls) && w.chance(0.05)
		applied := !late && !w.down && !w.headless(on) && d.cut <= w.now && !w.chance(0.01)
		switch {
		case applied:
			do()
		case late: // reordered with its repetition and later calls
			w.after(w.between(0, 3*time.Second), do)
		}
		if applied && !w.chance(0.01) {
			w.to(d, w.latency(), then)
		} else if d.alive {
			d.hinder()
			w.after(time.Second, func() { d.call(on, do, p, then) })
		}
	})
}

func (d *drainer) fetch(r handle.Ref) {
	w, name := d.w, r.Part.Policy
	w.after(w.latency(), func() {
		if w.down || w.headless(name) || d.cut > w.now || w.chance(0.02) {
			if d.alive {
				w.after(simulatedPause, func() { d.fetch(r) })
			}
			return
		}
		m := w.streams[name].messages[r.Seq]
		w.to(d, w.latency(), func() {
			before := d.core.out.Vanished
			e := Text{Ref: r, Gone: m == nil}
			if m != nil {
				e.Body, e.Header = m.Body, m.Header
			}
			d.core.Handle(Fetched{e}, d.clock())
			if !d.consumes(r.Part) {
				d.core.out.Vanished = before
			}
		})
	})
}

func (d *drainer) costs() {
	w := d.w
	if !w.has(costlySteps) {
		return
	}
	buckets := 0
	for _, s := range d.core.shares.all {
		if s.part != nil && s.part.Owned() {
			buckets += s.part.Buckets()
		}
	}
	most := time.Duration(buckets) * 100 * time.Microsecond
	for _, p := range d.core.out.puts {
		if p.Why == whyCheckpoint {
			most += 10 * time.Millisecond
		}
	}
	d.busy = w.now + w.between(0, most)
}

func (d *drainer) tell(r record.Report) {
	w := d.w
	w.after(w.latency(), func() {
		heard := !w.down && d.cut <= w.now && w.reported(r)
		if heard && !w.chance(0.02) {
			w.to(d, w.latency(), func() { d.core.Handle(Delivered{r}, d.clock()) })
		} else if d.alive && !heard && !d.core.Matters(r) {
			w.to(d, 0, func() { d.core.Handle(Delivered{r}, d.clock()) })
		} else if d.alive {
			w.after(250*time.Millisecond, func() { d.tell(r) })
		}
	})
}

func (w *world) reported(r record.Report) bool {
	for _, d := range w.drainers {
		if d.reachable() && d.core.reported(r.Policy, r.Partition, r.Outcome, d.clock()) {
			d.says("hears from %s: %s is %s", r.Outcome.Holder, job.ID(r.Policy, r.Outcome.Seq),
				r.Outcome.Kind)
			s := w.streams[r.Policy]
			if m := s.messages[r.Outcome.Seq]; m != nil &&
				r.Outcome.Stream == s.created.UnixNano() {
				f := w.fateOf(r.Policy, m)
				w.cools(f.bucket, d.told[r.Policy], r.Outcome)
				part := d.core.shares.all[record.ShareKey(r.Policy, r.Partition)].part
				w.isTold(part, d, f)
				w.holdsBack(part, f.key, r.Outcome)
			}
			d.step()
			return true
		}
	}
	return false
}

func (d *drainer) reachable() bool { return d.alive && d.frozen <= d.w.now && d.cut <= d.w.now }

func (w *world) readLegacy(found *Opened) {
	p := found.Part
	if r := w.records[TablePartitions][record.ShareKey(p.Policy, p.Number)]; r != nil &&
		r.Revision == found.Epoch {
		found.Taken = r.Stored
	}
	if r := w.records[TablePartitions][record.CheckpointKey(p.Policy, p.Number)]; r != nil {
		found.Noted, found.Revision = r.Stored, r.Revision
		switch err := record.Decode(r.Value, &found.Checkpoint); {
		case err != nil && w.has(damages):
			found.Damaged()
		case err != nil:
			w.fail("checkpoint: %v", err)
		}
	}
	prefix := record.ShareKey(p.Policy, p.Number) + "."
	for key, a := range w.attempts {
		var seq uint64
		if rest, ok := strings.CutPrefix(key, prefix); ok && a.V != 0 {
			if _, err := fmt.Sscan(rest, &seq); err != nil {
				panic(err)
			}
			found.Attempts[seq] = a
		}
	}
}
