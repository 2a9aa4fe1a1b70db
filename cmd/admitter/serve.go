package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/httpapi"
	"github.com/penstock-mq/penstock/admission/limiter"
	"github.com/penstock-mq/penstock/admission/manage"
	"github.com/penstock-mq/penstock/admission/natsapi"
	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/buildinfo"
	"github.com/penstock-mq/penstock/internal/daemon"
	"github.com/penstock-mq/penstock/internal/lifecycle"
	"github.com/penstock-mq/penstock/internal/natsconn"
	"github.com/penstock-mq/penstock/internal/targets"
	"github.com/penstock-mq/penstock/internal/telemetry"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers"
)

// rosterLease is how long an admitter counts after it was last heard of.
const rosterLease = 5 * time.Second

// options are what the command line and the configuration say together.
type options struct {
	*daemon.Process
	config config.Config
	drain  bool
	echo   string // an address to serve an echo at; empty: none
}

// admitter is a running process. Its parts start together; the latches say how far they have come.
type admitter struct {
	options
	log      *slog.Logger
	stopping context.Context // ends when the process is told to stop
	broker   *queue.Broker
	service  *admission.Service
	metrics  *telemetry.Admission
	streams  *streams
	storage  *storage
	file     *policyFile
	obeyed   followed
	drainer  *workers.Drainer // nil without --drain

	setUp     latch // JetStream has what all policies share
	listening latch // NATS requests arrive
	ready     latch // all of it, and the policies' streams are there
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

// serve runs an admitter until ctx ends. What can fail at once (ports, directories) fails before anything is served.
func serve(ctx context.Context, o options) error {
	log := o.Log
	listen := cmp.Or(o.config.HTTP.Listen, config.AdmitterListen)
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listen for HTTP: %w", err)
	}
	defer listener.Close()
	broker, err := openNATS(o.config.NATS, log)
	if err != nil {
		return err
	}
	defer broker.close()

	// Requests have a connection of their own, and so has the drainer: none stands in front of another's
	// acknowledgements.
	var connections [3]*nats.Conn
	for i, name := range []string{"admitter", "admitter requests", "admitter drainer"} {
		if connections[i], err = broker.connect("penstock " + name); err != nil {
			return err
		}
		defer natsconn.Leave(connections[i])
	}
	a := &admitter{options: o, log: log, stopping: ctx, setUp: make(latch), listening: make(latch), ready: make(latch)}
	a.broker, err = queue.NewBroker(connections[0], queue.Options{
		Prefix: o.config.NATS.Prefix, Replicas: o.config.NATS.Replicas, Logger: log})
	if err != nil {
		return err
	}
	metrics := telemetry.NewRegistry()
	names := a.broker.Names()
	producer := a.broker.NewProducer(queue.ProducerOptions{FailFast: true})
	limiters := limiter.Options{Timeout: o.config.State.Redis.Timeout, Logger: log}
	if o.config.State.Store == "redis" {
		rdb, err := openRedis(o.config.State.Redis)
		if err != nil {
			return err
		}
		defer rdb.Close()
		redis.SetLogger(redisLog{log})
		limiters.Redis, limiters.Prefix, limiters.Metrics = rdb, o.config.State.Redis.Prefix, metrics.Store()
	}
	factory := limiter.New(limiters)
	a.metrics = metrics.Admission()
	a.service = admission.New(names, producer, a.broker, factory.Limit, admission.Options{Metrics: a.metrics})
	a.streams = newStreams(recorded{a.broker}, a.metrics.ApplyFailed, log)
	a.storage = &storage{broker: a.broker, check: broker.check, metrics: metrics.Storage(), log: log}
	metrics.QueueJobs(a.streams.depths)
	metrics.NATS(connections[0].IsConnected)
	owners := owners{broker: a.broker, policies: a.streams.policies, observe: a.metrics.Unowned, log: log, asked: map[string]*asked{}}
	a.file = newPolicyFile(a.broker, a.streams.policies, metrics.Policies(), log)

	budget := admission.NewBudget(admission.DefaultBudget)
	handler := httpapi.New(a.service, httpapi.Options{
		Ready:   func() error { return a.readiness(connections[0]) },
		Notes:   a.storage.notes,
		Metrics: metrics.Handler(log),
		Management: manage.New(a.broker, producer, manage.Options{
			Followed: a.obeyed.wait, Logger: log,
			Possible: func(p policy.Policy) []policy.Problem {
				return append(factory.Possible(p), targets.Possible(p, o.config.Targets.Allow)...)
			}}),
		Budget:         budget,
		Hosts:          o.config.HTTP.Names(listen),
		TrustedProxies: o.config.HTTP.TrustedProxies,
		Logger:         log,
	})
	known := &known{file: o.config.State.Cache, configured: o.config.Policies, obey: a.obey, log: log}
	work := []func(context.Context) error{a.Reloads(a.reload)}
	serving := []func(context.Context) error{
		known.run,
		lifecycle.HTTP(listener, a.metrics.CountErrors(handler), lifecycle.HTTPOptions{Grace: o.config.Grace,
			MaxConnections: o.config.HTTP.MaxConnections, MaxPerClient: o.config.HTTP.MaxPerClient,
			Unbounded: o.config.HTTP.TrustedProxies, Logger: log}),
		natsapi.Serve(connections[1], names, a.service, natsapi.Options{
			Budget: budget, Grace: max(o.config.Grace, time.Millisecond), Version: buildinfo.Version(),
			Started: func() { close(a.listening) }, Answered: a.metrics.Answered, Logger: log}),
		func(ctx context.Context) error { return a.follow(ctx, known) },
		a.streams.run,
		after(a.setUp, a.storage.run),
		after(a.setUp, a.file.run),
		after(a.setUp, owners.run),
		func(ctx context.Context) error { return a.announce(ctx, listener.Addr(), broker.url) },
	}
	if o.config.State.Store == "redis" {
		roster := a.broker.NewRoster(rosterLease, factory.SetLive)
		serving = append(serving, after(a.setUp, roster.Run))
	}
	if o.drain {
		if a.drainer, err = newDrainer(connections[2], o.config, metrics.Drain(), log); err != nil {
			return err
		}
		work = append(work, after(a.setUp, a.drainer.Run))
	}
	if o.echo != "" {
		target, err := net.Listen("tcp", o.echo)
		if err != nil {
			return fmt.Errorf("listen for the echo: %w", err)
		}
		serving = append(serving, lifecycle.HTTP(target, echo(o.Stdout), lifecycle.HTTPOptions{Logger: log}))
	}
	return lifecycle.Run(ctx, lifecycle.InTurn(o.config.HTTP.LameDuck, work, serving))
}

