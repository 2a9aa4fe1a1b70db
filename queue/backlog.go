package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/race"
	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

const (
	// defaultHolds is [BacklogOptions.Holds] where none is given.
	defaultHolds = 512 << 20
	// leanBytes is the average size of a stored message above which a backlog is delivered without
	// bodies.
	leanBytes = 4 << 10
	// shapeBytes is how large a stream must be before a wrong choice is worth starting over.
	shapeBytes = 16 << 20
	// lookEvery is how often an open backlog checks that it was opened in the right way.
	lookEvery = 5 * time.Second

	// ackWait is for ever: when a job is started again is not JetStream's decision.
	ackWait = 365 * 24 * time.Hour

	// Another consumer may come in between deleting and creating; one that stays is not an owner's.
	openAttempts = 20
	openRetry    = 50 * time.Millisecond

	closeTimeout = 5 * time.Second * race.Slower
)

// BacklogOptions say which partition to open, and as which owner.
type BacklogOptions struct {
	Policy     string
	Partition  int
	Partitions int    // of the policy; must be what its stream was created with
	Epoch      uint64 // the revision of the ownership record
	// Holds is how many bytes of jobs the owner holds, default 512 MiB. What a stream that is
	// larger holds comes without bodies, whatever their size, and with them what is new. Where most
	// of them are held that would be a loss: unpaced jobs whose texts are read again start at half
	// the rate.
	Holds int64
	// Wake is called when a backlog that rests may have jobs again: see [Update]. It must not block
	// for long. Nil: the backlog never rests.
	Wake func()
}

// Backlog is what a partition holds, as its owner of one epoch sees it: everything that is stored,
// in order, and then what is added. It is safe for concurrent use.
type Backlog struct {
	b        *Broker
	o        BacklogOptions
	stream   string
	created  time.Time
	restored []time.Time // from a backup, each time
	lean     bool        // all comes without bodies
	bare     atomic.Bool // so does what was stored before
	current  atomic.Bool // all of that has come
	strays   strays
	filter   string // of the consumer; empty: none
	last     uint64 // sequence of the stream
	held     uint64 // jobs that the partition's former consumer waits for
	has      uint64 // jobs that the new one will deliver, by the word of the stream's leader
	leader   string // of the stream; empty where there is no cluster
	lacks    []Lack
	puller   *jsapi.Puller
	received uint64 // consumer sequence of what the last puller got
	unheard  bool   // of that something was not handed over
	acks     *acks
	arrivals chan []job.Arrived
	broken   chan error
	idle     chan struct{}
	sweep    sweep
	rest     rest

	stop      <-chan struct{} // closed: stop pulling
	cancel    context.CancelFunc
	pulling   sync.WaitGroup
	breakOnce sync.Once
	isBroken  chan struct{}
}

// OpenBacklog takes a partition's deliveries over: it deletes every other consumer of the
// partition, whatever its owner, creates this epoch's own and starts to pull. From then on the
// former owner receives nothing and its acknowledgements have no effect. Opening the same epoch
// again starts over.
//
// It returns [ErrConflict] when a consumer of a newer epoch exists, [ErrNoStream] when the policy
// has no stream, [*ImmutableError] when the stream has another number of partitions.
func (b *Broker) OpenBacklog(ctx context.Context, o BacklogOptions) (*Backlog, error) {
	l, err := b.openBacklog(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("open backlog %s.%d at epoch %d: %w", o.Policy, o.Partition, o.Epoch,
			err)
	}
	return l, nil
}

func (b *Broker) openBacklog(ctx context.Context, o BacklogOptions) (*Backlog, error) {
	if o.Partitions < 1 || o.Partition < 0 || o.Partition >= o.Partitions {
		return nil, fmt.Errorf("no partition %d of %d", o.Partition, o.Partitions)
	}
	stream := b.names.Stream(o.Policy)
	info, err := b.js.StreamInfo(ctx, stream, "")
	if err != nil {
		return nil, jsapi.Translate(err)
	}
	if err := jsapi.CheckVersion(info.Config.Metadata); err != nil {
		return nil, err
	}
	if have, want := info.Config.Metadata[metaPartitions], strconv.Itoa(o.Partitions); have !=
		want {
		return nil, &ImmutableError{Policy: o.Policy, Field: "partitions", Have: have, Want: want}
	}
	l := b.backlogOf(o, info)
	if err := l.takeOver(ctx, info); err != nil {
		l.hush()
		return nil, err
	}
	return l, nil
}

