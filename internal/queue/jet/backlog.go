package jet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
)

const (
	defaultHolds = 512 << 20
	lookEvery    = 5 * time.Second
)

// BacklogOptions names the partition of a backlog, and its tenure.
type BacklogOptions struct {
	Policy     string
	Partition  int
	Partitions int    // must equal the number in the stream
	Epoch      uint64 // revision of the ownership record
	// Holds bounds the bytes of jobs in memory, by default 512 MiB. A larger stream delivers stored
	// jobs without bodies; unpaced ones then start at half the rate.
	Holds int64
	// Wake is called when a resting backlog may have jobs again, and must not block for long. Nil:
	// the backlog never rests.
	Wake func()
}

// Backlog delivers a partition's jobs to the owner of one epoch: stored jobs in order, then new
// ones. It is safe for concurrent use.
type Backlog struct {
	b        *Broker
	o        BacklogOptions
	stream   string
	created  time.Time
	restored []time.Time // one time per restore from a backup
	bodies
	copies
	strays   strays
	filter   string // of the consumer; empty: everything
	last     uint64 // sequence of the stream
	puller   *jsapi.Puller
	received uint64 // consumer sequence of the last delivery
	unheard  bool   // a received delivery was not handed over
	acks     *acks
	updates  chan Update
	broken   chan error
	sweep    sweep
	ticked   ticked
	rest     rest

	stop      <-chan struct{}
	cancel    context.CancelFunc
	pulling   sync.WaitGroup
	breakOnce sync.Once
	isBroken  chan struct{}
}

// OpenBacklog takes over a partition's deliveries: it replaces all consumers of the partition by
// this epoch's, and former owners' acknowledgements lose their effect. The same epoch can be opened
// again. Errors: [ErrConflict] if a newer epoch has a consumer, [ErrNoStream], and
// [*ImmutableError] if the number of partitions differs.
func (b *Broker) OpenBacklog(ctx context.Context, o BacklogOptions) (l *Backlog, err error) {
	defer errs.Annotate(&err, "open backlog %s.%d at epoch %d", o.Policy, o.Partition, o.Epoch)
	if o.Partitions < 1 || o.Partition < 0 || o.Partition >= o.Partitions {
		return nil, fmt.Errorf("no partition %d of %d", o.Partition, o.Partitions)
	}
	stream := b.names.Stream(o.Policy)
	info, err := b.js.StreamInfo(ctx, stream, "")
	if err != nil {
		return nil, err
	}
	if err := jsapi.CheckVersion(info.Config.Metadata); err != nil {
		return nil, err
	}
	have, want := info.Config.Metadata[metaPartitions], strconv.Itoa(o.Partitions)
	if have != want {
		return nil, &ImmutableError{Policy: o.Policy, Field: "partitions", Have: have, Want: want}
	}
	l = b.backlogOf(o, info)
	if err := l.takeOver(ctx, info); err != nil {
		l.hush()
		return nil, err
	}
	return l, nil
}

func (b *Broker) backlogOf(o BacklogOptions, info *jetstream.StreamInfo) *Backlog {
	l := &Backlog{
		b: b, o: o, stream: info.Config.Name, created: info.Created, last: info.State.LastSeq,
		restored: jsapi.Instants(info.Config.Metadata, jsapi.MetaRestored),
		bodies:   bodies{lean: isLean(info.State)},
		copies:   copies{leader: leaderOf(info.Cluster)},
		sweep:    sweep{wake: make(chan struct{}, 1)},
		updates:  make(chan Update), broken: make(chan error, 1),
		isBroken: make(chan struct{}),
		strays:   strays{next: 1, known: map[uint64]bool{}, wake: make(chan struct{}, 1)},
	}
	l.bare.Store(l.lean || info.State.Bytes > uint64(cmp.Or(o.Holds, defaultHolds)))
	l.chooseFilter(info.Config)
	return l
}

