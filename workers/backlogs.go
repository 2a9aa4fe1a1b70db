package workers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/kv"
	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// backlogs connects owned partitions to their streams. It belongs to the loop; opening, feeding and
// closing run in goroutines.
type backlogs struct {
	*calls
	broker    *jet.Broker
	catalog   *catalog
	questions *questions
	memory    int64
	*unreadable
	all    map[handle.Partition]*backlog
	owned  map[string]int
	places chan struct{}
}

const (
	// openAtOnce bounds the openings: the server answers one by one.
	openAtOnce = 32
	// openPatience is when a slow opening gives up its place.
	openPatience = time.Second
)

// enter waits for a place. leave frees it.
func (bs *backlogs) enter(ctx context.Context) (leave func()) {
	select {
	case bs.places <- struct{}{}:
	case <-ctx.Done():
		return func() {}
	}
	give := sync.OnceFunc(func() { <-bs.places })
	late := time.AfterFunc(openPatience, give)
	return func() {
		late.Stop()
		give()
	}
}

type backlog struct {
	ctx      context.Context
	cancel   func()
	epoch    uint64
	open     *jet.Backlog // nil: being opened
	born     func(stored time.Time) time.Time
	answers  func()
	unopened context.CancelFunc
	newer    string // of a newer format, which prevents opening
}

func (bs *backlogs) Open(o core.Opening) {
	b := bs.all[o.Part]
	if b == nil {
		b = &backlog{}
		b.ctx, b.cancel = context.WithCancel(bs.life)
		bs.all[o.Part] = b
	}
	if b.open != nil {
		bs.shut(b.open)
		b.open = nil
	}
	if b.unopened != nil {
		b.unopened()
	}
	b.epoch = o.Epoch
	opening, cancel := context.WithCancel(b.ctx)
	b.unopened = cancel
	partitions := bs.catalog.policies[o.Part.Policy].Partitions
	bs.spawn(func() {
		leave := bs.enter(opening)
		found, open, err := bs.readAndOpen(opening, o, partitions)
		leave()
		if !bs.post(func(now pace.Instant) {
			switch {
			case err != nil:
				bs.log.Debug("backlog not opened", "policy", o.Part.Policy, "partition",
					o.Part.Number, "error", err)
				streamless := errors.Is(err, jet.ErrNoStream)
				newer, _ := errors.AsType[newerError](err)
				b.newer = string(newer)
				bs.core.Handle(core.Unopened{Opening: o, Streamless: streamless}, now)
			case bs.all[o.Part] != b || b.epoch != o.Epoch:
				if open != nil {
					bs.shut(open)
				}
			case bs.core.Behind(found):
				bs.log.Info("the stream's leader is behind: retrying", "policy",
					o.Part.Policy, "partition", o.Part.Number, "last", found.Last)
				bs.shut(open)
				bs.core.Handle(core.Unopened{Opening: o}, now)
			default:
				bs.began(b, open, found, now)
			}
		}) && open != nil {
			bs.shutNow(open)
		}
	})
}

func (bs *backlogs) began(b *backlog, open *jet.Backlog, found core.Opened, now pace.Instant) {
	p := found.Part
	if open == nil {
		bs.log.Debug("keeps a shared limit", "limit", p.Policy, "epoch", found.Epoch)
		bs.core.Handle(found, now)
		return
	}
	for _, lack := range open.Lacks() {
		bs.log.Warn("a server's copy of a stream lacks waiting jobs and is skipped: give "+
			"it an empty store", "server", lack.Server, "policy", p.Policy, "partition", p.Number,
			"jobs", lack.Jobs)
	}
	b.open, b.born, b.newer = open, open.Born, ""
	if b.answers == nil {
		b.answers = bs.questions.serve(p)
		bs.count(p.Policy, 1)
		bs.log.Debug("owns partition", "policy", p.Policy, "partition", p.Number, "epoch",
			found.Epoch, "last", found.Last)
	}
	bs.core.Handle(found, now)
	bs.spawn(func() { bs.feed(b.ctx, p, found.Epoch, open) })
}

func (bs *backlogs) wake(p handle.Partition, b *backlog) {
	if b.open == nil {
		return
	}
	epoch, open := b.epoch, b.open
	switch resumed, err := open.Resume(); {
	case err != nil:
		bs.core.Handle(core.Broken{Part: p, Epoch: epoch}, bs.now())
	case resumed:
		bs.spawn(func() { bs.feed(b.ctx, p, epoch, open) })
	}
}

