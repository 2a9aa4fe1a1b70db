// Package penstock runs Penstock in a program: submit jobs at any speed, and they start at the rate
// that their policies allow.
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
// [Open] starts a NATS server inside the process or connects to a remote one. All processes on one
// NATS share one rate. The command admitter adds flags and configuration files.
//
// Package workers is for programs that only run jobs, package workerstest for tests of handlers.
package penstock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/admission/httpapi"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/kv"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/internal/server/audit"
	"github.com/penstock-mq/penstock/internal/server/door"
	"github.com/penstock-mq/penstock/internal/server/guard"
	"github.com/penstock-mq/penstock/internal/server/health"
	"github.com/penstock-mq/penstock/internal/server/hosts"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
	"github.com/penstock-mq/penstock/internal/server/natsconn"
	"github.com/penstock-mq/penstock/internal/server/node"
	"github.com/penstock-mq/penstock/internal/server/targets"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

const openTimeout = 30 * time.Second // a new cluster needs seconds to elect its leaders

// ErrClosed is returned after [Penstock.Close].
var ErrClosed = errors.New("penstock: closed")

// Penstock is this process's view of an installation. It is safe for concurrent use.
type Penstock struct {
	options  Options
	listener net.Listener // nil: HTTP is not served
	guard    *guard.Guard
	nats     *node.Server
	closers  []func() // newest last

	broker  *jet.Broker
	door    *door.Door
	node    *node.Node
	roster  *kv.Roster
	drainer *workers.Drainer // nil: AdmitOnly
	auditor *audit.Auditor   // nil: no audit

	ready    lifecycle.Latch // everything runs, and the policies' streams exist
	stopping atomic.Bool

	mu      sync.Mutex
	handled map[string]bool
	stop    context.CancelFunc // of Run; nil before
	running context.Context    // until stop
	ended   chan struct{}      // closed when Run has returned
	life    context.Context    // until Close
	end     context.CancelCauseFunc
	closing sync.Once
}

// Open joins an installation, or creates it, and writes the policies. An error about options lists
// all problems. A failed Open undoes its steps.
//
// Submit and Check work at once; Run starts the jobs.
func Open(ctx context.Context, o Options) (*Penstock, error) {
	o = o.withDefaults()
	p := &Penstock{options: o, handled: map[string]bool{}, ready: make(lifecycle.Latch)}
	p.life, p.end = context.WithCancelCause(context.Background())
	if err := p.open(ctx); err != nil {
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
			p.closers = append(p.closers, func() { p.listener.Close() })
		}
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	if p.guard, err = guard.Open(o.HTTP.guard(), o.Files, o.Logger); err != nil {
		return err
	}
	p.nats, err = node.OpenServer(o.URL, natsconn.Credentials(o.Credentials), o.Server,
		o.StartWithoutNATS, o.Logger)
	if err != nil {
		return err
	}
	p.closers = append(p.closers, p.nats.Close)
	if err := p.build(); err != nil || o.StartWithoutNATS {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return p.node.Prepare(ctx)
}

// build makes all parts without starting them. Separate connections keep API requests and the
// drainer from delaying the acknowledgements of publishes.
func (p *Penstock) build() (err error) {
	o := p.options
	if p.broker, err = p.newBroker("penstock admitter"); err != nil {
		return err
	}
	at := door.Options{Broker: p.broker, Valves: p.broker, Limits: o.Limits, Sink: o.Sink,
		Submitting: o.Submitting, Allow: o.AllowTargets, Connect: p.connect,
		Followed: func(ctx context.Context, policy string, revision uint64) {
			p.node.Followed(ctx, policy, revision)
		},
		Grace: o.Grace, Log: o.Logger, HTTP: door.HTTP{Listener: p.listener, Guard: p.guard,
			Options: httpapi.Options{Parts: p.parts, Metrics: o.HTTP.Metrics,
				Hosts:          hosts.Of(o.HTTP.Listen, o.HTTP.Hosts),
				TrustedProxies: o.HTTP.TrustedProxies},
			Server: lifecycle.HTTPOptions{MaxConnections: o.HTTP.MaxConnections,
				MaxPerClient: o.HTTP.MaxPerClient}}}
	if o.ServeNATS {
		if at.Requests, err = p.connect("penstock admitter requests"); err != nil {
			return err
		}
	}
	live := func(int) {}
	if o.shared {
		live = o.Limits.SetLive
	}
	p.roster = kv.NewRoster(p.broker.Tables().Admitters, rosterLease, live)
	p.closers = append(p.closers, p.leave)
	in := node.Options{Broker: p.broker, Store: store.New(p.broker, o.Logger), Wanted: o.wanted(),
		Roster: p.roster,
		Check:  p.nats.Check(), Cache: o.Cache, Offline: o.StartWithoutNATS, Log: o.Logger}
	if !o.AdmitOnly {
		if err := p.buildDrainer(); err != nil {
			return err
		}
		at.Valves, in.Drainer = p.drainer, p.drainer
	}
	if o.Audit {
		broker, err := p.newBroker("penstock admitter auditor")
		if err != nil {
			return err
		}
		p.auditor = audit.New(broker, audit.Options{Logger: o.Logger})
		at.Audited = p.auditor.Bucket
	}
	if o.shared {
		in.Limits, _ = o.Limits.(interface{ Health() error })
	}
	if p.listener != nil {
		in.Files = o.Files.Part
	}
	p.door = door.New(at)
	in.Schedules, in.Follow, in.Sink = p.door.Schedules, p.door.Follow, p.door.Sink
	p.node = node.New(in)
	return nil
}

// leave ends the lease that Open took, if Run has not.
func (p *Penstock) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	p.roster.Leave(ctx)
}

