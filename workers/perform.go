package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// watch starts what tells the loop of the world: the connection, the leases, the owners, the policies.
func (d *Drainer) watch(ctx context.Context) {
	status := d.broker.Conn().StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
	d.spawn(func() {
		defer d.broker.Conn().RemoveStatusListener(status)
		for {
			select {
			case s := <-status:
				d.post(func(now instant) {
					d.core.connection(s == nats.CONNECTED, now)
					d.closed = s == nats.CLOSED
				})
			case <-ctx.Done():
				return
			}
		}
	})
	missing := 4
	synced := func() {
		d.post(func(now instant) {
			missing--
			d.core.synced = missing <= 0
			d.core.tickAt = now
		})
	}
	records := func(t table, from *queue.Table, filter string) {
		d.spawn(func() {
			once := false
			d.forever(ctx, "watch "+filter, func() error {
				return from.Watch(ctx, filter, func(r queue.Record) {
					d.post(func(now instant) { d.core.watched(t, r.Key, recordFrom(r), now) })
				}, func() {
					if !once {
						once = true
						synced()
					}
				})
			})
		})
	}
	d.spawn(func() {
		once := false
		d.forever(ctx, "watch overrides", func() error {
			return d.broker.WatchOverrides(ctx, func(name string, key queue.Key, o policy.Override, _ bool) {
				d.post(func(now instant) { d.core.setOverride(name, key, o, now) })
			}, func() {
				if !once {
					once = true
					synced()
				}
			})
		})
	})
	records(tableDrainers, d.broker.Drainers(), ">")
	records(tablePartitions, d.broker.Partitions(), "*.*")
	d.spawn(func() {
		once := false
		d.forever(ctx, "watch policies", func() error {
			return d.broker.WatchPolicies(ctx, func(set queue.PolicySet) {
				d.post(func(now instant) { d.setPolicies(set, now) })
				if !once {
					once = true
					synced()
				}
			})
		})
	})
}

// forever calls f again until the context ends.
func (d *Drainer) forever(ctx context.Context, what string, f func() error) {
	d.retry(ctx, what, func() error {
		if err := f(); err != nil {
			return err
		}
		return errors.New("ended")
	})
}

