package workers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

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
				d.core.unopened(o, epoch, errors.Is(err, queue.ErrNoStream), now)
			case d.backlogs[o.part] != b || b.epoch != epoch:
				d.closeBacklog(open)
			case d.core.behind(o, found):
				d.log.Info("what says that it leads the stream is behind: trying again", "policy", o.part.policy,
					"partition", o.part.number, "last", found.last)
				d.closeBacklog(open)
				d.core.unopened(o, epoch, false, now)
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
	for _, lack := range open.Lacks() {
		d.log.Warn("a server's copy of a stream lacks jobs that wait, and is passed over: give it an empty store",
			"server", lack.Server, "policy", o.part.policy, "partition", o.part.number, "jobs", lack.Jobs)
	}
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
		d.log.Debug("owns partition", "policy", o.part.policy, "partition", o.part.number, "epoch", epoch, "last", found.last)
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
				d.post(func(now instant) { d.core.arrived(p, epoch, jobs, now) })
				continue
			}
			arrivals = nil
		case <-open.Swept():
			d.post(func(now instant) { d.core.swept(p, epoch, now) })
		case jobs := <-open.Strays():
			d.post(func(now instant) { d.core.strayed(p, epoch, jobs, now) })
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
	found.last, found.created = open.Last(), open.StreamCreated()
	return found, open, nil
}

// readLegacy reads a partition's claim, checkpoint and attempt records.
func (d *Drainer) readLegacy(ctx context.Context, p *partition, epoch uint64, found *opened) error {
	claim, err := d.broker.Partitions().Read(ctx, shareKey(p.policy, p.number))
	if err != nil {
		return fmt.Errorf("read claim: %w", err)
	}
	if claim.Revision == epoch {
		found.claimed, found.read = claim.Stored, time.Now()
	}
	noted, err := d.broker.Partitions().Read(ctx, checkpointKey(p.policy, p.number))
	switch {
	case errors.Is(err, queue.ErrNotFound):
		found.revision = noted.Revision
		if found.since, err = d.broker.Partitions().Created(ctx); err != nil {
			return fmt.Errorf("look for the age of the records: %w", err)
		}
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
		a := storedAttempt{stored: r.Stored, revision: r.Revision}
		if err == nil {
			err = decode(r.Value, &a.attemptRecord)
		}
		if err != nil {
			d.log.Warn("attempt record not used", "record", r.Key, "error", err)
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
	d.persist(b.ctx, purpose{j.bucket.part.policy, "read body"}, func() error {
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
		d.valveOf(j.bucket.part, func(v *valve) {
			if found.Malformed != nil && !gone {
				v.unreadable(j, found.Malformed, now)
				return
			}
			v.loaded(j, found.Body, gone, now)
		})
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
