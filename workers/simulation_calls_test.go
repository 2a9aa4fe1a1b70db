package workers

import (
	"fmt"
	"strings"
	"time"
)

// What a drainer of the simulation asks the server for single jobs and partitions, and what its steps cost.

// call does something on the server and then tells the valve of a partition, and repeats it until the answer came or the
// partition's backlog is closed.
func (d *drainer) call(on string, do func(), p *partition, then func(v *valve)) {
	w := d.w
	if p.state > partitionLive {
		return
	}
	w.after(w.latency(), func() {
		late := w.has(lateCalls) && w.chance(0.05)
		applied := !late && !w.down && !w.headless(on) && d.cut <= w.now && !w.chance(0.01)
		switch {
		case applied:
			do()
		case late: // it may overtake, or be overtaken by, its repetition and all that follows
			w.after(w.between(0, 3*time.Second), do)
		}
		if applied && !w.chance(0.01) {
			w.to(d, w.latency(), func() {
				if v := d.core.valves[p.policy]; v != nil {
					then(v)
				}
			})
		} else if d.alive {
			d.hinder()
			w.after(time.Second, func() { d.call(on, do, p, then) })
		}
	})
}

// fetch reads a body.
func (d *drainer) fetch(j *job) {
	w, name := d.w, j.bucket.part.policy
	w.after(w.latency(), func() {
		if w.down || w.headless(name) || d.cut > w.now || w.chance(0.02) {
			if d.alive {
				w.after(retryPause, func() { d.fetch(j) })
			}
			return
		}
		m := w.streams[name].messages[j.Seq]
		w.to(d, w.latency(), func() {
			v := d.core.valves[name]
			switch {
			case v == nil:
			case m == nil:
				before := d.core.out.vanished
				v.loaded(j, nil, true, d.clock())
				if !d.consumes(j.bucket.part) {
					d.core.out.vanished = before // its new owner finished it, of which this one has not heard yet
				}
			default:
				v.loaded(j, m.Body, false, d.clock())
			}
		})
	})
}

// costs lets a step take its time: to put checkpoints together, most of all.
func (d *drainer) costs() {
	w := d.w
	if !w.has(costlySteps) {
		return
	}
	buckets := 0
	for _, v := range d.core.sorted {
		for _, p := range v.parts {
			buckets += len(p.buckets)
		}
	}
	most := time.Duration(buckets) * 100 * time.Microsecond
	for _, p := range d.core.out.puts {
		if p.why == whyCheckpoint {
			most += 10 * time.Millisecond
		}
	}
	d.busy = w.now + w.between(0, most)
}

// tell reports an outcome to whoever owns the partition now.
func (d *drainer) tell(r report) {
	w := d.w
	w.after(w.latency(), func() {
		heard := !w.down && d.cut <= w.now && w.reported(r)
		if heard && !w.chance(0.02) {
			w.to(d, w.latency(), func() { d.core.delivered(r) })
		} else if d.alive && !heard && !d.core.matters(r) {
			w.to(d, 0, func() { d.core.delivered(r) })
		} else if d.alive {
			w.after(250*time.Millisecond, func() { d.tell(r) })
		}
	})
}

// reported takes an outcome to the owner of a partition. False: nobody heard it.
func (w *world) reported(r report) bool {
	for _, d := range w.drainers {
		if d.reachable() && d.core.reported(r.policy, r.partition, r.outcome, d.clock()) {
			s := w.streams[r.policy]
			if m := s.messages[r.outcome.Seq]; m != nil && r.outcome.Stream == s.created.UnixNano() {
				w.cools(w.fateOf(r.policy, m).bucket, d.told[r.policy], r.outcome)
			}
			d.step()
			return true
		}
	}
	return false
}

// reachable reports whether a drainer answers questions.
func (d *drainer) reachable() bool { return d.alive && d.frozen <= d.w.now && d.cut <= d.w.now }

// readLegacy reads what the former owners of a partition left.
func (w *world) readLegacy(p *partition, epoch uint64, found *opened) {
	if r := w.records[tablePartitions][shareKey(p.policy, p.number)]; r != nil && r.revision == epoch {
		found.claimed = r.stored
	}
	if r := w.records[tablePartitions][checkpointKey(p.policy, p.number)]; r != nil {
		if err := decode(r.value, &found.checkpoint); err != nil {
			w.fail("checkpoint: %v", err)
		}
		found.noted, found.revision = r.stored, r.revision
	}
	prefix := shareKey(p.policy, p.number) + "."
	for key, a := range w.attempts {
		var seq uint64
		if rest, ok := strings.CutPrefix(key, prefix); ok && a.V != 0 {
			if _, err := fmt.Sscan(rest, &seq); err != nil {
				panic(err)
			}
			found.attempts[seq] = a
		}
	}
}
