package workers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/buildinfo"
	"github.com/penstock-mq/penstock/internal/installation"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/alarm"
	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// Drainer starts the jobs of queues at their policies' rates. Any number of drainers, in any number
// of processes, share the work and keep to one rate together. See the package documentation.
type Drainer struct {
	*calls
	options Options
	broker  *queue.Broker

	// The parts. Each says what it is, and what it may touch.
	catalog   *catalog
	gate      *gate
	pool      *pool
	backlogs  *backlogs
	remote    *remote
	lender    *lender
	questions *questions
	performer performer
	tallies   *tallies
	outages   *outages
	notices   *notices
	proof     *proof
	*unreadable

	// Of the loop alone.
	core      *core.Core // nil in a process that only lends
	bell      *alarm.Alarm
	rings     <-chan struct{}  // of the bell
	set       policy.Entries   // nil until it is known
	observed  map[string]bool  // policies that the observer has heard of
	ready     bool             // Options.Ready was called
	closed    bool             // the connection, for good
	leave     <-chan struct{}  // when to stop, nil once it has begun
	grace     <-chan time.Time // then when running jobs are interrupted
	late      <-chan time.Time // then when nobody waits for them any more
	interrupt func()           // ends the contexts of all handlers
}

// performer carries out what the core wants, in the loop: each part its own.
type performer struct {
	*backlogs  // Open, Close, Fetch, Ack
	*pool      // Start
	*remote    // Offer, Refuse, StartElsewhere
	*records   // Read, Write, Delete
	*journal   // Save, Forget, NoteDone, NoteEnd
	*letters   // Bury
	*questions // WorkOn, Report
	*teller    // Tell…
}

