// Package penstock is Penstock in one import: jobs are submitted as fast as you like, and start at
// the rate that their policies allow.
//
//	p, err := penstock.Open(ctx, penstock.Options{Policies: policies})
//	…
//	defer p.Close()
//	p.Handle("stripe", func(ctx context.Context, job workers.Job) error {
//		return charge(ctx, job.Body)
//	})
//	go p.Run(ctx)
//	ticket, err := p.Submit(ctx, penstock.Job{Policy: "stripe", Key: "customer-1", Body: body})
//
// [Open] starts a NATS server inside the process, or connects to one elsewhere; [Penstock.Submit]
// and [Penstock.Check] put questions to the policies, and [Penstock.Run] runs the jobs, for all
// processes on the same NATS together at one rate. The command admitter is flags around this
// package: it has nothing that is not here.
//
// Package workers is for programs that only run jobs, package workerstest for tests of handlers.
package penstock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/httpapi"
	"github.com/penstock-mq/penstock/admission/manage"
	"github.com/penstock-mq/penstock/admission/natsapi"
	"github.com/penstock-mq/penstock/internal/buildinfo"
	"github.com/penstock-mq/penstock/internal/hosts"
	"github.com/penstock-mq/penstock/internal/lifecycle"
	"github.com/penstock-mq/penstock/internal/natsconn"
	"github.com/penstock-mq/penstock/internal/targets"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers"
)

const (
	// openTimeout bounds what Open asks of NATS. A cluster that has just started needs seconds to
	// choose its leaders.
	openTimeout = 30 * time.Second
	// rosterLease is how long a process counts as one of those that share limits after it was last
	// heard of.
	rosterLease = 5 * time.Second
)

// ErrClosed is what [Penstock.Run] returns after [Penstock.Close].
var ErrClosed = errors.New("penstock: closed")

// Penstock is one installation as this process sees it. Its methods may be called from many
// goroutines at once.
type Penstock struct {
	options  Options
	log      *slog.Logger
	listener net.Listener // nil: HTTP is not served
	nats     *natsServer
	leave    []func() // newest last

	broker   *queue.Broker
	requests *nats.Conn // of the NATS API; nil: it is not served
	service  *admission.Service
	handler  http.Handler
	budget   *admission.Budget
	known    *known
	streams  *streams
	storage  *storage
	policies *policyWriter
	drainer  *workers.Drainer // nil: AdmitOnly

	prepared  latch // JetStream has what all policies share, and the policies of the options
	listening latch // NATS requests arrive
	ready     latch // all of it, and the policies' streams are there
	stopping  atomic.Bool

	mu      sync.Mutex
	handled map[string]bool
	stop    context.CancelFunc // of Run; nil before
	ended   chan struct{}      // closed when Run has returned
	closed  bool
	closing sync.Once
}