// policiesChange wakes partitions whose policies change: publishers must not reach the subscription
// of a closed stream's backlog.
func (bs *backlogs) policiesChange(changed []string) {
	for _, name := range changed {
		for _, p := range bs.core.Held(name) {
			if b := bs.all[p]; b != nil {
				bs.wake(p, b)
			}
		}
	}
}

// mostArrived bounds the jobs of one event: 512 would delay due starts by milliseconds.
const mostArrived = 64

// feed passes deliveries and confirmations to the loop.
func (bs *backlogs) feed(ctx context.Context, p handle.Partition, epoch uint64,
	open *jet.Backlog) {
	for {
		next, err := open.Next(ctx)
		switch {
		case errors.Is(err, jet.ErrClosed) || ctx.Err() != nil:
			return
		case err != nil:
			bs.log.Info("opens a backlog anew", "policy", p.Policy, "partition", p.Number, "reason",
				err)
			bs.send(core.Broken{Part: p, Epoch: epoch})
		case next.Swept || next.Idle:
			if next.Swept {
				bs.send(core.Arrived{Part: p, Epoch: epoch, Swept: true})
			}
			if next.Idle && open.Rest() == nil {
				return
			}
			if next.Idle {
				bs.send(core.Broken{Part: p, Epoch: epoch})
			}
		case next.Stray != nil:
			bs.send(core.Arrived{Part: p, Epoch: epoch, Jobs: next.Stray, Stray: true})
		case next.Confirmed != nil:
			bs.send(core.Confirmed{Part: p, Seqs: next.Confirmed})
		default:
			for jobs := range slices.Chunk(next.Arrived, mostArrived) {
				bs.send(core.Arrived{Part: p, Epoch: epoch, Jobs: jobs})
			}
		}
	}
}

func (bs *backlogs) readAndOpen(ctx context.Context, o core.Opening,
	partitions int) (core.Opened, *jet.Backlog, error) {
	found := core.Opened{Opening: o, Attempts: map[uint64]core.StoredAttempt{}}
	if o.Inherit {
		if err := bs.readInherited(ctx, &found); err != nil {
			return found, nil, err
		}
	}
	if _, shared := record.Shared(o.Part.Policy); shared {
		return found, nil, nil
	}
	open, err := bs.broker.OpenBacklog(ctx, jet.BacklogOptions{
		Policy: o.Part.Policy, Partition: o.Part.Number, Partitions: partitions, Epoch: o.Epoch,
		Holds: bs.memory,
		Wake: func() {
			bs.post(func(pace.Instant) {
				if b := bs.all[o.Part]; b != nil && b.epoch == o.Epoch {
					bs.wake(o.Part, b)
				}
			})
		},
	})
	if err != nil {
		return found, nil, err
	}
	found.Last, found.Created = open.Last(), open.StreamCreated()
	return found, open, nil
}

// newerError names a record of a newer format, which must not be inherited.
type newerError string

func (e newerError) Error() string { return string(e) + ": " + record.ErrVersion.Error() }

// damage sets a damaged record aside, or returns the error for a newer one.
func (bs *backlogs) damage(ctx context.Context, from *kv.Table, r kv.Record, err error) error {
	if errors.Is(err, record.ErrVersion) {
		return newerError(recordName(from, r.Key))
	}
	return bs.setAside(ctx, from, r.Key, r.Value)
}

func (bs *backlogs) readInherited(ctx context.Context, found *core.Opened) error {
	p, tables := found.Part, bs.broker.Tables()
	owned, err := tables.Partitions.Read(ctx, record.ShareKey(p.Policy, p.Number))
	if err != nil {
		return fmt.Errorf("read the ownership record: %w", err)
	}
	if owned.Revision == found.Epoch {
		found.Taken, found.Read = owned.Stored, time.Now()
	}
	noted, err := tables.Partitions.Read(ctx, record.CheckpointKey(p.Policy, p.Number))
	switch {
	case errors.Is(err, jet.ErrNotFound):
		found.Revision = noted.Revision
		if found.Since, err = tables.Partitions.Created(ctx); err != nil {
			return fmt.Errorf("look for the age of the records: %w", err)
		}
	case err != nil:
		return fmt.Errorf("read checkpoint: %w", err)
	default:
		found.Revision, found.Noted = noted.Revision, noted.Stored
		if err := record.Decode(noted.Value, &found.Checkpoint); err != nil {
			if err := bs.damage(ctx, tables.Partitions, noted, err); err != nil {
				return err
			}
			found.Damaged()
		}
	}
	records, err := tables.Attempts.List(ctx, record.ShareKey(p.Policy, p.Number)+".*")
	if err != nil {
		return fmt.Errorf("list attempts: %w", err)
	}
	for _, r := range records {
		seq, err := strconv.ParseUint(r.Key[strings.LastIndexByte(r.Key, '.')+1:], 10, 64)
		a := core.StoredAttempt{Stored: r.Stored, Revision: r.Revision}
		if err == nil {
			err = record.Decode(r.Value, &a.Attempt)
		}
		if err != nil {
			err := bs.damage(ctx, tables.Attempts, r, err)
			if err == nil {
				err = tables.Attempts.Delete(ctx, r.Key, r.Revision)
			}
			if err != nil {
				return err
			}
			continue
		}
		found.Attempts[seq] = a
	}
	return nil
}