// New makes a drainer on a connection. Nothing happens before [Drainer.Run]. The connection should
// retry for ever (nats.MaxReconnects(-1)).
func New(nc *nats.Conn, o Options) (*Drainer, error) {
	if o.Lease == 0 {
		o.Lease = installation.Lease(o.Replicas)
	}
	if o.Lease < time.Second {
		return nil, fmt.Errorf("lease %v: must be at least 1s", o.Lease)
	}
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	if o.Memory < LeastMemory {
		return nil, fmt.Errorf("memory %d: must be at least %d bytes", o.Memory, LeastMemory)
	}
	if o.Grace == 0 {
		o.Grace = 30 * time.Second
	}
	if o.Ready == nil {
		o.Ready = func() {}
	}
	o.Observer = o.Observer.complete()
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	broker, err := queue.NewBroker(nc,
		queue.Options{Prefix: o.Prefix, Replicas: o.Replicas, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	jobs, interrupt := context.WithCancel(context.Background())
	l := newLoop(o.Logger)
	c := newCalls(l, patience(o.Lease))
	w := &wire{nc: nc, log: o.Logger}
	d := &Drainer{
		calls: c, options: o, broker: broker, interrupt: interrupt,
		catalog: &catalog{log: o.Logger, names: broker.Names(), target: o.Target,
			attempt: o.Observer.Attempt,
			keep: func(policy string, keep time.Duration) {
				broker.KeepHistory(policy, keep, func() { o.Observer.HistoryLost(policy) })
			},
			handlers: map[string]Handler{}, policies: map[string]policy.Policy{}},
		gate:      &gate{clock: l.clock},
		questions: &questions{calls: c, broker: broker},
		tallies:   &tallies{log: o.Logger},
		outages: &outages{log: o.Logger, observe: o.Observer.Breaker,
			policies: map[string]*outage{}},
		notices: &notices{log: o.Logger, open: map[notice]string{}},
		proof:   &proof{log: o.Logger, observe: o.Observer.Lease, patient: o.Lease},
	}
	d.unreadable = &unreadable{log: o.Logger, table: broker.Tables().Partitions, told: o.Observer}
	d.backlogs = &backlogs{calls: c, broker: broker, catalog: d.catalog, questions: d.questions,
		observe: o.Observer.Owned, memory: o.Memory, all: map[handle.Partition]*backlog{},
		owned: map[string]int{}, places: make(chan struct{}, openAtOnce), unreadable: d.unreadable}
	owed := &callbacks{calls: c, broker: broker, lost: o.Observer.CallbackLost,
		producer: broker.NewProducer(queue.ProducerOptions{Timeout: c.patience})}
	d.pool = &pool{loop: l, gate: d.gate, broker: broker, catalog: d.catalog,
		backlogs: d.backlogs, callbacks: owed, observer: o.Observer, jobs: jobs,
		results: make(chan core.Finished, 1024)}
	d.remote = &remote{calls: c, wire: w, pool: d.pool, catalog: d.catalog, linger: o.Lease / 2,
		workerless: workerless{log: o.Logger, observe: o.Observer.Workerless,
			policies: map[string]*missing{}},
		offers: map[string]*offer{}, others: map[string]pace.Instant{},
		runs: map[string]chan *nats.Msg{}}
	d.lender = &lender{calls: c, wire: w, broker: broker, catalog: d.catalog, notices: d.notices,
		jobs: jobs, crews: map[string]*workforce{}, reservations: map[string]*reservation{},
		unconfirmed: make(chan struct{}, mostUnconfirmed)}
	d.performer = performer{d.backlogs, d.pool, d.remote,
		&records{calls: c, nc: nc, tables: broker.Tables(), proof: d.proof,
			unreadable: d.unreadable},
		&journal{calls: c, attempts: broker.Tables().Attempts, ends: broker.Ends(),
			catalog: d.catalog, backlogs: d.backlogs},
		&letters{calls: c, broker: broker, catalog: d.catalog, backlogs: d.backlogs, gate: d.gate,
			callbacks: owed, observer: o.Observer, tallies: d.tallies},
		d.questions,
		&teller{loop: l, broker: broker, ended: o.Observer.Ended, outages: d.outages}}
	return d, nil
}

// have gives the parts the core that they belong to.
func (d *Drainer) have(c *core.Core) {
	d.core = c
	d.backlogs.core, d.remote.core, d.questions.core = c, c, c
	d.performer.journal.core, d.performer.teller.core = c, c
	d.lender.core, d.lender.own = c, d.remote
}

// patience is how long a call may take: so short that there is time for another before the lease
// ends.
func patience(lease time.Duration) time.Duration {
	return min(max(lease/3, time.Second), 3*time.Second)
}

// Handle registers the handler of a policy's jobs, before Run. The policy must have a queue and no
// target: a policy's target runs all of its jobs, in every drainer, so a handler beside one is
// refused, with an error in the log. A handler whose policy does not exist yet waits for it, with a
// warning.
func (d *Drainer) Handle(policy string, handle Handler) {
	d.catalog.handlers[policy] = handle
}

// Health is nil while this drainer takes part, and otherwise says why it starts nothing: it has no
// lease yet, or its lease could not be renewed, as when JetStream does not answer or has no room.
func (d *Drainer) Health() error {
	if err := d.proof.health.Load(); err != nil {
		return *err
	}
	if d.options.LendOnly {
		return nil
	}
	return errNoLease
}

// Notes are what an operator should know of this drainer though it takes part: records that were
// damaged, and those of a newer format, which stop what they are about.
func (d *Drainer) Notes() []string { return d.notes() }

// newerRecords are the records of a newer format, as the loop knows them.
func (d *Drainer) newerRecords() (names []string) {
	d.core.Newer(func(t core.Table, key string) {
		names = append(names, recordName(d.performer.table(t), key))
	})
	for _, b := range d.backlogs.all {
		if b.newer != "" {
			names = append(names, b.newer)
		}
	}
	slices.Sort(names)
	return names
}

// AskValve is [queue.Broker.AskValve], for a program that runs a drainer: what asks a valve of that
// drainer does not go over NATS.
func (d *Drainer) AskValve(ctx context.Context, policy string, partition int, q job.Question) (
	job.Answer, error) {

	return d.questions.valve(ctx, policy, partition, q)
}

// Run drains until the context ends. Then it hands its partitions over, lets running jobs finish
// for at most [Options.Grace], and returns nil. It can be called once.
func (d *Drainer) Run(ctx context.Context) error {
	defer d.broker.KeepMinutes()
	defer d.wait.Wait()
	defer d.interrupt()
	defer d.end()
	defer close(d.stopped)
	d.leave = ctx.Done()
	if d.options.LendOnly {
		return d.lend()
	}
	made, err := d.setUp(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	d.have(core.New(core.Options{
		Name: "d" + rand.Text()[:12], Lease: d.options.Lease, Host: host, Pid: os.Getpid(),
		Memory:  d.options.Memory,
		Random:  mathrand.Float64,
		Version: buildinfo.Version(), Started: time.Now().UTC().Truncate(time.Millisecond),
		Crews:      d.lender.count,
		OwnersMade: made,
	}))
	d.proof.born = d.now()
	d.core.Handle(d.connected(true), d.proof.born)
	if err := d.remote.listen(); err != nil {
		return err
	}
	defer d.remote.unsubscribe(d.remote.sub)
	if err := d.lender.listen(); err != nil {
		return err
	}
	defer d.lender.unsubscribe(d.lender.sub)
	d.watchConnection()
	d.watch()
	d.every(noticeEvery, func(now pace.Instant) {
		d.core.TakeLost(func(policy, cause string, by time.Duration) {
			if cause != job.HeldByPaused {
				d.broker.Count(policy, queue.CountLateMS, by.Milliseconds())
			}
			d.options.Observer.Late(policy, cause, by)
		})
		d.core.Lowered(d.options.Observer.Adapted)
		d.core.LimitsLeft(now, d.options.Observer.LimitsLeft)
		d.core.TakeHeld(now, d.options.Observer.LimitHeld)
		d.remote.workerless.look(now)
		d.lender.look(now)
		d.look(d.newerRecords())
	})
	return d.drain()
}

// setUpLog is how often it is said that JetStream cannot be used.
const setUpLog = 10 * time.Second

// setUp waits for NATS and makes what all drainers share. It returns when the owners' records were
// made, or when the context ends.
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
			}
			if !errors.Is(err, queue.ErrUnavailable) && nc.IsConnected() {
				refused = err
				return nil
			}
		}
		if ctx.Err() == nil && time.Since(told) >= setUpLog {
			told = time.Now()
			d.log.Warn("the drainer waits: JetStream cannot be used", "error", err)
		}
		return err
	})
	if refused != nil && ctx.Err() == nil {
		return made, refused
	}
	if !told.IsZero() && ctx.Err() == nil {
		d.log.Info("JetStream can be used now")
	}
	return made, nil
}