// Open takes part in an installation, which it makes where there is none: it checks the options,
// listens for HTTP, starts the server or connects to the one that is named, creates what JetStream
// does not have yet, writes the policies and makes their streams. What goes wrong in any of that is
// the error; everything that is wrong with the options is reported at once. Nothing is left behind
// then, nor if ctx ends first.
//
// Submit and Check can be called when Open has returned, Run makes the jobs start, and Close ends
// it all.
func Open(ctx context.Context, o Options) (*Penstock, error) {
	o = o.withDefaults()
	p := &Penstock{options: o, log: o.Logger, handled: map[string]bool{}, prepared: make(latch),
		listening: make(latch), ready: make(latch)}
	err := p.open(ctx)
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Penstock) open(ctx context.Context) (err error) {
	o := p.options
	problems := []error{ctx.Err(), o.check()}
	if o.HTTP.Listen != "" {
		if p.listener, err = net.Listen("tcp", o.HTTP.Listen); err != nil {
			problems = append(problems, fmt.Errorf("listen for HTTP: %w", err))
		} else {
			p.leave = append(p.leave, func() { p.listener.Close() })
		}
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	if p.nats, err = openNATS(o); err != nil {
		return err
	}
	p.leave = append(p.leave, p.nats.close)
	if err := p.build(); err != nil || o.StartWithoutNATS {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := p.prepare(ctx); err != nil {
		return err
	}
	set, err := p.broker.Policies(ctx)
	if err != nil {
		return err
	}
	p.known.take(set)
	p.streams.pass(ctx, set)
	return ctx.Err()
}

// build makes all parts; none of them does anything yet. Requests have a connection of their own,
// and so has the drainer: none stands in front of another's acknowledgements.
func (p *Penstock) build() error {
	o := p.options
	connection, err := p.connect("penstock admitter")
	if err != nil {
		return err
	}
	p.broker, err = queue.NewBroker(connection, queue.Options{Prefix: o.Prefix, Replicas: o.Replicas,
		Logger: p.log})
	if err != nil {
		return err
	}
	if o.ServeNATS {
		if p.requests, err = p.connect("penstock admitter requests"); err != nil {
			return err
		}
	}
	if !o.AdmitOnly {
		if err := p.buildDrainer(); err != nil {
			return err
		}
	}
	producer := p.broker.NewProducer(queue.ProducerOptions{FailFast: true})
	p.service = admission.New(p.broker.Names(), producer, p.broker, o.Limits.Limit,
		admission.Options{Metrics: counted{o.Observer}})
	p.known = &known{obey: p.obey}
	p.streams = newStreams(recorded{p.broker}, p.known, o.Observer.ApplyFailed, p.log)
	p.storage = &storage{broker: p.broker, observer: o.Observer, log: p.log}
	if p.nats.inside != nil {
		p.storage.check = p.nats.inside.Check
	}
	p.policies = newPolicyWriter(p.broker, p.known, o.Observer, p.log)
	p.budget = admission.NewBudget(admission.DefaultBudget)
	p.handler = httpapi.New(p.service, httpapi.Options{
		Ready:   p.Health,
		Notes:   p.storage.notes,
		Metrics: o.HTTP.Metrics,
		Management: manage.New(p.broker, producer, manage.Options{
			Followed: p.known.wait, Logger: p.log,
			Possible: func(policy policy.Policy) []policy.Problem {
				return append(o.Limits.Possible(policy), targets.Possible(policy, o.AllowTargets)...)
			}}),
		Budget:         p.budget,
		Hosts:          hosts.Of(o.HTTP.Listen, o.HTTP.Hosts),
		TrustedProxies: o.HTTP.TrustedProxies,
		Logger:         p.log,
	})
	return nil
}

func (p *Penstock) buildDrainer() error {
	o := p.options
	connection, err := p.connect("penstock admitter drainer")
	if err != nil {
		return err
	}
	p.drainer, err = workers.New(connection, workers.Options{
		Prefix:   o.Prefix,
		Replicas: o.Replicas,
		Lease:    o.Lease,
		Policies: o.DrainPolicies,
		Target:   targets.New(connection, cmp.Or(o.Prefix, queue.DefaultPrefix), o.AllowTargets),
		OwnAll:   true,
		Grace:    o.Grace,
		Observer: o.Observer.Drain,
		Logger:   p.log,
	})
	if err != nil {
		return fmt.Errorf("make the drainer: %w", err)
	}
	return nil
}

// connect opens a connection that Close closes.
func (p *Penstock) connect(name string) (*nats.Conn, error) {
	nc, err := p.nats.connect(name)
	if err == nil {
		p.leave = append(p.leave, func() { natsconn.Leave(nc) })
	}
	return nc, err
}

// Handle registers the handler of a policy's jobs. The policy must have a queue and no target; see
// [workers.Drainer.Handle]. Handle panics on a caller's mistakes, as http.Handle does: a nil
// handler, a second one for the policy, after Run, or with AdmitOnly.
func (p *Penstock) Handle(policy string, handle workers.Handler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case handle == nil:
		panic("penstock: a nil handler for policy " + policy)
	case p.drainer == nil:
		panic("penstock: a handler for policy " + policy + ", and AdmitOnly")
	case p.stop != nil:
		panic("penstock: a handler for policy " + policy + " after Run")
	case p.handled[policy]:
		panic("penstock: a second handler for policy " + policy)
	}
	p.handled[policy] = true
	p.drainer.Handle(policy, handle)
}

// Run runs jobs, follows changes of the policies, and serves HTTP and NATS as far as the options
// ask for it, until ctx ends or Close is called. Then it hands its share of the work over to other
// processes, lets running jobs finish for at most Grace, and returns nil. It can be called once. An
// error is what this process cannot go on with; temporary ones, such as of a NATS that is away, are
// waited out.
func (p *Penstock) Run(ctx context.Context) error {
	ctx, ended, err := p.begin(ctx)
	if err != nil {
		return err
	}
	defer ended()
	o := p.options
	owners := owners{broker: p.broker, known: p.known, observe: o.Observer.Unowned, log: p.log,
		asked: map[string]*asked{}}
	serving := []func(context.Context) error{
		p.follow, p.announce, p.streams.run,
		after(p.prepared, p.storage.run), after(p.prepared, p.policies.run),
		after(p.prepared, owners.run),
	}
	if o.StartWithoutNATS {
		serving = append(serving, p.meanwhile)
	}
	if p.listener != nil {
		serving = append(serving, lifecycle.HTTP(p.listener, countErrors(p.handler, o.Observer.Answered),
			lifecycle.HTTPOptions{Grace: o.Grace, MaxConnections: o.HTTP.MaxConnections,
				MaxPerClient: o.HTTP.MaxPerClient, Unbounded: o.HTTP.TrustedProxies, Logger: p.log}))
	}
	if o.ServeNATS {
		serving = append(serving, natsapi.Serve(p.requests, p.broker.Names(), p.service, natsapi.Options{
			Budget: p.budget, Grace: o.Grace, Version: buildinfo.Version(),
			Started: func() { close(p.listening) }, Logger: p.log,
			Answered: func(status int) { o.Observer.Answered(APINATS, status) }}))
	} else {
		close(p.listening)
	}
	if o.shared {
		roster := p.broker.NewRoster(rosterLease, o.Limits.SetLive)
		serving = append(serving, after(p.prepared, roster.Run))
	}
	work := []func(context.Context) error{untilDone}
	if p.drainer != nil {
		work[0] = after(p.prepared, p.drainer.Run)
	}
	return lifecycle.Run(ctx, lifecycle.InTurn(o.HTTP.LameDuck, work, serving))
}

// begin notes that Run has been called. What it returns as ended must be called at Run's end.
func (p *Penstock) begin(ctx context.Context) (_ context.Context, ended func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, nil, ErrClosed
	case p.stop != nil:
		return nil, nil, errors.New("penstock: Run was called before")
	}
	ctx, p.stop = context.WithCancel(ctx)
	p.ended = make(chan struct{})
	context.AfterFunc(ctx, func() { p.stopping.Store(true) })
	return ctx, sync.OnceFunc(func() { p.stop(); close(p.ended) }), nil
}

