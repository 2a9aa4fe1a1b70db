package main

import (
	"context"
	"fmt"
	"net"

	"github.com/penstock-mq/penstock/admission/envoy"
	"github.com/penstock-mq/penstock/admission/limiter"
	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/daemon"
	"github.com/penstock-mq/penstock/internal/envoyapi"
	"github.com/penstock-mq/penstock/internal/follow"
	"github.com/penstock-mq/penstock/internal/guard"
	"github.com/penstock-mq/penstock/internal/lifecycle"
	"github.com/penstock-mq/penstock/internal/telemetry"
	"github.com/penstock-mq/penstock/policy"
)

func checkEnvoy(c config.Config) error {
	_, err := envoy.Load(c.Envoy.Files)
	return err
}

// gateways serves Envoy's rate limit service, or nothing (zero).
type gateways struct {
	files    []string
	service  *envoy.Service // nil: not served
	guard    *guard.Guard
	server   *envoyapi.Server
	listener net.Listener
	process  *daemon.Process
}

func openGateways(process *daemon.Process, limits *limiter.Factory,
	metrics *telemetry.Registry) (g gateways, err error) {
	c := process.Config
	if c.Envoy.Listen == "" {
		return g, nil
	}
	g.files, g.process = c.Envoy.Files, process
	decisions, failed := metrics.Envoy()
	if g.service, err = envoy.New(envoy.Options{NewLimit: limits.Limit, Files: g.files,
		Shared:       c.State.Store == "redis",
		OnStoreError: policy.OnStoreError(c.Envoy.OnStoreError), Sink: decisions}); err != nil {
		return g, err
	}
	g.guard, err = guard.Open(c.Envoy.Guard(c.HTTP), process.Files, process.Log)
	if err != nil {
		return g, err
	}
	if g.listener, err = net.Listen("tcp", c.Envoy.Listen); err != nil {
		return g, fmt.Errorf("listen for gateways: %w", err)
	}
	g.server = envoyapi.New(g.service, g.listener, envoyapi.Options{Guard: g.guard,
		Limits: lifecycle.HTTPOptions{MaxConnections: c.HTTP.MaxConnections,
			MaxPerClient: c.HTTP.MaxPerClient, Unbounded: c.HTTP.TrustedProxies},
		Headers: c.Envoy.Headers, Failed: failed,
		Logger: process.Log})
	return g, nil
}

func (g gateways) close() {
	if g.listener != nil {
		g.listener.Close()
	}
}

func (g gateways) reload() error {
	if g.service == nil {
		return nil
	}
	if err := g.reloadLimits(); err != nil {
		return err
	}
	return g.guard.Reload()
}

const gatewayLimits = "gateway limits"

func (g gateways) reloadLimits() error {
	return g.process.Files.Note(gatewayLimits, g.service.Reload())
}

// The parts outlive the process's work. Health checks report the end of stopping at once.
func (g gateways) serving(stopping context.Context) []func(context.Context) error {
	if g.service == nil {
		return nil
	}
	context.AfterFunc(stopping, g.server.Stopping)
	return []func(context.Context) error{g.server.Run, g.guard.Run,
		follow.Files(gatewayLimits, g.files, g.reloadLimits, g.process.Log)}
}

func (g gateways) ready() string {
	if g.listener == nil {
		return ""
	}
	return " envoy=" + g.listener.Addr().String()
}
