package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

// perform carries out what the core wants.
func (d *Drainer) perform(ctx context.Context) {
	out := &d.core.out
	for _, p := range out.closes {
		d.close(p)
	}
	for _, o := range out.opens {
		d.open(ctx, o)
	}
	for _, r := range out.starts {
		p := d.policies[r.part.policy]
		handle := d.running[r.part.policy]
		created := d.backlogs[r.part].created
		go d.work(r, handle, time.Duration(p.Timeout), created) // the core counts them: none runs when Run ends in order
	}
	for _, l := range out.lent {
		p := d.policies[l.run.part.policy]
		created := d.backlogs[l.run.part].created
		go d.workElsewhere(l.run, l.worker, time.Duration(p.Timeout), created) // counted as well
	}
	for _, worker := range out.refusals {
		d.say(worker, statusNo)
	}
	for _, name := range out.offers {
		d.offer(name, d.now())
	}
	for _, a := range out.acks {
		if b := d.backlogs[a.part]; b != nil && b.open != nil {
			b.open.Done(a.seq)
		}
	}
	for _, p := range out.puts {
		d.spawn(func() { d.put(ctx, p) })
	}
	for _, r := range out.reads {
		d.spawn(func() { d.read(ctx, r.put) })
	}
	for _, p := range out.deletes {
		d.call(ctx, purpose{what: "delete record"}, func() error {
			err := d.table(p.table).Delete(ctx, p.key, p.revision)
			if err != nil {
				d.log.Debug("record not deleted", "record", p.key, "error", err)
			}
			return err
		})
	}
	d.performJobs(ctx, out)
	for _, c := range out.accepted {
		d.broker.Tell(c.bucket.part.policy, queue.Event{Type: queue.EventAccepted, Job: jobID(c.bucket.part.policy, c.Seq), Key: c.Key})
	}
	for _, c := range out.cancelled {
		d.options.Observer.Ended(c.bucket.part.policy, "cancelled")
		d.broker.Tell(c.bucket.part.policy, queue.Event{Type: queue.EventCancelled, Job: jobID(c.bucket.part.policy, c.Seq), Key: c.Key})
	}
	for _, t := range out.breakers {
		name := t.bucket.part.policy
		e := queue.Event{Type: queue.EventBreakerClosed, Job: jobID(name, t.Seq), Key: t.Key, All: t.all}
		if t.open {
			e.Type, e.Error = queue.EventBreakerOpened, t.lastError
			d.outages.opened(name, t.Key, t.lastError, d.now())
		}
		d.broker.Tell(name, e)
	}
	for _, p := range out.takeovers {
		d.log.Info("took a partition over: its owner is gone", "policy", p.policy, "partition", p.number)
	}
	if out.vanished > 0 {
		d.seldom.Log("vanished", slog.LevelWarn, "jobs were removed from the stream by others", "jobs", out.vanished)
	}
	if out.strange > 0 {
		d.seldom.Log("strange", slog.LevelWarn, "stood back from records of another version", "records", out.strange)
	}
	if out.lost > 0 {
		d.log.Warn("this process was declared dead and begins anew", "id", d.core.lease.id)
	}
	out.clear()
}

func (d *Drainer) performJobs(ctx context.Context, out *actions) {
	for _, j := range out.fetches {
		if b := d.backlogs[j.bucket.part]; b != nil {
			d.fetch(b, j)
		}
	}
	for _, s := range out.saves {
		b := d.backlogs[s.bucket.part]
		if b == nil {
			continue
		}
		s.record.At = d.core.wall(d.now()).UnixMicro()
		d.persist(b.ctx, purpose{s.bucket.part.policy, "record attempt"}, func() error {
			return d.writeAttempt(b.ctx, &s)
		}, func(now instant) { d.valveOf(s.bucket.part, func(v *valve) { v.stored(&s, now) }) })
	}
	for _, u := range out.burials {
		if b := d.backlogs[u.bucket.part]; b != nil {
			d.bury(b, u)
		}
	}
	d.noteEnds(out)
	for _, f := range out.forgets {
		d.call(ctx, purpose{f.part.policy, "delete attempt"}, func() error {
			err := d.broker.Attempts().Delete(ctx, attemptKey(f.part, f.seq), f.revision)
			if err != nil {
				d.log.Debug("attempt record not deleted", "job", jobID(f.part.policy, f.seq), "error", err)
			}
			return err
		})
	}
	for _, r := range out.reports {
		d.spawn(func() { d.tell(ctx, r) })
	}
}