// retry calls f until it succeeds or the context ends, with a pause between. It says so once.
func (d *Drainer) retry(ctx context.Context, what string, f func() error) bool {
	for tries := 0; ; tries++ {
		err := f()
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if tries == triesUntold {
			d.log.Warn("still trying", "what", what, "error", err)
		}
		timer := time.NewTimer(retryPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

func recordFrom(r queue.Record) record {
	return record{exists: !r.Deleted, value: r.Value, revision: r.Revision, stored: r.Stored}
}

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
		d.call(ctx, func() {
			if err := d.table(p.table).Delete(ctx, p.key, p.revision); err != nil {
				d.log.Debug("record not deleted", "key", p.key, "error", err)
			}
		})
	}
	d.performJobs(ctx, out)
	for _, c := range out.accepted {
		d.broker.Tell(c.bucket.part.policy, queue.Event{Type: queue.EventAccepted, Job: jobID(c.bucket.part.policy, c.Seq), Key: c.Key})
	}
	for _, c := range out.cancelled {
		d.options.Observer.Finished(c.bucket.part.policy, "cancelled")
		d.broker.Tell(c.bucket.part.policy, queue.Event{Type: queue.EventCancelled, Job: jobID(c.bucket.part.policy, c.Seq), Key: c.Key})
	}
	for _, p := range out.takeovers {
		d.log.Info("took a partition over: its owner is gone", "policy", p.policy, "partition", p.number)
	}
	if out.vanished > 0 {
		d.log.Warn("jobs were removed from the stream by others", "jobs", out.vanished)
	}
	if out.strange > 0 {
		d.log.Warn("stood back from records of another version", "records", out.strange)
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
		key, value := attemptKey(s.bucket.part, s.Seq), encode(s.record)
		d.persist(b.ctx, "record attempt", func() error {
			return d.broker.Attempts().Set(b.ctx, key, value)
		}, func(now instant) { d.valveOf(s.bucket.part, func(v *valve) { v.saved(s.job, now) }) })
	}
	for _, u := range out.burials {
		if b := d.backlogs[u.bucket.part]; b != nil {
			d.bury(b, u)
		}
	}
	for _, f := range out.forgets {
		d.call(ctx, func() {
			if err := d.broker.Attempts().Delete(ctx, attemptKey(f.part, f.seq), 0); err != nil {
				d.log.Debug("attempt record not deleted", "job", f.seq, "error", err)
			}
		})
	}
	for _, r := range out.reports {
		d.spawn(func() { d.tell(ctx, r) })
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
	revision, err := d.table(p.table).Put(ctx, p.key, p.value, p.revision)
	result := putUnknown
	switch {
	case err == nil:
		result = putOK
	case errors.Is(err, queue.ErrConflict):
		result = putConflict
	}
	d.post(func(now instant) { d.core.put(p, result, revision, now) })
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

// open opens a partition's backlog and reads what its predecessor left.
func (d *Drainer) open(ctx context.Context, o opening) {
	b := d.backlogs[o.part]
	if b == nil {
		b = &backlog{}
		b.ctx, b.cancel = context.WithCancel(ctx)
		d.backlogs[o.part] = b
	}
	if b.open != nil {
		d.closeBacklog(b.open)
		b.open = nil
	}
	if b.unopened != nil {
		b.unopened()
	}
	epoch := o.part.epoch
	b.epoch = epoch
	opening, cancel := context.WithCancel(b.ctx)
	b.unopened = cancel
	partitions := d.policies[o.part.policy].Partitions
	d.spawn(func() {
		found, open, err := d.readAndOpen(opening, o, partitions, epoch)
		if !d.post(func(now instant) {
			switch {
			case err != nil:
				d.log.Debug("backlog not opened", "policy", o.part.policy, "partition", o.part.number, "error", err)
				d.core.unopened(o, epoch, now)
			case d.backlogs[o.part] != b || b.epoch != epoch:
				d.closeBacklog(open)
			default:
				d.began(b, o, epoch, open, found, now)
			}
		}) && open != nil {
			d.endBacklog(open)
		}
	})
}

// began takes an opened backlog into use.
func (d *Drainer) began(b *backlog, o opening, epoch uint64, open *queue.Backlog, found opened, now instant) {
	b.open, b.created = open, open.StreamCreated()
	if b.answers == nil {
		stop, err := d.broker.ServeValve(o.part.policy, o.part.number, func(q queue.ValveQuestion, reply func(queue.ValveAnswer)) {
			d.post(func(now instant) { d.answer(o.part, q, reply, now) })
		})
		if err != nil {
			d.log.Warn("questions to the valve will not be answered", "policy", o.part.policy, "error", err)
			stop = func() {}
		}
		b.answers = stop
		d.count(o.part.policy, 1)
		d.log.Debug("owns partition", "policy", o.part.policy, "partition", o.part.number, "epoch", epoch, "stored", found.stored)
	}
	d.core.opened(o, epoch, found, now)
	d.spawn(func() { d.feed(b.ctx, o.part, epoch, open) })
}

// feed passes what a backlog delivers and confirms on to the loop, until it is closed.
func (d *Drainer) feed(ctx context.Context, p *partition, epoch uint64, open *queue.Backlog) {
	arrivals := open.Arrivals()
	for {
		select {
		case jobs, ok := <-arrivals:
			if ok {
				d.post(func(now instant) { d.core.arrived(p, epoch, jobs, now, time.Now()) })
				continue
			}
			arrivals = nil
		case err := <-open.Broken(): // also while nothing arrives
			d.log.Info("opens a backlog anew", "policy", p.policy, "partition", p.number, "reason", err)
			d.post(func(now instant) { d.core.broke(p, epoch, now) })
		case seqs, ok := <-open.Confirmed():
			if !ok {
				return
			}
			d.post(func(now instant) { d.core.confirmed(p, seqs, now) })
		case <-ctx.Done():
			return
		}
	}
}

// readAndOpen does what a new owner or a new epoch needs.
func (d *Drainer) readAndOpen(ctx context.Context, o opening, partitions int, epoch uint64) (opened, *queue.Backlog, error) {
	found := opened{attempts: map[uint64]storedAttempt{}}
	if o.inherit {
		if err := d.readLegacy(ctx, o.part, epoch, &found); err != nil {
			return found, nil, err
		}
	}
	open, err := d.broker.OpenBacklog(ctx, queue.BacklogOptions{
		Policy: o.part.policy, Partition: o.part.number, Partitions: partitions, Epoch: epoch,
	})
	if err != nil {
		return found, nil, err
	}
	found.stored, found.created = open.Stored(), open.StreamCreated()
	return found, open, nil
}

// readLegacy reads a partition's claim, checkpoint and attempt records.
func (d *Drainer) readLegacy(ctx context.Context, p *partition, epoch uint64, found *opened) error {
	claim, err := d.broker.Partitions().Read(ctx, shareKey(p.policy, p.number))
	if err != nil {
		return fmt.Errorf("read claim: %w", err)
	}
	if claim.Revision == epoch {
		found.claimed = claim.Stored
	}
	noted, err := d.broker.Partitions().Read(ctx, checkpointKey(p.policy, p.number))
	switch {
	case errors.Is(err, queue.ErrNotFound):
		found.revision = noted.Revision
	case err != nil:
		return fmt.Errorf("read checkpoint: %w", err)
	default:
		found.revision, found.noted = noted.Revision, noted.Stored
		if err := decode(noted.Value, &found.checkpoint); err != nil {
			d.log.Warn("checkpoint not used", "policy", p.policy, "partition", p.number, "error", err)
			found.checkpoint = checkpoint{V: version}
		}
	}
	records, err := d.broker.Attempts().List(ctx, shareKey(p.policy, p.number)+".*")
	if err != nil {
		return fmt.Errorf("list attempts: %w", err)
	}
	for _, r := range records {
		seq, err := strconv.ParseUint(r.Key[strings.LastIndexByte(r.Key, '.')+1:], 10, 64)
		a := storedAttempt{stored: r.Stored}
		if err == nil {
			err = decode(r.Value, &a.attemptRecord)
		}
		if err != nil {
			d.log.Warn("attempt record not used", "key", r.Key, "error", err)
			continue
		}
		found.attempts[seq] = a
	}
	return nil
}

// close ends the connection of a partition that is no longer ours.
func (d *Drainer) close(p *partition) {
	b := d.backlogs[p]
	if b == nil {
		return
	}
	delete(d.backlogs, p)
	if b.answers != nil {
		b.answers()
		d.count(p.policy, -1)
		d.log.Debug("gave partition up", "policy", p.policy, "partition", p.number)
	}
	b.cancel()
	if b.open != nil {
		d.closeBacklog(b.open)
	}
}

func (d *Drainer) closeBacklog(open *queue.Backlog) { d.spawn(func() { d.endBacklog(open) }) }

func (d *Drainer) endBacklog(open *queue.Backlog) {
	ctx, cancel := context.WithTimeout(context.Background(), d.patience())
	defer cancel()
	if err := open.Close(ctx); err != nil {
		d.log.Debug("backlog not closed cleanly", "error", err)
	}
}

// closeAll closes what is still open when the loop ends: nothing, unless it ends out of order.
func (d *Drainer) closeAll() {
	for p := range d.backlogs {
		d.close(p)
	}
}

func (d *Drainer) count(policy string, change int) {
	d.owned[policy] += change
	d.options.Observer.Owned(policy, d.owned[policy])
}

// fetch reads the body of a job that was delivered without it.
func (d *Drainer) fetch(b *backlog, j *job) {
	var found queue.Arrived
	gone := false
	d.persist(b.ctx, "read body", func() error {
		open, err := d.current(b)
		if err != nil {
			return err
		}
		found, err = open.Body(b.ctx, j.Seq)
		if gone = errors.Is(err, queue.ErrNotFound); gone {
			return nil
		}
		return err
	}, func(now instant) {
		if found.Body == nil {
			found.Body = []byte{}
		}
		d.valveOf(j.bucket.part, func(v *valve) { v.loaded(j, found.Body, gone, now) })
	})
}

// current asks the loop for the backlog that is open now.
func (d *Drainer) current(b *backlog) (*queue.Backlog, error) {
	answer := make(chan *queue.Backlog, 1)
	d.post(func(instant) { answer <- b.open })
	select {
	case open := <-answer:
		if open == nil {
			return nil, errors.New("the backlog is being opened")
		}
		return open, nil
	case <-d.stopped:
		return nil, context.Canceled
	}
}

// tell reports an outcome to a partition's new owner until it is heard.
func (d *Drainer) tell(ctx context.Context, r report) {
	data, err := json.Marshal(r.outcome)
	if err != nil {
		panic(fmt.Sprintf("workers: encode outcome: %v", err)) // strings and numbers only: cannot fail
	}
	if d.retry(ctx, "report an outcome", func() error {
		_, err := d.broker.AskValve(ctx, r.policy, r.partition, queue.ValveQuestion{Op: queue.OpOutcome, Outcome: data})
		return err
	}) {
		d.post(func(instant) { d.core.delivered(r) })
	}
}