// backlogOf returns a backlog of a stream that is not taken over yet.
func (b *Broker) backlogOf(o BacklogOptions, info *jetstream.StreamInfo) *Backlog {
	l := &Backlog{
		b: b, o: o, stream: info.Config.Name, created: info.Created, last: info.State.LastSeq,
		restored: jsapi.Instants(info.Config.Metadata, jsapi.MetaRestored),
		lean:     isLean(info.State),
		sweep:    sweep{wake: make(chan struct{}, 1), ended: make(chan struct{}, 1)},
		arrivals: make(chan []job.Arrived), broken: make(chan error, 1),
		isBroken: make(chan struct{}), idle: make(chan struct{}, 1),
		strays: strays{next: 1, known: map[uint64]bool{}, wake: make(chan struct{}, 1),
			out: make(chan []job.Arrived)},
	}
	l.bare.Store(!l.lean && info.State.Bytes > uint64(cmp.Or(o.Holds, defaultHolds)))
	l.chooseFilter(info.Config)
	l.leader = leaderOf(info.Cluster)
	return l
}

// takeOver makes the consumer in the place of all others, and begins to pull from it, or to rest.
func (l *Backlog) takeOver(ctx context.Context, info *jetstream.StreamInfo) error {
	// Among several servers some hear of who listens later than others.
	if l.o.Wake != nil && l.leader == "" && info.State.Msgs == 0 &&
		len(info.Config.Subjects) > 0 {
		if err := l.listen(info.Config.Subjects[0]); err != nil {
			return jsapi.Translate(err)
		}
		l.rest.atOnce = true
	}
	// From the beginning, because Done must know them from others: an acknowledgement of what the
	// consumer has not delivered would make it leave out all before.
	astray, err := l.gather(ctx)
	if err != nil {
		return err
	}
	if err := l.evict(ctx); err != nil {
		return err
	}
	if err := l.passOver(ctx, info.Cluster); err != nil {
		return err
	}
	if l.rest.atOnce {
		l.sweep.over = true
		return nil
	}
	l.hush()
	return l.begin(astray)
}

// begin pulls from the consumer, from where it was left. What runs in the background ends with
// Close or Rest.
func (l *Backlog) begin(astray []job.Arrived) error {
	consumer := l.b.names.Consumer(l.o.Partition, l.o.Epoch)
	var err error
	if l.acks, err = newAcks(l.b.nc, l.stream, consumer); err != nil {
		return jsapi.Translate(err)
	}
	puller, err := jsapi.NewPuller(l.b.nc, l.stream, consumer)
	if err != nil {
		l.acks.close()
		return jsapi.Translate(err)
	}
	background, cancel := context.WithCancel(context.Background())
	l.stop, l.cancel = background.Done(), cancel
	puller.WakeIdle, puller.Received = true, l.received
	l.puller = puller
	l.pulling.Go(func() { l.pull(background, astray) })
	if !l.swept() {
		l.pulling.Go(func() { l.sweepUp(background) })
	}
	l.pulling.Go(func() { l.look(background) })
	return nil
}

// chooseFilter says what the consumer is to deliver. One partition goes without a filter, which
// makes pulling many times faster. With several, the owner of partition 0 looks after the strays.
func (l *Backlog) chooseFilter(config jetstream.StreamConfig) {
	if l.o.Partitions == 1 {
		return
	}
	l.filter = l.b.names.storedIn(l.o.Policy, l.o.Partition)
	if l.o.Partition == 0 && config.SubjectTransform != nil {
		l.strays.filter = config.SubjectTransform.Source
	}
}

// isLean decides whether bodies are left out.
func isLean(state jetstream.StreamState) bool {
	return state.Msgs > 0 && state.Bytes/state.Msgs > leanBytes
}

// evict puts this epoch's consumer in the place of all others. Deleting is what evicts: resetting
// or reusing a consumer hands deliveries to an old owner's open pulls, and on three nodes resets
// under flow deleted accepted jobs (10,293 of 61,454 in 428 takeovers; 0 of 60,374 in 393 with
// this).
func (l *Backlog) evict(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		if err := l.deleteConsumers(ctx); err != nil {
			return err
		}
		leader, err := l.createConsumer(ctx)
		if err == nil {
			err = l.lead(ctx, leader)
		}
		late := errors.Is(err, errBeginsLate)
		// A work queue takes one consumer per message.
		if !late && !jsapi.HasCode(err, jsapi.CodeWorkQueueUnfiltered, jsapi.CodeWorkQueueFilter) {
			return jsapi.Translate(err)
		}
		if attempt == openAttempts && !late {
			err = fmt.Errorf("somebody else's consumer takes the partition's jobs: %w", err)
		}
		if attempt == openAttempts {
			return err
		}
		select {
		case <-ctx.Done():
			return jsapi.Translate(ctx.Err())
		case <-time.After(openRetry):
		}
	}
}