// drain is the loop: it tells the core what happens, and carries out what the core wants. A turn of
// it has three steps:
//
//	receive  waits until something happens, and takes what else has come
//	turn     has the core decide, and does what it wants
//	rearm    sets the bell for when the core wants to decide again
//
// Its priorities, the first of which a turn must not hold up by the others:
//
//  1. What is due starts, and the lease is renewed. So a turn begins with what was decided for its
//     instant, and nothing before that takes longer than receiveFor, however much arrives.
//  2. Outcomes go before other events: they make room for the next start.
//  3. Checkpoints and questions come after the starts of the turn; questions take it by small
//     pieces (see [core.Core.Ponder]).
//  4. What is told to people comes last.
//
// Nothing in a turn waits: whatever takes longer than a computation has a goroutine of its own.
func (d *Drainer) drain() (err error) {
	if d.bell, err = alarm.New(); err != nil {
		return err
	}
	d.rings = d.bell.Rings
	d.spawn(d.bell.Run)
	defer d.bell.Stop()
	defer d.backlogs.closeAll()
	defer func() { d.tallies.tell(d.now(), true) }()
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
			d.log.Info("everything is handed over, and no job runs")
			return nil
		}
		if err := d.bell.Set(d.core.Wake(now), d.now); err != nil { // rearm
			return err
		}
	}
}

// receiveFor bounds how long arrivals and outcomes keep the loop from what is due.
const receiveFor = 500 * time.Microsecond

// receive waits until something happens, and then takes what else has come, but not so much that
// starts become late. It returns what time it is then.
func (d *Drainer) receive() (now pace.Instant, err error) {
	select {
	case e := <-d.events:
		e.take(d.core, d.now())
	case r := <-d.pool.results:
		d.core.Handle(r, d.now())
	case <-d.rings:
		d.bell.Rang()
	case <-d.leave:
		d.beginToLeave()
	case <-d.grace:
		d.cutOff()
	case <-d.late:
		return 0, d.tooLate()
	}
	now = d.now()
	for end := now.Add(receiveFor); now < end && d.takeNext(now); {
		now = d.now()
	}
	if d.closed {
		d.interrupt()
		return now, errors.New("the connection to NATS was closed")
	}
	return now, nil
}

// takeNext takes an outcome, or else an event, and reports whether there was one.
func (d *Drainer) takeNext(now pace.Instant) bool {
	select {
	case r := <-d.pool.results:
		d.core.Handle(r, now)
		return true
	default:
	}
	select {
	case e := <-d.events:
		e.take(d.core, now)
	default:
		return false
	}
	return true
}

// turn has the core decide what is to be done, and does it.
func (d *Drainer) turn(now pace.Instant) {
	if now >= d.core.TickAt && d.broker.Conn().IsConnected() != d.core.Connected {
		d.core.Handle(d.connected(!d.core.Connected), now) // its status events can be dropped
	}
	jumps := d.clock.Jumps()
	if jumps != d.gate.heard.Load() {
		d.log.Warn("the clocks of this machine jumped: nothing starts until the lease is renewed")
		d.core.Handle(core.Jumped{}, now)
	}
	d.core.Decide(now)
	d.gate.set(d.core.Fence(), jumps)
	d.core.Perform(d.performer)

	d.core.Checkpoint(now)
	d.core.Ponder(d.now)
	d.core.Perform(d.performer)

	d.tallies.tell(now, false)
	d.outages.tell(d.core.Breakers(maps.Keys(d.outages.policies)), now)
	d.proof.tell(d.core, now)
	if !d.ready && d.core.Ready(now) {
		d.ready = true
		d.options.Ready()
	}
}
