package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"time"

	"github.com/penstock-mq/penstock/admission/limiter"
	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/admission/outbound"
	"github.com/penstock-mq/penstock/internal/base/notice"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/server/daemon"
	"github.com/penstock-mq/penstock/internal/server/envoy"
	"github.com/penstock-mq/penstock/internal/server/follow"
	"github.com/penstock-mq/penstock/internal/server/guard"
	"github.com/penstock-mq/penstock/internal/server/health"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
	"github.com/penstock-mq/penstock/internal/server/telemetry"
	"github.com/penstock-mq/penstock/policy"
)

// beside has the servers other than the API's. It outlives the process's work.
type beside struct {
	*daemon.Process
	listeners []net.Listener
	ready     string
	reloads   []func(next config.Config) error
	parts     []func(context.Context) error
	proxies   []proxyAt
	routes    *routes // nil: no proxies
}

func (b *beside) listen(name, address string, of guard.Options) (net.Listener, *guard.Guard,
	error) {

	g, err := guard.Open(of, b.Files, b.Log)
	if err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, nil, fmt.Errorf("listen for %s: %w", name, err)
	}
	b.listeners = append(b.listeners, listener)
	b.ready += " " + name + "=" + listener.Addr().String()
	return listener, g, nil
}

func (b *beside) close() {
	for _, listener := range b.listeners {
		listener.Close()
	}
}

func (b *beside) reload(next config.Config) error {
	var problems []error
	for _, reload := range b.reloads {
		problems = append(problems, reload(next))
	}
	return errors.Join(problems...)
}

func (b *beside) limits() lifecycle.HTTPOptions {
	c := b.Config.HTTP
	return lifecycle.HTTPOptions{MaxConnections: c.MaxConnections, MaxPerClient: c.MaxPerClient,
		Unbounded: c.TrustedProxies}
}

func checkEnvoy(c config.Config) error {
	_, err := envoy.Load(c.Envoy.Files)
	if _, unreadable := errors.AsType[*fs.PathError](err); unreadable {
		return fmt.Errorf("envoy.files: %w", err)
	}
	return err
}

const gatewayLimits = "gateway limits"

// gateways serves Envoy's rate limit service. Health checks report the end of ctx at once.
func (b *beside) gateways(ctx context.Context, limits *limiter.Factory,
	metrics *telemetry.Registry) error {

	c := b.Config
	if c.Envoy.Listen == "" {
		return nil
	}
	decisions, failed := metrics.Envoy()
	service, err := envoy.New(envoy.Options{NewLimit: limits.Limit, Files: c.Envoy.Files,
		Shared: c.State.Store == "redis", Headers: c.Envoy.Headers,
		OnStoreError: policy.OnStoreError(c.Envoy.OnStoreError), Sink: decisions})
	if err != nil {
		return err
	}
	listener, g, err := b.listen("envoy", c.Envoy.Listen, c.Envoy.Guard(c.HTTP))
	if err != nil {
		return err
	}
	server := envoy.NewServer(service, listener, envoy.ServerOptions{Guard: g, Limits: b.limits(),
		Failed: failed, Logger: b.Log})
	context.AfterFunc(ctx, server.Stopping)
	reload := func() error { return b.Files.Note(gatewayLimits, service.Reload()) }
	b.reloads = append(b.reloads, func(config.Config) error {
		if err := reload(); err != nil {
			return err
		}
		return g.Reload()
	})
	b.parts = append(b.parts, server.Run, g.Run,
		follow.Files(gatewayLimits, c.Envoy.Files, reload, b.Log))
	return nil
}

// outlets serves the proxies for outbound calls. After the end of ctx, started requests continue,
// and others are refused.
func (b *beside) outlets(ctx context.Context, o outbound.Options) error {
	c := b.Config
	for i, of := range c.Outbound {
		listener, g, err := b.listen("outbound", of.Listen, of.Guard(c.HTTP))
		if err != nil {
			return err
		}
		o.Routes, o.Clients = of.Routes, g.Clients()
		proxy, err := outbound.New(o)
		if err != nil {
			return err
		}
		b.proxies = append(b.proxies, proxyAt{proxy, of.Listen})
		context.AfterFunc(ctx, proxy.Stop)
		b.reloads = append(b.reloads, func(next config.Config) error {
			err := g.Reload()
			if len(next.Outbound) == len(c.Outbound) { // other listeners need a restart
				err = errors.Join(err, proxy.SetRoutes(next.Outbound[i].Routes))
			}
			return err
		})
		serving := b.limits()
		serving.Grace, serving.Stall = c.Grace, outbound.DefaultStall
		serving.TLS, serving.Logger = g.TLS("http/1.1"), b.Log
		b.parts = append(b.parts, g.Run, lifecycle.HTTP(listener, proxy, serving))
	}
	return nil
}

type proxyAt struct {
	*outbound.Proxy
	listen string
}

// routes reports the mistakes of the proxies' routes that the policies in force and files reveal.
type routes struct {
	proxies  []proxyAt
	policies func() inforce.Entries // nil: not known yet
	observe  func(faults map[[2]string]int)
	notices  *notice.Log
}

const routesEvery = 2 * time.Second

var routeFault = notice.Kind{Level: slog.LevelWarn, Of: "route",
	Begin: "a route of the proxy cannot work as configured",
	End:   "the route works as configured", Note: "%s: %s"}

func (r *routes) parts() []health.Part {
	part := health.Part{Name: "outbound", Status: "its routes work as configured",
		Notes: r.notices.Notes(&routeFault)}
	if len(part.Notes) > 0 {
		part.Status = "routes cannot work as configured"
	}
	return []health.Part{part}
}

// run begins when the file's policies are written. Routes and policies change independently.
func (r *routes) run(ready <-chan struct{}) func(context.Context) error {
	look := lifecycle.Repeat(nil, r.look)
	return func(ctx context.Context) error {
		select {
		case <-ready:
			return look(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *routes) look(context.Context) (time.Duration, error) {
	known := r.policies()
	if known == nil {
		return routesEvery, nil
	}
	counts, now := map[[2]string]int{}, map[string]bool{}
	for _, p := range r.proxies {
		for _, f := range p.Faults(known) {
			at := p.listen + " " + f.Route + " " + f.Field
			counts[[2]string{f.Policy, f.Kind}]++
			now[at] = true
			r.notices.Tell(&routeFault, at, f.Reason, "policy", f.Policy, "reason", f.Reason)
		}
	}
	r.notices.Only(&routeFault, func(at string) bool { return now[at] })
	r.observe(counts)
	return routesEvery, nil
}