func (l *Backlog) deleteConsumers(ctx context.Context) error {
	for offset := 0; ; {
		var page struct {
			Total     int      `json:"total"`
			Consumers []string `json:"consumers"`
		}
		request := map[string]int{"offset": offset}
		if err := l.b.js.Call(ctx, "$JS.API.CONSUMER.NAMES."+l.stream, request, &page); err != nil {
			return jsapi.Translate(err)
		}
		for _, name := range page.Consumers {
			partition, epoch, ours := l.b.names.parseConsumer(name)
			switch {
			case !ours || partition != l.o.Partition:
				continue
			case epoch > l.o.Epoch:
				return fmt.Errorf("%w: epoch %d owns the partition", ErrConflict, epoch)
			}
			if l.leader != "" {
				l.held = max(l.held, l.outstanding(ctx, name))
			}
			if err := l.deleteConsumer(ctx, name); err != nil {
				return err
			}
		}
		offset += len(page.Consumers)
		if len(page.Consumers) == 0 || offset >= page.Total {
			return nil
		}
	}
}

func (l *Backlog) deleteConsumer(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, jsapi.CallTimeout)
	defer cancel()
	err := l.b.js.DeleteConsumer(ctx, l.stream, name)
	if err == nil || jsapi.HasCode(err, jsapi.CodeConsumerNotFound) ||
		errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil
	}
	return jsapi.Translate(err)
}

// createConsumer returns the server that leads the new consumer, empty when it is not replicated.
func (l *Backlog) createConsumer(ctx context.Context) (leader string, err error) {
	ctx, cancel := context.WithTimeout(ctx, jsapi.CallTimeout)
	defer cancel()
	consumer, err := l.b.js.CreateConsumer(ctx, l.stream, l.consumer())
	if err == nil {
		info := consumer.CachedInfo()
		leader = leaderOf(info.Cluster)
		// It may have been stored before the backlog listened.
		l.rest.atOnce = l.rest.atOnce && info.NumPending == 0
	}
	return leader, err
}

// leaderOf is the server of a cluster that leads a stream or a consumer; empty where there is no
// cluster, which a server that is alone tells by naming none.
func leaderOf(cluster *jetstream.ClusterInfo) string {
	if cluster == nil || cluster.Name == "" {
		return ""
	}
	return cluster.Leader
}

// dress has bodies come again once all that was stored has come without. A consumer takes that
// while it delivers, and who gets a message sees what it is.
func (l *Backlog) dress(ctx context.Context) {
	if !l.bare.Load() || !l.current.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, jsapi.CallTimeout)
	defer cancel()
	config := l.consumer()
	config.HeadersOnly = false
	if _, err := l.b.js.UpdateConsumer(ctx, l.stream, config); err == nil {
		l.bare.Store(false)
	}
}

// consumer is the settings of this epoch's.
func (l *Backlog) consumer() jetstream.ConsumerConfig {
	name := l.b.names.Consumer(l.o.Partition, l.o.Epoch)
	return jetstream.ConsumerConfig{
		Name: name,
		// A durable consumer without an inactive threshold stays while nobody pulls, as a slow
		// owner may for a while.
		Durable:       name,
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       ackWait,
		MaxAckPending: -1,
		MaxDeliver:    -1,
		HeadersOnly:   l.lean || l.bare.Load(),
		MemoryStorage: true,
		FilterSubject: l.filter,
	}
}

// Update is what a backlog has for its owner: one of the fields is set, or Swept and Idle.
type Update struct {
	// Arrived are stored jobs in stream order, up to 512, first those that wait, then new ones as
	// they come. While nobody asks for the next update, pulling pauses.
	Arrived []job.Arrived
	// Stray are jobs that are stored outside all partitions, for the owner of partition 0: all are
	// malformed. They come in no order with other jobs.
	Stray []job.Arrived
	// Swept comes once, after all that was stored up to Last has come: what did not is gone.
	Swept bool
	// Confirmed are the sequences of finished jobs that are gone from the stream, by the server's
	// word.
	Confirmed []uint64
	// Idle says that there have been no jobs for some seconds: call [Backlog.Rest], and after that
	// Next only once [BacklogOptions.Wake] was called and [Backlog.Resume] has returned.
	Idle bool
}

