package workers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/buildinfo"
	"github.com/penstock-mq/penstock/internal/seldom"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// Options of a [Drainer]. The zero value works.
type Options struct {
	// Prefix is nats.prefix of the configuration; default "penstock".
	Prefix string
	// Replicas is how many servers keep the records that drainers share; default 1.
	Replicas int
	// Lease is how long this process's proof of life lasts, and so about how long its work stands still after it crashed:
	// default 5 s, or 15 s with three replicas; at least 1 s.
	Lease time.Duration
	// Policies are those whose valves this drainer may own; empty: all that it has workers for, or with OwnAll all.
	Policies []string
	// OwnAll lets the drainer own the valves of policies that it has no workers for. Their jobs run in workers elsewhere.
	OwnAll bool
	// LendOnly makes a process that owns no valves and only lends its workers to those of others: see
	// docs/workers-protocol.md. Lease, Policies, OwnAll and Observer mean nothing then.
	LendOnly bool
	// Target returns the handler of a policy that none was registered for; a nil Handler when it has none either. The entry
	// also says who wrote the policy, which decides what its target may be. Nil: only registered handlers run.
	Target func(queue.PolicyEntry) (Handler, error)
	// Grace is how long running jobs may go on when the drainer stops; default 30 s. Then their contexts end.
	Grace time.Duration
	// Ready is called once, when the drainer's lease is held and it takes part.
	Ready func()
	// Observer hears of starts and outcomes; default none.
	Observer Observer
	// Logger defaults to none.
	Logger *slog.Logger
}

// Observer hears what a drainer does. Each function may be nil; they are called from many goroutines and must return at once.
type Observer struct {
	// Started tells how late a start was for its time, and how long the job had waited since it was accepted.
	Started func(policy string, lateness, wait time.Duration)
	// Finished tells how an attempt ended: done, failed, throttled, permanent (no other can succeed), returned (not started
	// after all) or uncounted (interrupted, or its worker elsewhere left).
	Finished func(policy, outcome string)
	// Ended tells how a job ended: done; dead, once the dead letter is stored, whatever its reason; or cancelled, by an
	// operator.
	Ended func(policy, outcome string)
	// Policy tells that there is a policy whose jobs this drainer may start, or that there is none of that name any more.
	Policy func(policy string, known bool)
	// Workerless tells that jobs of a policy that this drainer owns have been due for some seconds while there is no worker
	// for them anywhere, or that this is over.
	Workerless func(policy string, workerless bool)
	// Owned tells how many partitions of a policy this drainer owns.
	Owned func(policy string, partitions int)
	// Breaker tells how many breakers of a policy are open in this drainer: those of single buckets, and the one of all of
	// them together. See [Unavailable].
	Breaker func(policy string, open int)
	// Lease tells whether this drainer holds its lease. Without it nothing starts.
	Lease func(held bool)
	// Discarded tells that old dead letters of a policy were discarded, to make room for new ones.
	Discarded func(policy string, letters uint64)
}

// complete is the observer with functions that do nothing in place of those that are missing.
func (o Observer) complete() Observer {
	if o.Started == nil {
		o.Started = func(string, time.Duration, time.Duration) {}
	}
	if o.Finished == nil {
		o.Finished = func(string, string) {}
	}
	if o.Ended == nil {
		o.Ended = func(string, string) {}
	}
	if o.Policy == nil {
		o.Policy = func(string, bool) {}
	}
	if o.Workerless == nil {
		o.Workerless = func(string, bool) {}
	}
	if o.Owned == nil {
		o.Owned = func(string, int) {}
	}
	if o.Breaker == nil {
		o.Breaker = func(string, int) {}
	}
	if o.Lease == nil {
		o.Lease = func(bool) {}
	}
	if o.Discarded == nil {
		o.Discarded = func(string, uint64) {}
	}
	return o
}

// Drainer starts the jobs of queues at their policies' rates. Any number of drainers, in any number of processes, share the
// work and keep to one rate together. See the package documentation.
type Drainer struct {
	broker   *queue.Broker
	options  Options
	log      *slog.Logger
	seldom   *seldom.Log // for what others can cause again and again
	clock    *timepiece
	handlers map[string]Handler

	fence     atomic.Int64  // instant before which jobs may start …
	heard     atomic.Uint64 // … as the core says, which has heard of so many jumps of the clock
	health    atomic.Pointer[error]
	results   chan result
	events    chan func(now instant)
	stopped   chan struct{}
	jobs      context.Context // of all handlers
	calls     calls           // under way, and waiting for their turn
	struggles struggles
	wait      sync.WaitGroup // everything that the loop has started

	// Of the loop alone.
	core       *core
	ownersMade time.Time       // see coreOptions
	set        queue.PolicySet // nil until it is known
	policies   map[string]policy.Policy
	running    map[string]Handler // by policy, registered or made of a target
	backlogs   map[*partition]*backlog
	questions  []*question
	behind     bool // with questions
	owned      map[string]int
	observed   map[string]bool // policies that the observer has heard of
	letters    letters
	outages    outages
	proof      proof
	born       instant // of the first attempt to get a lease
	notices    notices
	missing    map[string]*missing // by policy, jobs that no worker takes
	ownersAt   instant             // when to ask for owners again
	closed     bool                // the connection, for good
	remote     *remote             // nil when this process only lends
	lender     *lender

	unconfirmed chan struct{} // limits outcomes of lent jobs under way
}

