package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/hosts"
	"github.com/penstock-mq/penstock/internal/lifecycle"
	"github.com/penstock-mq/penstock/internal/natsconn"
	"github.com/penstock-mq/penstock/internal/targets"
	"github.com/penstock-mq/penstock/internal/telemetry"
	"github.com/penstock-mq/penstock/workers"
)

// serve drains until ctx ends. What can fail at once (ports, options) fails before anything is taken.
func serve(ctx context.Context, c config.Config, stdout io.Writer, log *slog.Logger) error {
	nc, err := nats.Connect(c.NATS.URL, natsconn.NewWatch(log).Options("penstock drainer")...)
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	defer natsconn.Leave(nc)
	metrics := telemetry.NewRegistry()
	ready := make(chan struct{})
	drainer, err := workers.New(nc, workers.Options{
		Prefix:   c.NATS.Prefix,
		Replicas: c.NATS.Replicas,
		Lease:    c.Drain.Lease,
		Policies: c.Drain.Policies,
		Target:   targets.New(nc, c.NATS.Prefix, c.Targets.Allow),
		OwnAll:   true,
		Grace:    c.Grace,
		Ready:    func() { close(ready) },
		Observer: metrics.Drain(),
		Logger:   log,
	})
	if err != nil {
		return err
	}
	parts := []func(context.Context) error{
		func(ctx context.Context) error {
			if !natsconn.Connected(ctx, nc) {
				return nil
			}
			return drainer.Run(ctx)
		},
		func(ctx context.Context) error {
			select {
			case <-ready:
				fmt.Fprintf(stdout, "ready nats=%s\n", nc.ConnectedUrlRedacted())
				<-ctx.Done()
			case <-ctx.Done():
			}
			return nil
		},
	}
	if c.HTTP.Listen != "" {
		listener, err := net.Listen("tcp", c.HTTP.Listen)
		if err != nil {
			return fmt.Errorf("listen for HTTP: %w", err)
		}
		parts = append(parts, lifecycle.HTTP(listener,
			routes(nc, ready, metrics.Handler(log), hosts.Known(c.HTTP.Names(c.HTTP.Listen))),
			lifecycle.HTTPOptions{Grace: c.Grace, MaxConnections: c.HTTP.MaxConnections,
				MaxPerClient: c.HTTP.MaxPerClient, Unbounded: c.HTTP.TrustedProxies, Logger: log}))
	}
	return lifecycle.Run(ctx, parts...)
}

// routes serves what operators ask a drainer.
func routes(nc *nats.Conn, ready <-chan struct{}, metrics http.Handler, known hosts.Known) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if !known.Has(r.Host) {
			http.Error(w, "the host is none of this process's; http.hosts may name it", http.StatusMisdirectedRequest)
			return
		}
		metrics.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-ready:
			if nc.IsConnected() {
				fmt.Fprintln(w, "ready")
				return
			}
		default:
		}
		http.Error(w, "not connected to NATS", http.StatusServiceUnavailable)
	})
	return mux
}