// Next waits for the next update. It is for one goroutine, which calls it until the backlog is
// closed.
//
// Once it returns an error that says why deliveries may have been lost (a gap, silence, a lost
// connection, a deleted consumer, a new leader), or [ErrShape] when the backlog should be opened
// again in another way. After that nothing arrives, and Done still works: there are only
// confirmations to come. The owner closes the backlog and opens it again, and gets everything once
// more. After Close and the last confirmations it returns [ErrClosed], and when the context ends
// that one's error.
func (l *Backlog) Next(ctx context.Context) (Update, error) {
	if l.rest.atOnce {
		return Update{Swept: true, Idle: true}, nil
	}
	select {
	case jobs := <-l.arrivals:
		return Update{Arrived: jobs}, nil
	case jobs := <-l.strays.out:
		return Update{Stray: jobs}, nil
	case <-l.sweep.ended:
		return Update{Swept: true}, nil
	case <-l.idle:
		return Update{Idle: true}, nil
	case err := <-l.broken:
		return Update{}, err
	case seqs, ok := <-l.acks.out:
		if !ok {
			return Update{}, ErrClosed
		}
		return Update{Confirmed: seqs}, nil
	case <-ctx.Done():
		return Update{}, ctx.Err()
	}
}

// Last is the stream's last sequence when the backlog was opened, by the word of the stream's
// leader.
func (l *Backlog) Last() uint64 { return l.last }

// Born is what tells a job's sequence from the same one of another stream of the policy: when the
// stream was created, or of jobs that were stored after it was restored from a backup, when it was.
func (l *Backlog) Born(stored time.Time) time.Time {
	born := l.created
	for _, at := range l.restored {
		if !stored.Before(at) {
			born = at
		}
	}
	return born
}

// StreamCreated is when the policy's stream was created: sequences are unique only together with
// it.
func (l *Backlog) StreamCreated() time.Time { return l.created }

// Done acknowledges a finished job, and repeats that until the server confirms it or the backlog is
// closed. It never blocks. After Close it does nothing.
func (l *Backlog) Done(seq uint64) {
	if !l.strays.finish(seq) && l.acks != nil {
		l.acks.add(seq)
	}
}

// pull hands deliveries over, after the strays that were found at first, until it is to stop or
// deliveries may be missing.
func (l *Backlog) pull(ctx context.Context, astray []job.Arrived) {
	defer func() {
		l.received = l.puller.Received
		l.puller.Stop()
		l.puller = nil // its room is what a backlog takes most of
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
			arrived[i] = l.b.arrived(d.Message, l.lean || isBare(d.Message))
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

// fail reports the first break, unless the backlog was closed.
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

// look checks from time to time whether the backlog would be opened differently now, or may rest,
// and looks after the strays.
func (l *Backlog) look(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
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
		// What is wrong with the stream shows in the pulls, so errors are left to the next look.
		l.dress(ctx)
		l.remove(ctx)
		astray, _ := l.gather(ctx)
		if !l.hand(astray) {
			return
		}
		info, err := l.b.js.StreamInfo(ctx, l.stream, "")
		switch {
		case err != nil:
		case !l.lean && isLean(info.State) && info.State.Bytes > shapeBytes:
			l.fail(fmt.Errorf("%w: messages are too large for a backlog with bodies", ErrShape))
			return
		case l.idles(info):
			l.idle <- struct{}{}
			return
		}
	}
}

// Close stops pulling and waits until all acknowledgements are confirmed or the context ends, at
// most 5 seconds; then the error says how many were not. They are at most repeated work: the jobs
// arrive again at the next owner. After a break it does not wait for confirmations, which may not
// come any more, only until everything has been sent. The consumer stays for the next owner to
// delete.
func (l *Backlog) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	l.hush()
	if l.acks == nil {
		return nil // it has never pulled
	}
	l.cancel()
	l.pulling.Wait()
	select {
	case <-l.isBroken:
		l.acks.sendAll()
	default:
		l.acks.settle(ctx)
	}
	err := l.b.nc.FlushWithContext(ctx)
	if left := l.acks.close(); left > 0 && err == nil {
		err = fmt.Errorf("%d acknowledgements not confirmed", left)
	}
	if err != nil {
		return fmt.Errorf("close backlog %s.%d: %w", l.o.Policy, l.o.Partition, err)
	}
	return nil
}