// Close ends Run, if it runs, and waits for it: jobs may go on for Grace. Then it closes the
// connections and the port, stops the server inside, and removes its temporary directory. It may be
// called more than once.
func (p *Penstock) Close() {
	p.closing.Do(func() {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		if p.stop != nil { // for good, now that it is closed
			p.stop()
			<-p.ended
		}
		for i := len(p.leave) - 1; i >= 0; i-- {
			p.leave[i]()
		}
	})
}

// Ready returns a channel that is closed when Run serves all that it was asked for, and every
// policy's stream has been looked at.
func (p *Penstock) Ready() <-chan struct{} { return p.ready }

// Health says why jobs are not taken or not started now, nil when all is well: what /readyz
// answers.
func (p *Penstock) Health() error {
	switch {
	case p.stopping.Load():
		return admission.ErrStopping
	case !p.Connected():
		return errors.New("not connected to NATS: checks are answered, jobs are not taken")
	case !p.ready.isClosed():
		return fmt.Errorf("%w, or their streams not prepared", admission.ErrStarting)
	}
	if err := p.storage.fit(); err != nil {
		return err
	}
	if p.drainer != nil {
		return p.drainer.Health()
	}
	return nil
}

// Connected reports whether this process is connected to NATS.
func (p *Penstock) Connected() bool { return p.broker.Conn().IsConnected() }

// Policies returns the policies that this process goes by, as it last heard of them from NATS; nil
// before. The caller must not change them.
func (p *Penstock) Policies() queue.PolicySet { return p.known.policies() }

// Depths counts the accepted jobs of every policy with a queue: waiting, backing off and running.
// What cannot be told before ctx ends is left out.
func (p *Penstock) Depths(ctx context.Context) map[string]uint64 { return p.streams.depths(ctx) }

// Handler serves the HTTP API, for a server of the caller's own; see docs/api.md. With HTTP.Listen
// Run serves it.
func (p *Penstock) Handler() http.Handler { return p.handler }

// HTTPAddr returns where Run serves HTTP; nil when it does not.
func (p *Penstock) HTTPAddr() net.Addr {
	if p.listener == nil {
		return nil
	}
	return p.listener.Addr()
}

// NATSURL returns the address of NATS for other programs, without passwords; empty for a server
// inside without a port.
func (p *Penstock) NATSURL() string { return p.nats.shown() }

// Connect opens one more connection to NATS under a name, with the options that Penstock's own
// connections have: it retries for ever. The caller closes it.
func (p *Penstock) Connect(name string) (*nats.Conn, error) { return p.nats.connect(name) }

