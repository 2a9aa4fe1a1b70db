package envoy

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"sync/atomic"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/server/guard"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
)

const Name = "envoy.service.ratelimit.v3.RateLimitService"

const (
	// hundreds of descriptors with long values
	mostBytes = 256 << 10
	// per connection; each takes 13 kB
	mostStreams = 128
	mostWatches = 1000
	// grpc-go's 32 kB are two thirds of an idle connection's memory
	readBuffer = 8 << 10
	// of a stream after its message; longer than the timeout of any store
	mostTime = 10 * time.Second
	// longer than the timeout of any store
	stopWithin = 3 * time.Second
)

type ServerOptions struct {
	Guard *guard.Guard
	// see [lifecycle.Limited]
	Limits lifecycle.HTTPOptions
	Failed func(code string)
	Logger *slog.Logger
}

type Server struct {
	service  *Service
	options  ServerOptions
	listener net.Listener
	grpc     *grpc.Server
	health   *health.Server
	watches  atomic.Int64
	silence  silence
}

func NewServer(service *Service, listener net.Listener, o ServerOptions) *Server {
	if o.Failed == nil {
		o.Failed = func(string) {}
	}
	s := &Server{service: service, options: o, health: health.NewServer(),
		listener: lifecycle.Limited(listener, o.Limits),
		silence:  silence{limits: o.Limits, clients: map[netip.Addr]*list.List{}}}
	options := []grpc.ServerOption{
		grpc.InTapHandle(s.admit),
		grpc.UnaryInterceptor(s.silence.unary),
		grpc.StreamInterceptor(s.silence.streams),
		grpc.MaxRecvMsgSize(mostBytes),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.MaxConcurrentStreams(mostStreams),
		grpc.ReadBufferSize(readBuffer),
		grpc.ConnectionTimeout(10 * time.Second),
		// Permit gateways to ping more often than every five minutes.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second,
			PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute}),
	}
	if secured := o.Guard.TLS("h2"); secured != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secured)))
	}
	s.grpc = grpc.NewServer(options...)
	for _, name := range []string{Name, "ratelimit"} { // as envoyproxy/ratelimit calls it
		s.health.SetServingStatus(name, grpc_health_v1.HealthCheckResponse_SERVING)
	}
	grpc_health_v1.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	s.grpc.RegisterService(&grpc.ServiceDesc{ServiceName: Name, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: s.handle}}}, s)
	return s
}

// admit bounds the time and the number of streams, because a client may send no request. grpc-go
// does not end the context of a stream that is refused here.
func (s *Server) admit(ctx context.Context, of *tap.Info) (context.Context, error) {
	watch := of.FullMethodName == grpc_health_v1.Health_Watch_FullMethodName
	if watch && s.watches.Add(1) > mostWatches {
		s.watches.Add(-1)
		return ctx, status.Error(codes.ResourceExhausted, "too many watches of the health")
	}
	entered := s.silence.enter(ctx, watch)
	if watch {
		context.AfterFunc(entered, func() { s.watches.Add(-1) })
	}
	return entered, nil
}

func (s *Server) Stopping() { s.health.Shutdown() }

// Run finishes requests within seconds of the end of ctx.
func (s *Server) Run(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(s.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve gRPC on %s: %w", s.listener.Addr(), err)
	case <-ctx.Done():
	}
	s.Stopping()
	hurry := time.AfterFunc(stopWithin, s.grpc.Stop) // a client may watch the health forever
	defer hurry.Stop()
	s.grpc.GracefulStop()
	return <-served
}

func (s *Server) handle(_ any, ctx context.Context, read func(any) error,
	_ grpc.UnaryServerInterceptor) (_ any, err error) {
	defer func() {
		if broken := recover(); broken != nil {
			s.options.Logger.Error("a request panicked", "panic", broken,
				"stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "internal error")
		}
		if err != nil {
			s.options.Failed(status.Code(err).String())
		}
	}()
	client, err := s.client(ctx)
	if err != nil {
		return nil, err
	}
	var r ratelimit.RateLimitRequest
	if err := read(&r); err != nil { // after the checks, because it takes memory
		return nil, err
	}
	s.silence.heard(ctx)
	if client != nil && !client.MayPolicy(access.Check, Prefix+r.GetDomain()) {
		return nil, status.Error(codes.PermissionDenied,
			"want the right check for "+Prefix+r.GetDomain())
	}
	answer, err := s.service.Decide(ctx, &r)
	if err != nil {
		return nil, translate(ctx, err)
	}
	return answer, nil
}

func translate(ctx context.Context, err error) error {
	if _, bad := errors.AsType[*admission.RequestError](err); bad {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	return status.Error(codes.Unavailable, "the store of limits does not answer")
}

func (s *Server) client(ctx context.Context) (*access.Client, error) {
	known := s.options.Guard.Clients()
	if known == nil {
		return nil, nil
	}
	as := &http.Request{Header: http.Header{}}
	if given, ok := metadata.FromIncomingContext(ctx); ok && len(given["authorization"]) > 0 {
		as.Header["Authorization"] = given["authorization"]
	}
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			as.TLS = &info.State
		}
	}
	client, err := known().Of(as)
	if errors.Is(err, access.ErrProvider) {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	if err != nil {
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	return client, nil
}
