package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/penstock-mq/penstock/internal/kit/redistest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// bare passes messages unchanged; internal/envoytest uses Envoy's own types.
type bare struct{}

func (bare) Marshal(v any) ([]byte, error)         { return *v.(*[]byte), nil }
func (bare) Unmarshal(text []byte, into any) error { *into.(*[]byte) = text; return nil }
func (bare) Name() string                          { return "proto" }

type gateway struct {
	t    *testing.T
	conn *grpc.ClientConn
}

func (p *process) gateway() gateway {
	p.t.Helper()
	words, err := p.Ready(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	p.http = words["http"]
	conn, err := grpc.NewClient(words["envoy"],
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { conn.Close() })
	return gateway{p.t, conn}
}

// passes asks for a descriptor of the domain edge, whose answer begins with its code: 1 or 2.
func (g gateway) passes(key, value string) bool {
	g.t.Helper()
	text := func(to []byte, number protowire.Number, text string) []byte {
		return protowire.AppendString(protowire.AppendTag(to, number, protowire.BytesType), text)
	}
	entry := string(text(text(nil, 1, key), 2, value))
	request := text(text(nil, 1, "edge"), 2, string(text(nil, 1, entry)))
	ctx, cancel := context.WithTimeout(g.t.Context(), waittest.Patience())
	defer cancel()
	var answer []byte
	err := g.conn.Invoke(ctx, "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
		&request, &answer, grpc.ForceCodec(bare{}))
	if err != nil || len(answer) < 2 {
		g.t.Fatalf("%q, %v", answer, err)
	}
	return answer[1] == 1
}

func limits(t *testing.T, dir, name, more string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("domain: edge\ndescriptors:\n"+more),
		0o600); err != nil {
		t.Fatal(err)
	}
}

// The process follows the files of gateways. On SIGTERM its health changes at once, and it
// continues to answer.
func TestGatewaysAreAnswered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	limits(t, dir, "a.yaml", "- {key: ip, rate_limit: {unit: year, requests_per_unit: 2}}\n")
	p := launch(t, "--lame-duck", "5m",
		"--config", configure(t, "envoy: {listen: '127.0.0.1:0', files: ['"+dir+"']}\n"))
	g := p.gateway()
	for i := range 3 {
		if passes := g.passes("ip", "a"); passes != (i < 2) {
			t.Errorf("request %d of a limit of two: passes %v", i+1, passes)
		}
	}
	if _, text := p.get("/metrics"); !strings.Contains(text,
		`penstock_checks_total{allowed="false",policy="envoy.edge.ip"} 1`) {
		t.Error("the refusal is in no metric")
	}
	limits(t, dir, "b.yaml", "- {key: path, rate_limit: {unit: eon}}\n")
	p.logs(1, `are invalid: the previous ones stay in force" files="gateway limits"`)
	p.logs(1, "b.yaml:3: descriptors[0].rate_limit.unit: ")
	if g.passes("ip", "a") {
		t.Error("a bad file changes what is there")
	}
	limits(t, dir, "b.yaml", "- {key: path, rate_limit: {unit: day, requests_per_unit: 0}}\n")
	limits(t, dir, "a.yaml", "- {key: ip, rate_limit: {unit: year, requests_per_unit: 3}}\n")
	eventually(t, "the new limit counts", func() bool { return !g.passes("path", "/") })
	if !g.passes("ip", "a") || g.passes("ip", "a") {
		t.Error("the count of before must go on")
	}

	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience())
	defer cancel()
	watch, err := grpc_health_v1.NewHealthClient(g.conn).Watch(ctx,
		&grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	told := func(want grpc_health_v1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if answer, err := watch.Recv(); err != nil || answer.Status != want {
			t.Errorf("%v, %v; want %s", answer, err, want)
		}
	}
	told(grpc_health_v1.HealthCheckResponse_SERVING)
	p.Signal(syscall.SIGTERM)
	told(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	if g.passes("path", "/") {
		t.Error("the limits have changed")
	}
}

func TestGatewaysShareLimits(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	dir := t.TempDir()
	limits(t, dir, "a.yml", "- {key: ip, rate_limit: {unit: year, requests_per_unit: 2}}\n")
	more := "envoy: {listen: '127.0.0.1:0', files: ['" + dir + "']}\n" +
		"state: {store: redis, redis: {addrs: ['" + redis.Addr() + "'], timeout: 2s}}\n"
	one := launch(t, "--config", configure(t, more))
	other := launch(t, "--config", configure(t, more))
	first, second := one.gateway(), other.gateway()
	if !first.passes("ip", "a") || !second.passes("ip", "a") || first.passes("ip", "a") ||
		second.passes("ip", "a") {
		t.Error("two of four must pass")
	}
	one.stop()
	other.stop()
}

func TestBadLimitsOfGatewaysAreReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	limits(t, dir, "bad.yaml", "- {key: ip, rate_limits: {}}\n")
	limits(t, dir, "worse.yaml", "- {}\n")
	file := configure(t, "envoy: {listen: '127.0.0.1:0', files: ['"+dir+"']}\n")
	for _, args := range [][]string{{"--config", file}, {"validate", file}} {
		p := launch(t, args...)
		if status := p.end(); status != 2 {
			t.Errorf("%v: status %d", args, status)
		}
		for _, line := range []string{"bad.yaml:3: descriptors[0].rate_limits: unknown " +
			"field; did you mean rate_limit?", "worse.yaml:3: descriptors[0].key: is missing"} {
			if log := p.Log.String(); !strings.Contains(log, line) {
				t.Errorf("%v says %s, want %s", args, log, line)
			}
		}
	}
}