// noteEnds stores what repeats of jobs are told.
func (d *Drainer) noteEnds(out *actions) {
	for _, e := range out.done {
		left := e.Accepted.Add(time.Duration(d.policies[e.part.policy].DuplicateWindow)).Sub(d.core.wall(d.now()))
		if left <= 0 {
			continue
		}
		if err := d.broker.NoteDone(e.part.policy, e.seq, e.Ended, left); err != nil {
			d.log.Debug("a repeat of a done job will not be compared with it", "job", e.seq, "error", err)
		}
	}
	for _, e := range out.endings {
		b := d.backlogs[e.part]
		if b == nil {
			continue
		}
		d.persist(b.ctx, purpose{e.part.policy, "note how a job ended"}, func() error {
			return d.broker.NoteEnded(b.ctx, e.part.policy, e.seq, e.Ended)
		}, func(instant) {
			if b.open != nil { // else it arrives again, and is acknowledged then
				b.open.Done(e.seq)
			}
			if e.noted != nil {
				e.noted()
			}
		})
	}
}

func (d *Drainer) valveOf(p *partition, f func(v *valve)) {
	if v := d.core.valves[p.policy]; v != nil {
		f(v)
	}
}

func attemptKey(p *partition, seq uint64) string {
	return shareKey(p.policy, p.number) + "." + strconv.FormatUint(seq, 10)
}

func (d *Drainer) table(t table) *queue.Table {
	if t == tableDrainers {
		return d.broker.Drainers()
	}
	return d.broker.Partitions()
}

// patience is how long a write may take: so short that there is time for another before the lease ends.
func (d *Drainer) patience() time.Duration {
	return min(max(d.options.Lease/3, time.Second), 3*time.Second)
}

func (d *Drainer) put(ctx context.Context, p put) {
	ctx, cancel := context.WithTimeout(ctx, d.patience())
	defer cancel()
	value := p.bytes()
	revision, err := d.table(p.table).Put(ctx, p.key, value, p.revision)
	result := putUnknown
	switch {
	case err == nil:
		result = putOK
	case errors.Is(err, queue.ErrConflict):
		result = putConflict
	case errors.Is(err, queue.ErrTooLarge):
		d.seldom.Log("record", slog.LevelError, "a record does not fit the server's largest message: max_payload is too small",
			"record", p.key, "bytes", len(value), "max_payload", d.broker.Conn().MaxPayload())
	}
	d.post(func(now instant) {
		if p.why == whyRenew {
			d.proof.err = err
		}
		d.core.put(p, result, revision, now)
	})
}

func (d *Drainer) read(ctx context.Context, p put) {
	var r queue.Record
	d.retry(ctx, "read record "+p.key, func() error {
		var err error
		r, err = d.table(p.table).Read(ctx, p.key)
		if errors.Is(err, queue.ErrNotFound) {
			r.Deleted, err = true, nil
		}
		return err
	})
	if ctx.Err() == nil {
		d.post(func(now instant) { d.core.read(p, recordFrom(r), now) })
	}
}

// tell reports an outcome to a partition's new owner until it is heard, or nobody can hear it any more.
func (d *Drainer) tell(ctx context.Context, r report) {
	data, err := json.Marshal(r.outcome)
	if err != nil {
		panic(fmt.Sprintf("workers: encode outcome: %v", err)) // strings and numbers only: cannot fail
	}
	if d.retry(ctx, "report an outcome", func() error {
		_, err := d.broker.AskValve(ctx, r.policy, r.partition, queue.ValveQuestion{Op: queue.OpOutcome, Outcome: data})
		if err != nil && !d.matters(r) {
			return nil
		}
		return err
	}) {
		d.post(func(instant) { d.core.delivered(r) })
	}
}

// matters asks the loop whether a report still concerns anybody.
func (d *Drainer) matters(r report) bool {
	answer := make(chan bool, 1)
	d.post(func(instant) { answer <- d.core.matters(r) })
	select {
	case known := <-answer:
		return known
	case <-d.stopped:
		return false
	}
}