func (p *Penstock) newBroker(name string) (*jet.Broker, error) {
	nc, err := p.connect(name)
	if err != nil {
		return nil, err
	}
	return jet.NewBroker(nc, jet.Options{Prefix: p.options.Prefix,
		Domain: p.options.Domain, Replicas: p.options.Replicas, Logger: p.options.Logger})
}

func (p *Penstock) buildDrainer() error {
	o := p.options
	nc, err := p.connect("penstock admitter drainer")
	if err != nil {
		return err
	}
	p.drainer, err = workers.New(nc, workers.Options{Prefix: o.Prefix, Domain: o.Domain,
		Replicas: o.Replicas, Lease: o.Lease, Memory: o.Memory, Slots: o.Slots,
		Policies: o.DrainPolicies, Codec: o.Codec,
		Target: targets.New(nc, cmp.Or(o.Prefix, jet.DefaultPrefix), o.AllowTargets),
		OwnAll: true, Grace: o.Grace, Sink: o.Sink, Attempt: o.Attempt, Lister: p.broker,
		Logger: o.Logger})
	if err != nil {
		err = fmt.Errorf("make the drainer: %w", err)
	}
	return err
}

// Figure has what the audit observed of one limit, over all buckets.
//
//	Policy, Limit string
//	Worst         float64 // fullest window of the last hour or two, as a share; above 1 it was broken
//	Broken        uint64  // times
//	Incomplete    bool    // lost events could have added starts
type Figure = audit.Figure

// Audit returns the audited starts and limits so far; nil without [Options.Audit].
func (p *Penstock) Audit() []Figure {
	if p.auditor == nil {
		return nil
	}
	return p.auditor.Figures()
}

func (p *Penstock) connect(name string) (*nats.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.usable(); err != nil {
		return nil, err
	}
	nc, err := p.nats.Connect(name)
	if err == nil {
		p.closers = append(p.closers, func() { natsconn.Leave(nc) })
	}
	return nc, err
}

// Handle registers the handler of a policy's jobs; see [workers.Drainer.Handle]. It panics for a
// nil handler, a second one, after Run, and with AdmitOnly.
func (p *Penstock) Handle(policy string, handle workers.Handler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
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

// Ready returns a channel that is closed once Run serves, and has tried to apply every policy.
func (p *Penstock) Ready() <-chan struct{} { return p.ready }

// Health returns why jobs are not accepted or started now, as /readyz does, or nil.
func (p *Penstock) Health() error { return health.Err(p.parts()) }

// Connected reports whether NATS is connected.
func (p *Penstock) Connected() bool { return p.broker.Conn().IsConnected() }

// Policies returns the policies last read from NATS, or nil. The caller must not change them.
func (p *Penstock) Policies() map[string]*workers.Policy { return p.node.Policies() }

// Depths counts the jobs of every policy with a queue: waiting, backing off and running. With an
// error, some are missing.
func (p *Penstock) Depths(ctx context.Context) (map[string]uint64, error) {
	depths, err := p.node.Depths(ctx)
	return depths, cmp.Or(p.usable(), err)
}

// Handler returns the HTTP API (docs/reference/api.md), for a server of the caller.
func (p *Penstock) Handler() http.Handler { return p.door.Handler }

// HTTPAddr returns the address of Run's HTTP server, or nil.
func (p *Penstock) HTTPAddr() net.Addr {
	if p.listener == nil {
		return nil
	}
	return p.listener.Addr()
}

// NATSURL returns the address of NATS without passwords; empty: an embedded server without a port.
func (p *Penstock) NATSURL() string { return p.nats.URL() }

// Connect opens another connection to NATS, which the caller closes.
func (p *Penstock) Connect(name string) (*nats.Conn, error) { return p.nats.Connect(name) }

// SetUsers replaces the users of an embedded server opened with users, and disconnects clients that
// lose permissions.
func (p *Penstock) SetUsers(users []embedded.User) error {
	if p.nats.Inside == nil {
		return errors.New("penstock: NATS is elsewhere, and so are its users")
	}
	return p.nats.Inside.SetUsers(users)
}

// Reload applies changed Policies, Set, Prune, AllowShrink, Schedules and DrainPolicies, and
// rereads the files of clients and certificates. After an error about them no policy is changed.
// Reload waits for NATS, and until this process follows the policies, or before Run leaves that to
// Run.
func (p *Penstock) Reload(ctx context.Context, o Options) error {
	o.Set = cmp.Or(o.Set, policy.DefaultSet)
	o.Prefix, o.Limits = p.options.Prefix, p.options.Limits
	if err := cmp.Or(p.usable(), o.checkPolicies()); err != nil {
		return err
	}
	if err := p.guard.Reload(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.life, cancel)()
	if !lifecycle.Wait(ctx, p.node.Prepared) {
		return cmp.Or(p.usable(), ctx.Err())
	}
	if err := p.node.Write(ctx, o.wanted()); err != nil {
		return cmp.Or(p.usable(), err)
	}
	if p.drainer != nil {
		p.drainer.SetPolicies(o.DrainPolicies)
	}
	p.mu.Lock()
	running := p.running
	p.mu.Unlock()
	if running != nil {
		defer context.AfterFunc(running, cancel)()
		p.node.CatchUp(ctx)
	}
	return nil
}