// Reload takes over what of the options can change while Run runs: Policies, Set, Prune and
// DrainPolicies. The rest is not looked at. If something is wrong with the policies, all stay as
// they were. It waits while NATS is away.
func (p *Penstock) Reload(ctx context.Context, o Options) error {
	o.Set = cmp.Or(o.Set, policy.DefaultSet)
	o.Prefix, o.Limits = p.options.Prefix, p.options.Limits
	if err := o.checkPolicies(); err != nil {
		return err
	}
	if !wait(ctx, p.prepared) {
		return ctx.Err()
	}
	if err := p.write(ctx, o); err != nil {
		return err
	}
	if p.drainer != nil {
		p.drainer.SetPolicies(o.DrainPolicies)
	}
	return nil
}

// follow prepares JetStream unless Open did, and then follows what the policies are.
func (p *Penstock) follow(ctx context.Context) error {
	if !p.prepared.isClosed() {
		if err := p.prepare(ctx); ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
	}
	cache := cache{file: p.options.Cache, log: p.log}
	return p.broker.WatchPolicies(ctx, func(set queue.PolicySet) {
		p.known.take(set)
		cache.keep(set)
	})
}

// prepare makes what all processes share, and hands them the policies of the options.
func (p *Penstock) prepare(ctx context.Context) error {
	nc := p.broker.Conn()
	if !natsconn.Connected(ctx, nc) {
		return fmt.Errorf("connect to NATS: %w", ctx.Err())
	}
	err := p.persist(ctx, "set up JetStream", func(ctx context.Context) error {
		err := p.broker.Setup(ctx)
		if errors.Is(err, queue.ErrVersion) && nc.ConnectedServerVersion() == "" {
			return fmt.Errorf("%w: the connection was lost", queue.ErrUnavailable)
		}
		return err
	})
	if err == nil {
		err = p.write(ctx, p.options)
	}
	if err == nil {
		close(p.prepared)
	}
	return err
}

// write hands the policies of options to all processes.
func (p *Penstock) write(ctx context.Context, o Options) error {
	if o.Policies == nil {
		return nil
	}
	return p.persist(ctx, "write the policies",
		func(ctx context.Context) error { return p.policies.write(ctx, o) })
}

// meanwhile is a part of Run: it goes by the policies that were last known when NATS is not there
// in time.
func (p *Penstock) meanwhile(ctx context.Context) error {
	select {
	case <-time.After(knownAfter):
	case <-ctx.Done():
		return nil
	}
	cache := cache{file: p.options.Cache, log: p.log}
	p.known.goBy(func() queue.PolicySet { return cache.lastKnown(p.options.Policies) })
	<-ctx.Done()
	return nil
}

// obey answers by a set of policies from now on.
func (p *Penstock) obey(set queue.PolicySet) {
	if err := p.service.SetPolicies(set); err != nil {
		p.log.Error("policies keep their former form, or stay out", "error", err)
	}
	p.options.Observer.Policies(set)
}

// announce is a part of Run: it says when all others have begun.
func (p *Penstock) announce(ctx context.Context) error {
	if wait(ctx, p.prepared, p.listening, p.streams.applied) {
		close(p.ready)
		<-ctx.Done()
	}
	return nil
}

const (
	persistFirst = 100 * time.Millisecond
	persistLast  = 2 * time.Second
	persistLog   = 10 * time.Second
)

// persist repeats what fails because NATS is not available, and says so now and then.
func (p *Penstock) persist(ctx context.Context, what string, do func(context.Context) error) error {
	var told time.Time
	for pause := persistFirst; ; pause = min(2*pause, persistLast) {
		err := do(ctx)
		if err == nil || !errors.Is(err, queue.ErrUnavailable) {
			return err
		}
		if time.Since(told) >= persistLog {
			told = time.Now()
			p.log.Warn("NATS is not available: trying again", "doing", what, "error", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

// latch is closed once, by one part, and waited for by others.
type latch chan struct{}

func (l latch) isClosed() bool {
	select {
	case <-l:
		return true
	default:
		return false
	}
}

// wait waits for latches, and reports whether all closed before ctx ended.
func wait(ctx context.Context, latches ...latch) bool {
	for _, l := range latches {
		select {
		case <-l:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// after is a part that begins when a latch closes.
func after(l latch, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if !wait(ctx, l) {
			return nil
		}
		return run(ctx)
	}
}

// untilDone is a part that has nothing to do but to end with the others.
func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
