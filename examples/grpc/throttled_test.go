package grpc

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/policy"
)

type service struct {
	grpc_health_v1.UnimplementedHealthServer
	calls int
}

func (s *service) Check(context.Context, *grpc_health_v1.HealthCheckRequest) (
	*grpc_health_v1.HealthCheckResponse, error) {

	if s.calls++; s.calls == 2 {
		return nil, status.Error(codes.ResourceExhausted, "too many calls")
	}
	return &grpc_health_v1.HealthCheckResponse{}, nil
}

func TestAnExhaustedServerPausesTheCalls(t *testing.T) {
	p, err := penstock.Open(t.Context(), penstock.Options{Policies: []policy.Policy{{Name: "api",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Outflow: penstock.MustRate("100/s"),
			Capacity: 10}, Retry: policy.Retry{Backoff: policy.Duration(time.Hour)}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	go p.Run(t.Context())
	<-p.Ready()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, server := &service{}, grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, s)
	go server.Serve(listener)
	defer server.Stop()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithUnaryInterceptor(
		Throttled(p, "api")), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := grpc_health_v1.NewHealthClient(conn)
	for i, want := range []string{"", "too many calls", "policy api: "} {
		if i == 2 {
			waittest.Until(t, "the bucket is paused", func() bool {
				permit, err := p.Acquire(t.Context(), penstock.Call{Policy: "api",
					Key: conn.Target(), Wait: -1})
				if err == nil {
					permit.Return()
				}
				refused, is := errors.AsType[*penstock.RefusedError](err)
				return is && refused.RetryAfter > time.Minute
			})
		}
		_, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if got := status.Convert(err).Message(); want == "" && got != "" ||
			!strings.Contains(got, want) {
			t.Errorf("call %d: %v, want %q", i+1, err, want)
		}
	}
	if s.calls != 2 {
		t.Errorf("%d calls arrived", s.calls)
	}
}
