package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/admission/httpapi"
	"github.com/penstock-mq/penstock/internal/server/daemon"
	"github.com/penstock-mq/penstock/internal/server/follow"
	"github.com/penstock-mq/penstock/internal/server/guard"
	"github.com/penstock-mq/penstock/internal/server/health"
	"github.com/penstock-mq/penstock/internal/server/hosts"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
	"github.com/penstock-mq/penstock/internal/server/natsconn"
	"github.com/penstock-mq/penstock/internal/server/targets"
	"github.com/penstock-mq/penstock/internal/server/telemetry"
	"github.com/penstock-mq/penstock/internal/server/tracing"
	"github.com/penstock-mq/penstock/workers"
)

// serve checks ports and options before it takes partitions.
func serve(ctx context.Context, p *daemon.Process) (err error) {
	c, log := p.Config, p.Log
	metrics := telemetry.NewRegistry()
	p.Files.Observe = metrics.FileRead()
	guarded, err := guard.Open(c.HTTP.Guard(), p.Files, log)
	if err != nil {
		return err
	}
	login, err := c.NATS.Credentials.Options()
	if err != nil {
		return err
	}
	nc, err := nats.Connect(c.NATS.URL,
		append(natsconn.NewWatch(log).Options("penstock drainer"), login...)...)
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	defer natsconn.Leave(nc)
	metrics.NATS(nc.IsConnected)
	ready := make(chan struct{})
	traces, err := tracing.Open(ctx, "drainer", log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, traces.Close()) }()
	drainer, err := workers.New(nc, workers.Options{
		Prefix:   c.NATS.Prefix,
		Domain:   c.NATS.Domain,
		Replicas: c.NATS.Replicas,
		Lease:    c.Drain.Lease,
		Memory:   int64(c.Drain.Memory),
		Policies: c.Drain.Policies,
		Target:   targets.New(nc, c.NATS.Prefix, c.Targets.Allow),
		OwnAll:   true,
		Grace:    c.Grace,
		Ready:    func() { close(ready) },
		Sink:     metrics.Drain(),
		Attempt:  traces.Attempt(),
		Logger:   log,
	})
	if err != nil {
		return err
	}
	work := []func(context.Context) error{
		p.Reloads(func(_ context.Context, next config.Config) error {
			drainer.SetPolicies(next.Drain.Policies)
			return guarded.Reload()
		}),
		func(ctx context.Context) error {
			if !natsconn.Connected(ctx, nc) {
				return nil
			}
			return drainer.Run(ctx)
		},
		func(ctx context.Context) error {
			select {
			case <-ready:
				fmt.Fprintf(p.Stdout, "ready nats=%s\n", nc.ConnectedUrlRedacted())
				log.Info("ready", "nats", nc.ConnectedUrlRedacted())
				<-ctx.Done()
			case <-ctx.Done():
			}
			return nil
		},
	}
	var serving []func(context.Context) error
	if c.HTTP.Listen != "" {
		listener, err := net.Listen("tcp", c.HTTP.Listen)
		if err != nil {
			return fmt.Errorf("listen for HTTP: %w", err)
		}
		defer listener.Close()
		serving = append(serving, guarded.Run, lifecycle.HTTP(listener,
			httpapi.New(nil, httpapi.Options{Metrics: metrics.Handler(log),
				Parts:   func() []health.Part { return parts(ctx, nc, drainer, p.Files) },
				Clients: guarded.Clients(), Hosts: hosts.Of(c.HTTP.Listen, c.HTTP.Hosts),
				Logger: log}),
			lifecycle.HTTPOptions{Grace: c.Grace, MaxConnections: c.HTTP.MaxConnections,
				MaxPerClient: c.HTTP.MaxPerClient, Unbounded: c.HTTP.TrustedProxies,
				TLS: guarded.TLS("http/1.1"), Logger: log}))
	}
	return lifecycle.Run(ctx, lifecycle.InTurn(c.HTTP.LameDuck, work, serving))
}

func parts(ctx context.Context, nc *nats.Conn, drainer *workers.Drainer,
	files *follow.Status) []health.Part {
	process := health.Part{Name: "process", Status: "running"}
	if ctx.Err() != nil {
		process.Err = admit.ErrStopping
	}
	connection := health.Part{Name: "nats", Status: "connected"}
	if !nc.IsConnected() {
		connection.Err = errors.New("not connected to NATS")
	}
	return []health.Part{process, connection,
		{Name: "drainer", Err: drainer.Health(), Status: "holds its lease", Notes: drainer.Notes()},
		files.Part()}
}
