package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/admission/outbound"
	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/daemon"
	"github.com/penstock-mq/penstock/internal/guard"
	"github.com/penstock-mq/penstock/internal/lifecycle"
	"github.com/penstock-mq/penstock/internal/telemetry"
	"github.com/penstock-mq/penstock/internal/tracing"
)

// outlets are the proxies for outbound calls.
type outlets struct {
	guards    []*guard.Guard
	listeners []net.Listener
	proxies   []*outbound.Proxy
}

func openOutlets(process *daemon.Process) (o *outlets, err error) {
	c := process.Config
	o = &outlets{}
	for _, of := range c.Outbound {
		g, err := guard.Open(of.Guard(c.HTTP), process.Files, process.Log)
		if err != nil {
			return o, err
		}
		listener, err := net.Listen("tcp", of.Listen)
		if err != nil {
			return o, fmt.Errorf("listen for outbound calls: %w", err)
		}
		o.guards, o.listeners = append(o.guards, g), append(o.listeners, listener)
	}
	return o, nil
}

func (o *outlets) close() {
	for _, listener := range o.listeners {
		listener.Close()
	}
}

// reload replaces the routes unless there are other listeners, which need a restart.
func (o *outlets) reload(next []config.Outbound) error {
	var problems []error
	for i, g := range o.guards {
		problems = append(problems, g.Reload())
		if len(next) == len(o.proxies) {
			problems = append(problems, o.proxies[i].SetRoutes(next[i].Routes))
		}
	}
	return errors.Join(problems...)
}

// The parts outlive the process's work: requests that have started go on, and others are refused.
func (o *outlets) serving(stopping context.Context, process *daemon.Process, p *penstock.Penstock,
	metrics *telemetry.Registry, traces *tracing.Tracer) (parts []func(context.Context) error,
	err error) {

	c, transport := process.Config, outbound.NewTransport()
	if len(o.listeners) == 0 {
		return nil, nil
	}
	called := metrics.Outbound()
	for i, of := range c.Outbound {
		proxy, err := outbound.New(outbound.Options{Routes: of.Routes, Acquire: p.Acquire,
			Clients: o.guards[i].Clients(), Called: called, Trace: traces.Calling(),
			Transport: transport, Logger: process.Log})
		if err != nil {
			return nil, err
		}
		o.proxies = append(o.proxies, proxy)
		context.AfterFunc(stopping, proxy.Stop)
		parts = append(parts, o.guards[i].Run, lifecycle.HTTP(o.listeners[i], proxy,
			lifecycle.HTTPOptions{Grace: c.Grace, MaxConnections: c.HTTP.MaxConnections,
				MaxPerClient: c.HTTP.MaxPerClient, Unbounded: c.HTTP.TrustedProxies,
				Streaming: true, TLS: o.guards[i].TLS(), Logger: process.Log}))
	}
	return parts, nil
}

func (o *outlets) ready() (line string) {
	for _, listener := range o.listeners {
		line += " outbound=" + listener.Addr().String()
	}
	return line
}
