// Package door assembles a process's front door: the admission service, schedules, management, and
// their APIs over HTTP and NATS.
package door

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/admission/console"
	"github.com/penstock-mq/penstock/internal/admission/httpapi"
	"github.com/penstock-mq/penstock/internal/admission/manage"
	"github.com/penstock-mq/penstock/internal/admission/natsapi"
	"github.com/penstock-mq/penstock/internal/admission/permits"
	"github.com/penstock-mq/penstock/internal/admission/schedules"
	"github.com/penstock-mq/penstock/internal/admission/watch"
	"github.com/penstock-mq/penstock/internal/base/buildinfo"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/server/audit"
	"github.com/penstock-mq/penstock/internal/server/guard"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
	"github.com/penstock-mq/penstock/internal/server/targets"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// publishTimeout bounds how long a submission waits for JetStream.
const publishTimeout = 5 * time.Second

type Options struct {
	Broker     *jet.Broker
	Valves     admit.Valves
	Limits     Limits
	Sink       queue.Sink
	Submitting func(policy string, stored nats.Header) (nats.Header, func(admission.Outcome, error))
	Allow      []netip.Prefix
	Connect    func(name string) (*nats.Conn, error)
	Followed   func(ctx context.Context, policy string, revision uint64)
	Audited    func(policy string, key queue.Key) (audit.Standing, bool) // nil: no audit
	HTTP       HTTP
	Requests   *nats.Conn // for the NATS API; nil: not served
	Grace      time.Duration
	Log        *slog.Logger
}

// HTTP holds the settings of the HTTP API and its server.
type HTTP struct {
	httpapi.Options
	Listener net.Listener // nil: not served
	Guard    *guard.Guard
	Server   lifecycle.HTTPOptions
}

type Limits interface {
	Limit(p policy.Policy, previous admission.Limiter) (admission.Limit, error)
	Possible(p policy.Policy) []policy.Problem
}

// Door is safe for concurrent use.
type Door struct {
	options Options

	Service   *admit.Service
	Schedules *schedules.Service
	Manage    *manage.Service
	Handler   http.Handler
	Sink      queue.Sink // also of the watch and the day's minutes
	// Listening closes when NATS requests arrive.
	Listening lifecycle.Latch

	budget *admit.Budget
	watch  *watch.Watch
	mu     sync.Mutex
	calls  *permits.Client

	stopping atomic.Bool
}

// New does not start the door.
func New(o Options) *Door {
	d := &Door{options: o, watch: watch.New(o.Broker), Listening: make(lifecycle.Latch),
		budget: admit.NewBudget(admit.DefaultBudget())}
	d.Sink = queue.Sinks{o.Sink, d.watch, o.Broker.Events()}
	producer := o.Broker.NewProducer(jet.ProducerOptions{FailFast: true, Timeout: publishTimeout})
	d.Service = admit.New(o.Broker.Names(), producer, o.Valves, o.Limits.Limit,
		admit.Options{Sink: d.Sink, Outcomes: o.Broker, Callback: targets.Callback(o.Allow),
			Submitting: o.Submitting})
	d.Manage = manage.New(o.Broker, producer, manage.Options{Followed: o.Followed,
		Possible: d.possible, Watch: d.watch, Audited: o.Audited, Logger: o.Log})
	d.Schedules = schedules.New(o.Broker, d.Service,
		schedules.Options{Sink: d.Sink, Note: d.Manage.NoteTried, State: d.Manage.State,
			Logger: o.Log})
	api := o.HTTP.Options
	api.Console, api.Management, api.Schedules = console.New(), d.Manage, d.Schedules
	api.Permits, api.Budget, api.Clients = d.Callers, d.budget, o.HTTP.Guard.Clients()
	api.Logger = o.Log
	d.Handler = httpapi.New(d.Service, api)
	return d
}

func (d *Door) possible(before, p policy.Policy) []policy.Problem {
	problems := d.options.Limits.Possible(p)
	if !p.SameTarget(before) {
		problems = append(problems, targets.Possible(p, d.options.Allow)...)
	}
	return problems
}

// Follow lets the door follow a set of policies. changed names what differs from the last one.
func (d *Door) Follow(set inforce.Entries, changed []string) {
	if err := d.Service.SetPolicies(set, changed...); err != nil {
		d.options.Log.Error("policies keep their former form, or stay out", "error", err)
	}
	news := inforce.Entries{}
	for _, name := range changed {
		news[name] = set[name]
	}
	d.Sink.Take(queue.Event{Type: jet.EventFollowed, Data: news})
}

// Callers returns the client for permits of a policy, whose connection is made for the first call.
func (d *Door) Callers(policy string) (*permits.Client, error) {
	if err := d.Service.Callable(policy); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.calls == nil {
		nc, err := d.options.Connect("penstock admitter calls")
		if err != nil {
			return nil, fmt.Errorf("%w: %w", admission.ErrUnavailable, err)
		}
		broker, err := d.options.Broker.Over(nc)
		if err != nil {
			return nil, err
		}
		if d.calls, err = permits.New(nc, broker.Names()); err != nil {
			return nil, err
		}
		d.calls.Callable, d.calls.Unanswered = d.callable, broker.Unanswered
		d.calls.Refused = func(policy string) {
			d.options.Broker.Tally().Count(policy, jet.CountRefused, 1)
		}
	}
	return d.calls, nil
}

func (d *Door) callable(policy string) error {
	if d.stopping.Load() {
		return fmt.Errorf("%w: %w", admission.ErrUnavailable, admit.ErrStopping)
	}
	return d.Service.Callable(policy)
}

// Stop ends event streams and waits for jobs, which would delay the end of the process.
func (d *Door) Stop() {
	d.stopping.Store(true)
	d.watch.Close()
	d.Service.EndWaits()
}

// Close ends the calls that wait, before their connection is closed.
func (d *Door) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.calls != nil {
		d.calls.Close()
		d.calls = nil
	}
}

func (d *Door) Parts() []func(context.Context) error {
	o := d.options
	parts := []func(context.Context) error{o.HTTP.Guard.Run}
	if o.HTTP.Listener != nil {
		server := o.HTTP.Server
		server.Grace, server.Unbounded = o.Grace, o.HTTP.TrustedProxies
		server.Brief = httpapi.Brief
		server.Answered, server.Logger = d.answered("http"), o.Log
		server.TLS = o.HTTP.Guard.TLS("http/1.1")
		parts = append(parts, lifecycle.HTTP(o.HTTP.Listener, d.Handler, server))
	}
	if o.Requests == nil {
		close(d.Listening)
		return parts
	}
	return append(parts, natsapi.Serve(o.Requests, o.Broker.Names(), d.Service, natsapi.Options{
		Management: d.Manage, Budget: d.budget, Grace: o.Grace, Version: buildinfo.Version(),
		Started: func() { close(d.Listening) }, Logger: o.Log, Answered: d.answered("nats")}))
}

func (d *Door) answered(api string) func(status int) {
	return func(status int) {
		d.Sink.Take(queue.Event{Type: jet.EventAnswered, Name: api, Value: int64(status)})
	}
}