// readiness is what /readyz answers.
func (a *admitter) readiness(nc *nats.Conn) error {
	switch {
	case a.stopping.Err() != nil:
		return admission.ErrStopping
	case !nc.IsConnected():
		return errors.New("not connected to NATS: checks are answered, jobs are not taken")
	case !a.ready.isClosed():
		return fmt.Errorf("%w, or their streams not prepared", admission.ErrStarting)
	}
	if err := a.storage.fit(); err != nil {
		return err
	}
	if a.drainer != nil {
		return a.drainer.Health()
	}
	return nil
}

// announce prints the line by which whoever started the process knows that it can be used.
func (a *admitter) announce(ctx context.Context, http net.Addr, url string) error {
	if wait(ctx, a.setUp, a.listening, a.streams.applied) {
		close(a.ready)
		fmt.Fprintf(a.Stdout, "ready http=%s nats=%s\n", http, url)
		a.log.Info("ready", "http", http.String(), "nats", url)
		if a.echo != "" {
			fmt.Fprint(a.Stdout, banner(http.String(), url, a.streams.policies()))
		}
		<-ctx.Done()
	}
	return nil
}

// reload takes over a configuration that was read again.
func (a *admitter) reload(ctx context.Context, next config.Config) error {
	if !wait(ctx, a.setUp) {
		return ctx.Err()
	}
	err := a.persist(ctx, "write the policies", func(ctx context.Context) error { return a.file.put(ctx, next) })
	if err == nil && a.drainer != nil {
		a.drainer.SetPolicies(next.Drain.Policies)
	}
	return err
}

// follow prepares JetStream, hands the file's policies to all processes, and then follows what the policies are.
func (a *admitter) follow(ctx context.Context, known *known) error {
	nc := a.broker.Conn()
	if !natsconn.Connected(ctx, nc) {
		return nil
	}
	err := a.persist(ctx, "set up JetStream", func(ctx context.Context) error {
		err := a.broker.Setup(ctx)
		if errors.Is(err, queue.ErrVersion) && nc.ConnectedServerVersion() == "" {
			return fmt.Errorf("%w: the connection was lost", queue.ErrUnavailable)
		}
		return err
	})
	if err == nil && a.HasFile {
		err = a.persist(ctx, "write the policies", func(ctx context.Context) error {
			return a.file.put(ctx, a.config)
		})
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	close(a.setUp)
	return a.broker.WatchPolicies(ctx, func(set queue.PolicySet) {
		known.set(set)
		a.streams.follow(set)
		a.obeyed.set(set)
	})
}

// obey answers by a set of policies from now on.
func (a *admitter) obey(set queue.PolicySet) {
	if err := a.service.SetPolicies(set); err != nil {
		a.log.Error("policies keep their former form, or stay out", "error", err)
	}
	a.metrics.Policies(set)
}

const (
	persistFirst = 100 * time.Millisecond
	persistLast  = 2 * time.Second
	persistLog   = 10 * time.Second
)

// persist repeats what fails because NATS is not available, and says so now and then.
func (a *admitter) persist(ctx context.Context, what string, do func(context.Context) error) error {
	var told time.Time
	for pause := persistFirst; ; pause = min(2*pause, persistLast) {
		err := do(ctx)
		if err == nil || !errors.Is(err, queue.ErrUnavailable) {
			return err
		}
		if time.Since(told) >= persistLog {
			told = time.Now()
			a.log.Warn("NATS is not available: trying again", "doing", what, "error", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
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
