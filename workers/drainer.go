package workers

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"path"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/base/buildinfo"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/server/installation"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/alarm"
	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// Drainer starts jobs of queues at their policies' rates. Drainers in any number of processes share
// the work and one rate.
type Drainer struct {
	*parts
	options Options
	began   atomic.Bool              // Run was called
	names   atomic.Pointer[[]string] // of SetPolicies, until an event takes them

	bell      *alarm.Alarm
	rings     <-chan struct{}
	next      pace.Instant    // rings then at the latest
	ended     pace.Instant    // last outcome
	set       inforce.Entries // nil: unknown
	ready     bool
	closed    bool
	leave     <-chan struct{}  // begins to stop; nil once stopping
	grace     <-chan time.Time // then interrupts running jobs
	late      <-chan time.Time // then ends the wait for them
	interrupt func()
}

// New makes a drainer, which is idle until [Drainer.Run]. The connection should reconnect without
// limit (nats.MaxReconnects(-1)).
func New(nc *nats.Conn, o Options) (*Drainer, error) {
	o.Lease = cmp.Or(o.Lease, installation.Lease(o.Replicas))
	if o.Lease < time.Second {
		return nil, fmt.Errorf("lease %v: must be at least 1s", o.Lease)
	}
	o.Memory = cmp.Or(o.Memory, DefaultMemory())
	if o.Memory < LeastMemory {
		return nil, fmt.Errorf("memory %d: must be at least %d bytes", o.Memory, LeastMemory)
	}
	if o.WorkerOnly {
		o.Policies, o.OwnAll = nil, false
	}
	o.Grace = cmp.Or(o.Grace, 30*time.Second)
	if o.Ready == nil {
		o.Ready = func() {}
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	broker, err := jet.NewBroker(nc,
		jet.Options{Prefix: o.Prefix, Domain: o.Domain, Replicas: o.Replicas, Lister: o.Lister,
			Joins: o.WorkerOnly, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	jobs, interrupt := context.WithCancel(context.Background())
	return &Drainer{options: o, interrupt: interrupt, parts: newParts(nc, broker, jobs, o)}, nil
}

// Handle registers the handler of a policy's jobs, or of all policies whose names match a pattern
// such as "mail-*"; names precede patterns, and longer patterns shorter ones. Call it before Run.
// It panics for a nil handler and a malformed pattern (see [path.Match]). The policy must have a
// queue and no target; otherwise an error is logged. A handler waits, with a warning, for a policy
// that does not exist yet.
func (d *Drainer) Handle(policy string, handle Handler) {
	if _, err := path.Match(policy, ""); err != nil {
		panic(fmt.Sprintf("workers: handler of %q: %v", policy, err))
	}
	if handle == nil {
		panic("workers: a nil handler for policy " + policy)
	}
	d.catalog.handlers[policy] = coded(d.options.Codec, handle)
}

// Health returns why this drainer starts no jobs, because it has no lease yet, renewal fails, or
// their ends could not be stored; or nil.
func (d *Drainer) Health() error {
	if err := d.broker.Unstorable(); err != nil {
		return fmt.Errorf("nothing starts: %w", err)
	}
	if err := d.proof.health.Load(); err != nil {
		return *err
	}
	return errNoLease
}

// Refuse keeps jobs from starting in this process, as their ends could not be stored, until called
// with nil.
func (d *Drainer) Refuse(reason error) { d.broker.Refuse(reason) }

// Notes returns warnings for operators: damaged records, and records of a newer format, which block
// their partitions.
func (d *Drainer) Notes() []string { return d.notes() }

func (d *Drainer) newerRecords() (names []string) {
	d.core.Newer(func(t core.Table, key string) {
		names = append(names, recordName(d.table(t), key))
	})
	for _, b := range d.backlogs.all {
		if b.newer != "" {
			names = append(names, b.newer)
		}
	}
	slices.Sort(names)
	return names
}

// AskValve is [jet.Broker.AskValve] without NATS for this drainer's own valves.
func (d *Drainer) AskValve(ctx context.Context, policy string, partition int,
	q Question) (Answer, error) {
	return d.questions.valve(ctx, policy, partition, q)
}

// Run drains until the context ends. Then it hands its partitions over, lets jobs finish for at
// most [Options.Grace], and returns nil, or an error if it could not hand over in time. It can be
// called once.
func (d *Drainer) Run(ctx context.Context) error {
	if d.began.Swap(true) {
		return errors.New("workers: Run was called before")
	}
	defer d.broker.Tally().KeepMinutes()
	defer d.wait.Wait()
	defer d.interrupt()
	defer d.end()
	defer close(d.stopped)
	d.leave = ctx.Done()
	made, err := d.setUp(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	d.core = core.New(core.Options{
		Name: "d" + rand.Text()[:12], Lease: d.options.Lease, Host: host, Pid: os.Getpid(),
		Memory: d.options.Memory, Slots: d.options.Slots, Random: mathrand.Float64,
		Version: buildinfo.Version(),
		Started: time.Now().UTC().Truncate(time.Millisecond), Crews: d.lender.count,
		OwnersMade: made})
	d.proof.born = d.now()
	d.core.Handle(d.connected(true), d.proof.born)
	if err := d.remote.listen(); err != nil {
		return err
	}
	defer d.remote.unsubscribe(d.remote.sub)
	if err := d.lender.listen(); err != nil {
		return err
	}
	defer d.lender.claims.Close()
	defer d.lender.close() // not yet if the connection was closed
	d.watchConnection()
	d.watch()
	d.every(noticeEvery, func(now pace.Instant) {
		d.tellLimits(now)
		d.outages.look(now)
		d.seldom.Flush(false)
		d.remote.workerless.look(now)
	})
	d.every(newerEvery, func(pace.Instant) { d.look(d.newerRecords()) })
	return d.drain()
}

func (d *Drainer) tellLimits(now pace.Instant) {
	take := func(event string) func(policy, name string, took time.Duration) {
		return func(policy, name string, took time.Duration) {
			d.sink.Take(queue.Event{Type: event, Policy: policy, Name: name, For: took})
		}
	}
	d.core.Tell(now, take(jet.EventLate), take(jet.EventLimitBlocked),
		func(policy string, buckets int) {
			d.tell(jet.EventLowered, policy, int64(buckets))
		},
		func(policy string, b valve.Breakers) { d.outages.changed(policy, b, now) },
		func(policy string, left []api.LimitLeft) {
			d.sink.Take(queue.Event{Type: jet.EventLimitsLeft, Policy: policy, Data: left})
		})
}

const setUpLog = 10 * time.Second

// setUp waits for NATS and creates the drainers' tables. It returns when the owners' table was
// created.
func (d *Drainer) setUp(ctx context.Context) (made time.Time, err error) {
	var refused error
	var told time.Time
	d.retry(ctx, "", func() error {
		nc := d.broker.Conn()
		err := nats.ErrDisconnected
		switch {
		case nc.IsClosed():
			refused = nats.ErrConnectionClosed
			return nil
		case nc.IsConnected():
			if err = d.broker.Setup(ctx); err == nil {
				made, err = d.broker.Tables().Partitions.Created(ctx)
				if errors.Is(err, jet.ErrNoStream) { // it was deleted meanwhile
					err = fmt.Errorf("%w: %w", jet.ErrUnavailable, err)
				}
			}
			if !errors.Is(err, jet.ErrUnavailable) && nc.IsConnected() {
				refused = err
				return nil
			}
		}
		if ctx.Err() == nil && time.Since(told) >= setUpLog {
			told = time.Now()
			d.log.Warn("drainer waiting: JetStream is not usable", "error", err)
		}
		return err
	})
	if refused != nil && ctx.Err() == nil {
		return made, refused
	}
	if !told.IsZero() && ctx.Err() == nil {
		d.log.Info("JetStream is usable now")
	}
	return made, nil
}

// drain is the loop: it reports events to the core and carries out the core's actions. Each turn
// has three steps:
//
//	receive  waits for an event, and takes others that have arrived
//	turn     lets the core decide, and performs its actions
//	rearm    sets the bell for the core's next decision
//
// Its priorities, highest first:
//
//  1. Due jobs start, and the lease is renewed. A turn begins with the decisions for its
//     instant, and anything before them takes at most receiveFor.
//  2. Outcomes go before other events: they make room for the next start.
//  3. Checkpoints and questions follow the starts of the turn; questions are answered in small
//     steps (see [core.Core.Ponder]).
//  4. Reports to people come last.
//
// A turn never blocks: work slower than a computation has its own goroutine.
func (d *Drainer) drain() (err error) {
	if d.bell, err = alarm.New(); err != nil {
		return err
	}
	d.rings = d.bell.Rings
	d.spawn(d.bell.Run)
	defer d.bell.Stop()
	defer d.backlogs.closeAll()
	defer d.seldom.Flush(true)
	if err := d.bell.Set(0, d.now); err != nil {
		return err
	}
	for {
		now, err := d.receive()
		if err != nil {
			return err
		}
		d.turn(now)
		if d.core.Leaving && d.core.Left() && d.lender.idle() {
			d.resign()
			d.log.Info("handover complete, no job is running")
			return nil
		}
		if d.core.Leaving && d.core.Running() == 0 && d.lender.idle() && d.broker.Refused() != nil {
			return errUnwritten
		}
		d.next = d.core.Wake(now)
		if err := d.bell.Set(d.next, d.now); err != nil {
			return err
		}
	}
}

var errUnwritten = errors.New("stopped without a handover, because nothing can be stored: other " +
	"drainers wait until the lease expires")

// receiveFor bounds how long arrivals and outcomes delay due starts.
const receiveFor = 500 * time.Microsecond

// yieldBefore is the least time before the next decision in which the loop yields to jobs that are
// about to end: a turn for many outcomes costs little more than a turn for one.
const yieldBefore = 2 * time.Millisecond

// receive waits for an event, and takes others for receiveFor.
func (d *Drainer) receive() (now pace.Instant, err error) {
	select {
	case do := <-d.events:
		do(d.now())
	case r := <-d.pool.results:
		now = d.now()
		d.core.Handle(r, now)
		if now.Since(d.ended) < receiveFor && d.next.Since(now) > yieldBefore {
			runtime.Gosched()
		}
		d.ended = now
	case <-d.rings:
		d.bell.Rang()
	case <-d.leave:
		d.beginToLeave()
	case <-d.grace:
		d.cutOff()
	case <-d.late:
		return 0, errors.New(
			"stopped before the handover was complete: some jobs may run twice")
	}
	now = d.now()
	for end := now.Add(receiveFor); now < end && d.takeNext(); {
		now = d.now()
	}
	if d.closed {
		d.interrupt()
		return now, errors.New("the connection to NATS was closed")
	}
	return now, nil
}

// takeNext takes an outcome, otherwise an event. It reads the clock after that: an outcome dates
// answers, and this process may have been frozen since an earlier reading.
func (d *Drainer) takeNext() bool {
	select {
	case r := <-d.pool.results:
		d.ended = d.now()
		d.core.Handle(r, d.ended)
		return true
	default:
	}
	select {
	case do := <-d.events:
		do(d.now())
	default:
		return false
	}
	return true
}

func (d *Drainer) turn(now pace.Instant) {
	if now >= d.core.TickAt && d.broker.Conn().IsConnected() != d.core.Connected {
		d.core.Handle(d.connected(!d.core.Connected), now)
	}
	if unstorable := d.broker.Unstorable() != nil; unstorable != d.core.Unstorable {
		d.core.Handle(core.Storing{Fails: unstorable}, now)
	}
	jumps := d.clock.Jumps()
	if jumps != d.gate.heard.Load() {
		d.log.Warn("the clocks of this machine jumped: nothing starts until the lease is renewed")
		d.core.Handle(core.Jumped{}, now)
	}
	d.core.Decide(now)
	d.gate.set(d.core.Fence(), jumps)
	d.core.Perform(performer{d.parts})

	d.core.Checkpoint(now)
	d.core.Ponder(d.now)
	d.core.Perform(performer{d.parts})

	d.proof.look(d.core, now)
	if !d.ready && d.core.Ready(now) {
		d.ready = true
		d.options.Ready()
	}
}

// A drainer hands over its partitions (beginToLeave), interrupts running jobs after the grace
// period (cutOff), and another lease later stops waiting for them.

func (d *Drainer) beginToLeave() {
	d.leave = nil
	d.grace = time.After(d.options.Grace)
	d.lender.close()
	d.core.Handle(core.Stopped{}, d.now())
	partitions, jobs := d.unfinished()
	d.log.Info("handing over and waiting for running jobs", "partitions", partitions, "jobs",
		jobs, "until", time.Now().Add(d.options.Grace).UTC().Format(time.RFC3339))
}

func (d *Drainer) cutOff() {
	partitions, jobs := d.unfinished()
	d.log.Warn("grace period over: interrupting running jobs", "partitions",
		partitions, "jobs", jobs, "grace", d.options.Grace)
	d.interrupt()
	d.late = time.After(d.options.Lease)
}

func (d *Drainer) unfinished() (partitions, jobs int) {
	for _, n := range d.backlogs.owned {
		partitions += n
	}
	return partitions, d.core.Running()
}

func (d *Drainer) resign() {
	ctx, cancel := context.WithTimeout(context.Background(), d.patience)
	defer cancel()
	if err := d.broker.Tables().Drainers.Delete(ctx, d.core.Lease.Id, 0); err != nil {
		d.log.Warn("lease not released: other drainers wait until it expires", "error", err)
	}
}