func (bs *backlogs) Close(p handle.Partition) {
	b := bs.all[p]
	if b == nil {
		return
	}
	delete(bs.all, p)
	if b.answers != nil {
		b.answers()
		bs.count(p.Policy, -1)
		bs.log.Debug("gave partition up", "policy", p.Policy, "partition", p.Number)
	}
	b.cancel()
	if b.open != nil {
		bs.shut(b.open)
	}
}

func (bs *backlogs) shut(open *jet.Backlog) { bs.spawn(func() { bs.shutNow(open) }) }

func (bs *backlogs) shutNow(open *jet.Backlog) {
	ctx, cancel := context.WithTimeout(context.Background(), bs.patience)
	defer cancel()
	if err := open.Close(ctx); err != nil {
		bs.log.Debug("backlog not closed cleanly", "error", err)
	}
}

func (bs *backlogs) closeAll() {
	for p := range bs.all {
		bs.Close(p)
	}
}

func (bs *backlogs) count(policy string, change int) {
	bs.owned[policy] += change
	bs.tell(jet.EventOwned, policy, int64(bs.owned[policy]))
}

func (bs *backlogs) born(p handle.Partition, stored time.Time) time.Time {
	return bs.all[p].born(stored)
}

func (bs *backlogs) Ack(r handle.Ref) {
	if b := bs.all[r.Part]; b != nil && b.open != nil {
		b.open.Done(r.Seq)
	}
}

const mostTexts = 256

// Fetch reads omitted bodies and headers.
func (bs *backlogs) Fetch(refs []handle.Ref) {
	groups := map[handle.Partition][]handle.Ref{}
	for _, r := range refs {
		groups[r.Part] = append(groups[r.Part], r)
	}
	for _, group := range groups {
		slices.SortFunc(group, func(a, b handle.Ref) int { return cmp.Compare(a.Seq, b.Seq) })
		for some := range slices.Chunk(group, mostTexts) {
			bs.fetch(some)
		}
	}
}

func (bs *backlogs) fetch(refs []handle.Ref) {
	b := bs.all[refs[0].Part]
	if b == nil {
		return
	}
	seqs := make([]uint64, len(refs))
	for i, r := range refs {
		seqs[i] = r.Seq
	}
	var found []job.Arrived
	bs.persist(b.ctx, purpose{refs[0].Part.Policy, "read bodies"}, func() error {
		open, err := bs.current(b)
		if err == nil {
			found, err = open.Bodies(b.ctx, seqs)
		}
		return err
	}, func() core.Event {
		texts := make(core.Fetched, len(refs))
		for i, r := range refs {
			texts[i] = core.Text{Ref: r, Gone: true}
			if len(found) > 0 && found[0].Seq == r.Seq {
				a := found[0]
				texts[i] = core.Text{Ref: r, Body: a.Body, Header: a.Header, Malformed: a.Malformed}
				found = found[1:]
			}
			if texts[i].Body == nil {
				texts[i].Body = []byte{}
			}
		}
		return texts
	})
}

func (bs *backlogs) read(b *backlog, seq uint64) (found job.Arrived, err error) {
	open, err := bs.current(b)
	if err != nil {
		return found, err
	}
	jobs, err := open.Bodies(b.ctx, []uint64{seq})
	if len(jobs) > 0 {
		found = jobs[0]
	}
	return found, err
}

func (bs *backlogs) current(b *backlog) (*jet.Backlog, error) {
	open, ok := ask(bs.loop, func() *jet.Backlog { return b.open })
	switch {
	case !ok:
		return nil, context.Canceled
	case open == nil:
		return nil, errors.New("the backlog is being opened")
	}
	return open, nil
}