func (l *Backlog) takeOver(ctx context.Context, info *jetstream.StreamInfo) error {
	// The servers of a cluster see a subscription at different times.
	if l.o.Wake != nil && l.leader == "" && info.State.Msgs == 0 && len(info.Config.Subjects) > 0 {
		if err := l.listen(info.Config.Subjects[0]); err != nil {
			return jsapi.Translate(err)
		}
		l.rest.atOnce = true
	}
	// Strays are listed first, because Done must recognize them: acknowledging an undelivered
	// message makes the consumer skip all earlier ones.
	astray, err := l.gather(ctx)
	if err != nil {
		return err
	}
	l.held = l.owed()
	if err := l.evict(ctx); err != nil {
		return err
	}
	if err := l.passOver(ctx, info.Cluster); err != nil {
		return err
	}
	l.b.owed.Delete(l.place())
	if l.rest.atOnce {
		l.sweep.over.Store(true)
		return nil
	}
	l.hush()
	return l.begin(astray)
}

func (l *Backlog) begin(astray []job.Arrived) error {
	consumer := l.b.names.consumer(l.o.Partition, l.o.Epoch)
	var err error
	if l.acks, err = newAcks(l.b.js, l.stream, consumer); err != nil {
		return jsapi.Translate(err)
	}
	puller, err := jsapi.NewPuller(l.b.js, l.stream, consumer)
	if err != nil {
		l.acks.close()
		return jsapi.Translate(err)
	}
	background, cancel := context.WithCancel(context.Background())
	l.stop, l.cancel = background.Done(), cancel
	puller.WakeIdle, puller.Received = true, l.received
	if l.leader == "" {
		// A single server loses no pulls, but its disk or garbage collector may stall it for
		// seconds. It must not deliver everything again then.
		puller.Patience = jsapi.SweepPatience
	}
	l.puller = puller
	l.pulling.Go(func() { l.pull(background, astray) })
	if !l.sweep.over.Load() {
		l.pulling.Go(func() { l.sweepUp(background) })
	}
	l.pulling.Go(func() { l.look(background) })
	return nil
}

// Update is one event of a backlog. One field is set, or both Swept and Idle.
type Update struct {
	// Arrived holds up to 512 jobs in stream order. Pulling pauses until the next call. The
	// stream's first job may come again.
	Arrived []job.Arrived
	// Stray holds malformed jobs stored outside all partitions.
	Stray []job.Arrived
	// Swept is set once, when every job stored up to Last has come.
	Swept bool
	// Confirmed holds the sequences of finished jobs that were removed from the stream.
	Confirmed []uint64
	// Idle is set after some seconds without jobs: call [Backlog.Rest], and Next again only after
	// [BacklogOptions.Wake] and [Backlog.Resume].
	Idle bool
}

// Next waits for the next update; only one goroutine may call it, until the backlog is closed. It
// returns an error once when deliveries may have been lost, and then only confirmations: open the
// backlog again to get every job again. After Close it returns [ErrClosed].
func (l *Backlog) Next(ctx context.Context) (Update, error) {
	if l.rest.atOnce {
		return Update{Swept: true, Idle: true}, nil
	}
	for {
		ended := false
		select {
		case u := <-l.updates:
			return u, nil
		case err := <-l.broken:
			return Update{}, err
		case <-l.acks.news:
		case <-l.acks.ended:
			ended = true
		case <-ctx.Done():
			return Update{}, ctx.Err()
		}
		if seqs := l.acks.takeConfirmed(); len(seqs) > 0 {
			return Update{Confirmed: seqs}, nil
		}
		if ended {
			return Update{}, ErrClosed
		}
	}
}

func (l *Backlog) report(u Update) bool {
	select {
	case l.updates <- u:
		return true
	case <-l.isBroken:
	case <-l.stop:
	}
	return false
}

// Last is the stream's last sequence at the opening.
func (l *Backlog) Last() uint64 { return l.last }

// Born distinguishes sequences of a recreated stream: it is the time of the stream's creation or,
// for jobs stored after a restore, of the restore.
func (l *Backlog) Born(stored time.Time) time.Time {
	born := l.created
	for _, at := range l.restored {
		if !stored.Before(at) {
			born = at
		}
	}
	return born
}

// StreamCreated is when the policy's stream was created: a recreated one numbers its jobs anew.
func (l *Backlog) StreamCreated() time.Time { return l.created }

// Done acknowledges a finished job until the server confirms it. It never blocks.
func (l *Backlog) Done(seq uint64) {
	if l.strays.finish(seq) || l.acks == nil {
		return
	}
	tick, found := l.ticked.forget(seq)
	if !found {
		l.acks.add(seq)
		return
	}
	l.pulling.Go(func() {
		l.noteEnd(seq, tick)
		l.acks.add(seq)
	})
}