// backlog is an owned partition's connection to its stream.
type backlog struct {
	ctx      context.Context // until the partition is no longer ours
	cancel   func()
	epoch    uint64
	open     *queue.Backlog // nil while it is being opened
	created  time.Time      // of the stream
	answers  func()         // stops answering questions
	unopened context.CancelFunc
}

// New makes a drainer on a connection. Nothing happens before [Drainer.Run]. The connection should retry for ever
// (nats.MaxReconnects(-1)).
func New(nc *nats.Conn, o Options) (*Drainer, error) {
	if o.Lease == 0 {
		o.Lease = 5 * time.Second
		if o.Replicas >= 3 {
			o.Lease = 15 * time.Second
		}
	}
	if o.Lease < time.Second {
		return nil, fmt.Errorf("lease %v: must be at least 1s", o.Lease)
	}
	if o.Grace == 0 {
		o.Grace = 30 * time.Second
	}
	if o.Ready == nil {
		o.Ready = func() {}
	}
	o.Observer = o.Observer.complete()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	broker, err := queue.NewBroker(nc, queue.Options{Prefix: o.Prefix, Replicas: o.Replicas, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	return &Drainer{
		broker: broker, options: o, log: o.Logger, seldom: seldom.New(o.Logger),
		struggles: struggles{log: o.Logger, lines: seldom.New(o.Logger)}, clock: newTimepiece(), handlers: map[string]Handler{},
		results: make(chan result, 1024), events: make(chan func(instant), 256), stopped: make(chan struct{}),
		policies: map[string]policy.Policy{}, running: map[string]Handler{}, backlogs: map[*partition]*backlog{},
		owned: map[string]int{}, letters: letters{log: o.Logger},
		outages: outages{log: o.Logger, observe: o.Observer.Breaker, policies: map[string]*outage{}},
		notices: notices{log: o.Logger, open: map[notice]string{}}, missing: map[string]*missing{}, unconfirmed: make(chan struct{}, mostUnconfirmed),
	}, nil
}

// Handle registers the handler of a policy's jobs, before Run. The policy must have a queue and no target: a policy's target
// runs all of its jobs, in every drainer, so a handler beside one is refused, with an error in the log. A handler whose policy
// does not exist yet waits for it, with a warning.
func (d *Drainer) Handle(policy string, handle Handler) { d.handlers[policy] = handle }

// Run drains until the context ends. Then it hands its partitions over, lets running jobs finish for at most
// [Options.Grace], and returns nil. It can be called once.
func (d *Drainer) Run(ctx context.Context) error {
	jobs, interrupt := context.WithCancel(context.Background())
	defer interrupt()
	d.jobs = jobs
	background, cancel := context.WithCancel(context.Background())
	defer d.wait.Wait()
	defer cancel()
	defer close(d.stopped)

	if d.options.LendOnly {
		return d.runLending(ctx, background, interrupt)
	}
	if err := d.setUp(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	d.core = newCore(coreOptions{
		name: processName(), lease: d.options.Lease, host: host, pid: os.Getpid(), random: mathrand.Float64,
		version: buildinfo.Version(), started: time.Now().UTC().Truncate(time.Millisecond), crews: d.crews,
		ownersMade: d.ownersMade,
	})
	d.born = d.now()
	d.connected(true, d.born)
	if err := d.listen(); err != nil {
		return err
	}
	defer d.unsubscribe(d.remote.sub)
	if err := d.startLending(); err != nil {
		return err
	}
	defer d.unsubscribe(d.lender.sub)
	d.watch(background)
	d.lookNowAndThen(background)
	return d.loop(ctx, background, interrupt)
}

// setUpLog is how often it is said that JetStream cannot be used.
const setUpLog = 10 * time.Second

// setUp waits for NATS and makes what all drainers share. It returns when the context ends.
func (d *Drainer) setUp(ctx context.Context) error {
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
				d.ownersMade, err = d.broker.Partitions().Created(ctx)
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
		return refused
	}
	if !told.IsZero() && ctx.Err() == nil {
		d.log.Info("JetStream can be used now")
	}
	return nil
}

func processName() string { return "d" + rand.Text()[:12] }

func (d *Drainer) now() instant { return d.clock.now() }

// post gives the loop something to do. False: it has ended.
func (d *Drainer) post(event func(now instant)) bool {
	select {
	case <-d.stopped:
		return false
	default:
	}
	select {
	case d.events <- event:
		return true
	case <-d.stopped:
		return false
	}
}

// spawn starts a goroutine that Run waits for.
func (d *Drainer) spawn(f func()) { d.wait.Go(f) }

// loop is the drainer: it feeds events to the core and carries out what the core wants.
func (d *Drainer) loop(ctx, background context.Context, interrupt func()) error {
	alarm, err := newAlarm()
	if err != nil {
		return err
	}
	d.spawn(alarm.run)
	defer alarm.stop()
	if err := alarm.reset(0); err != nil {
		return err
	}
	done := ctx.Done()
	var grace <-chan time.Time
	var end <-chan time.Time
	ready := false
	defer d.closeAll()
	defer func() { d.letters.tell(d.now(), true) }()
	for {
		select {
		case event := <-d.events:
			event(d.now())
		case r := <-d.results:
			d.core.finished(r.run, r.outcome, d.now())
		case <-alarm.rings:
		case <-done:
			done = nil
			d.core.leave(d.now())
			d.stopLending()
			grace = time.After(d.options.Grace)
			d.sayStopping()
		case <-grace:
			d.sayCutOff()
			interrupt()
			end = time.After(d.options.Lease)
		case <-end:
			return errors.New("stopped before everything was handed over: some jobs may run twice")
		}
		d.drain()
		if d.closed {
			interrupt()
			return errors.New("the connection to NATS was closed")
		}
		now := d.now()
		if now >= d.core.tickAt && d.broker.Conn().IsConnected() != d.core.connected {
			d.connected(!d.core.connected, now) // its status events can be dropped
		}
		jumps := d.clock.jumps.Load()
		if jumps != d.heard.Load() {
			d.log.Warn("the clocks of this machine jumped: nothing starts until the lease is renewed")
			d.core.jumped(now)
		}
		d.core.decide(now)
		d.fence.Store(int64(d.core.fence()))
		d.heard.Store(jumps)
		d.perform(background)
		d.core.checkpoint(now)
		d.ponder(d.now)
		d.perform(background)
		d.letters.tell(now, false)
		d.outages.tell(d.core.valves, now)
		d.watchLease(now)
		if !ready && d.core.synced && d.core.open(now) {
			ready = true
			d.options.Ready()
		}
		if d.core.leaving && d.core.left() && d.lender.idle() {
			d.resign()
			d.log.Info("everything is handed over, and no job runs")
			return nil
		}
		if err := alarm.reset(max(0, min(d.core.wake(now), d.questionsDue()).since(d.now()))); err != nil {
			return err
		}
	}
}

// resign deletes the lease, so that nobody waits for it to expire.
func (d *Drainer) resign() {
	ctx, cancel := context.WithTimeout(context.Background(), d.patience())
	defer cancel()
	if err := d.broker.Drainers().Delete(ctx, d.core.lease.id, 0); err != nil {
		d.log.Warn("lease not given up: others wait until it expires", "error", err)
	}
}

// drainFor bounds how long arrivals and outcomes keep the loop from what is due.
const drainFor = 500 * time.Microsecond

// drain takes what else has come, but not so much that starts become late.
func (d *Drainer) drain() {
	for began := d.now(); d.now().since(began) < drainFor; {
		select {
		case r := <-d.results:
			d.core.finished(r.run, r.outcome, d.now())
			continue
		default:
		}
		select {
		case event := <-d.events:
			event(d.now())
		case r := <-d.results:
			d.core.finished(r.run, r.outcome, d.now())
		default:
			return
		}
	}
}

// setPolicies takes the set of policies, as it is now.
func (d *Drainer) setPolicies(set queue.PolicySet, now instant) {
	d.set = set
	var queues []queuePolicy
	running := map[string]Handler{}
	observed := map[string]bool{}
	for name, entry := range set {
		p := entry.Policy
		if !p.HasQueue() {
			continue
		}
		handle := d.handlerOf(entry)
		if handle != nil {
			running[name] = handle
		}
		named := len(d.options.Policies) == 0 || slices.Contains(d.options.Policies, name)
		own := named && (handle != nil || d.options.OwnAll)
		queues = append(queues, queuePolicy{Policy: p, paused: entry.Paused, retired: entry.Retired,
			own: own, local: handle != nil, stored: entry.Stored})
		d.policies[name] = p
		if own {
			observed[name] = true
		}
	}
	d.observe(observed)
	d.running = running
	d.noticeHandlers(set)
	d.noticeNames(set)
	d.core.setPolicies(queues, now)
	d.lendTo(running)
}

// observe tells the observer which policies have become known, and which have gone.
func (d *Drainer) observe(policies map[string]bool) {
	for name := range policies {
		if !d.observed[name] {
			d.options.Observer.Policy(name, true)
		}
	}
	for name := range d.observed {
		if !policies[name] {
			d.options.Observer.Policy(name, false)
		}
	}
	d.observed = policies
}
