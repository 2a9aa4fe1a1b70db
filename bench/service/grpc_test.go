package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/admission/limiter"
	"github.com/penstock-mq/penstock/internal/server/envoy"
	"github.com/penstock-mq/penstock/internal/server/follow"
	"github.com/penstock-mq/penstock/internal/server/guard"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
)

func TestAClientAsksOverGRPC(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench.yaml")
	if err := os.WriteFile(file, []byte("domain: bench\ndescriptors:\n"+
		"- {key: key, rate_limit: {unit: year, requests_per_unit: 2000}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	service, err := envoy.New(envoy.Options{NewLimit: limiter.New(limiter.Options{}).Limit,
		Files: []string{file}})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	open, err := guard.Open(guard.Options{}, new(follow.Status), log)
	if err != nil {
		t.Fatal(err)
	}
	server := envoy.NewServer(service, listener, envoy.ServerOptions{Guard: open,
		Limits: lifecycle.HTTPOptions{MaxConnections: 10},
		Logger: log})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	c, err := overGRPC(nil, listener.Addr().String()).open(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for i := range 2000 {
		if err := c.ask(t.Context()); err != nil {
			t.Fatalf("question %d: %v", i, err)
		}
	}
	if err := c.ask(t.Context()); err == nil || !strings.Contains(err.Error(), "nothing pass") {
		t.Errorf("one too many: %v", err)
	}
}