func (l *Backlog) pull(ctx context.Context, astray []job.Arrived) {
	defer func() {
		l.received = l.puller.Received
		l.puller.Stop()
		l.puller = nil // its buffers take most of a backlog's memory
	}()
	if !l.hand(astray) {
		return
	}
	signal(l.sweep.wake)
	batch := make([]jsapi.Delivery, 0, jsapi.PullHandOver)
	for {
		var err error
		if batch, err = l.puller.Fetch(l.stop, batch[:0]); err != nil {
			l.fail(err)
			return
		}
		if len(batch) == 0 {
			signal(l.sweep.wake)
			continue
		}
		arrived := make([]job.Arrived, len(batch))
		for i, d := range batch {
			arrived[i] = l.b.names.arrived(d.Message, l.bare.Load() || isBare(d.Message))
			l.ticked.learn(arrived[i])
		}
		last := batch[len(batch)-1]
		clear(batch)
		if !l.handOver(ctx, arrived) {
			l.unheard = true
			return
		}
		if last.Pending == 0 || last.Seq > l.last {
			l.current.Store(true)
			signal(l.sweep.wake)
		}
	}
}

func (l *Backlog) fail(err error) {
	select {
	case <-l.stop:
		return
	default:
	}
	l.breakOnce.Do(func() {
		l.broken <- fmt.Errorf("backlog %s.%d: %w", l.o.Policy, l.o.Partition, err)
		close(l.isBroken)
	})
}

func (l *Backlog) look(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	var first, passed uint64 // of the stream at the last look; handed over again
	for {
		select {
		case <-l.stop:
			return
		case <-l.isBroken:
			return
		case <-l.strays.wake:
			l.remove(ctx)
			continue
		case <-ticker.C:
		}
		// A broken stream shows in the pulls.
		l.remove(ctx)
		astray, _ := l.gather(ctx)
		if !l.hand(astray) {
			return
		}
		info, err := l.b.js.StreamInfo(ctx, l.stream, "")
		if err != nil {
			continue
		}
		l.dress(ctx, info.State)
		if first == info.State.FirstSeq && first != passed && l.handPassed(ctx, first) {
			passed = first
		}
		first = info.State.FirstSeq
		if l.idles(info) {
			l.report(Update{Idle: true})
			return
		}
	}
}

// handPassed hands over the stream's first job if it stays there although the consumer is past it.
// On three nodes, a job stored while its leader stopped stayed in the stream, no consumer delivered
// it, and in the end it was deleted. The owner recognizes a job that came before.
func (l *Backlog) handPassed(ctx context.Context, first uint64) bool {
	l.sweep.mu.Lock()
	past := l.sweep.over.Load() && l.sweep.handed > first
	l.sweep.mu.Unlock()
	if !past {
		return false
	}
	m, err := l.b.js.MessageAt(ctx, l.stream, first)
	if err != nil || !strings.HasPrefix(m.Subject, strings.TrimSuffix(l.filter, ">")) {
		return errors.Is(err, ErrNotFound) || err == nil
	}
	arrived := []job.Arrived{l.b.names.arrived(m, l.bare.Load() || isBare(m))}
	l.ticked.learn(arrived[0])
	return l.report(Update{Arrived: arrived})
}

// Close stops pulling and waits up to 5 seconds for confirmations, or after a break only until
// acknowledgements are sent. The error has the number of unconfirmed ones: the next owner gets
// their jobs again, and deletes the consumer.
func (l *Backlog) Close(ctx context.Context) (err error) {
	defer errs.Annotate(&err, "close backlog %s.%d", l.o.Policy, l.o.Partition)
	ctx, cancel := context.WithTimeout(ctx, 5*l.b.js.Timeout/2)
	defer cancel()
	l.rest.mu.Lock()
	l.rest.closed = true
	l.rest.mu.Unlock()
	l.hush()
	if l.acks == nil {
		return nil
	}
	l.cancel()
	l.pulling.Wait()
	select {
	case <-l.isBroken:
		l.acks.sendAll()
	default:
		l.acks.settle(ctx)
	}
	err = l.b.nc.FlushWithContext(ctx)
	if left := l.acks.close(); left > 0 && err == nil {
		err = fmt.Errorf("%d unconfirmed acknowledgements", left)
	}
	return err
}
