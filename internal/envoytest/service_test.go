package envoytest

import (
	"context"
	"crypto/tls"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	kinds "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/penstock-mq/penstock/admission/limiter"
	"github.com/penstock-mq/penstock/admission/limiter/inredis"
	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/kit/certtest"
	"github.com/penstock-mq/penstock/internal/kit/redistest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/server/envoy"
	"github.com/penstock-mq/penstock/internal/server/follow"
	"github.com/penstock-mq/penstock/internal/server/guard"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
)

const edge = `
domain: edge
descriptors:
- {key: ip, rate_limit: {unit: week, requests_per_unit: 3, name: per-ip}}
- {key: vip, rate_limit: {unlimited: true, replaces: [{name: per-ip}]}}
- {key: tried, shadow_mode: true, rate_limit: {unit: month, requests_per_unit: 1}}
`

type served struct {
	t       testing.TB
	address string
	server  *envoy.Server
	failed  chan string
	end     func()
}

func serve(t testing.TB, factory *limiter.Factory, g guard.Options) *served {
	t.Helper()
	s := &served{t: t, failed: make(chan string, 100)}
	file := filepath.Join(t.TempDir(), "edge.yaml")
	if err := os.WriteFile(file, []byte(edge), 0o600); err != nil {
		t.Fatal(err)
	}
	service, err := envoy.New(envoy.Options{NewLimit: factory.Limit, Files: []string{file},
		Headers: true})
	if err != nil {
		t.Fatal(err)
	}
	guarded, err := guard.Open(g, new(follow.Status), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = listener.Addr().String()
	s.server = envoy.NewServer(service, listener, envoy.ServerOptions{Guard: guarded,
		Limits: lifecycle.HTTPOptions{MaxPerClient: 2 * lifecycle.DefaultMaxPerClient},
		Failed: func(code string) { s.failed <- code },
		Logger: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.server.Run(ctx) }()
	s.end = func() {
		if stop(); ended != nil {
			if err := <-ended; err != nil {
				t.Error(err)
			}
			ended = nil
		}
	}
	t.Cleanup(s.end)
	return s
}

func (s *served) connect(as credentials.TransportCredentials) *grpc.ClientConn {
	s.t.Helper()
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(as))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	return conn
}

func (s *served) plain() rls.RateLimitServiceClient {
	return rls.NewRateLimitServiceClient(s.connect(insecure.NewCredentials()))
}

func of(key, value string) *common.RateLimitDescriptor {
	return &common.RateLimitDescriptor{
		Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}}}
}

func ask(t *testing.T, c rls.RateLimitServiceClient,
	r *rls.RateLimitRequest) *rls.RateLimitResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience())
	defer cancel()
	answer, err := c.ShouldRateLimit(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// lasts removes the time until a window ends from an answer, where it must be present if there is a
// limit.
func lasts(t *testing.T, a *rls.RateLimitResponse) *rls.RateLimitResponse {
	t.Helper()
	for i, s := range a.Statuses {
		reset := s.DurationUntilReset
		if (reset == nil) != (s.CurrentLimit == nil) || reset != nil && (reset.Nanos != 0 ||
			reset.Seconds < 1 || reset.Seconds > 30*24*3600) {
			t.Errorf("status %d: the window ends in %v", i, reset)
		}
		s.DurationUntilReset = nil
	}
	for _, h := range a.ResponseHeadersToAdd {
		if h.Key == "RateLimit-Reset" && h.Value >= "1" {
			h.Value = "some"
		}
	}
	return a
}

func testAnswers(t *testing.T, factory *limiter.Factory) {
	client := serve(t, factory, guard.Options{}).plain()
	const ok, over = rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT
	week := &rls.RateLimitResponse_RateLimit{RequestsPerUnit: 3, Name: "per-ip",
		Unit: rls.RateLimitResponse_RateLimit_WEEK}
	headers := func(limit, remaining string) []*core.HeaderValue {
		return []*core.HeaderValue{{Key: "RateLimit-Limit", Value: limit},
			{Key: "RateLimit-Remaining", Value: remaining},
			{Key: "RateLimit-Reset", Value: "some"}}
	}
	own, asks, back := of("any", "x"), of("ip", "a"), of("ip", "a")
	own.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 7,
		Unit: kinds.RateLimitUnit_DAY, UnitMultiplier: wrapperspb.UInt32(10)}
	asks.HitsAddend = wrapperspb.UInt64(0)
	back.HitsAddend, back.IsNegativeHits = wrapperspb.UInt64(2), true
	type statuses = []*rls.RateLimitResponse_DescriptorStatus
	for i, c := range []struct {
		hits uint32
		of   []*common.RateLimitDescriptor
		want *rls.RateLimitResponse
	}{
		{2, []*common.RateLimitDescriptor{of("ip", "a")}, &rls.RateLimitResponse{OverallCode: ok,
			Statuses:             statuses{{Code: ok, CurrentLimit: week, LimitRemaining: 1}},
			ResponseHeadersToAdd: headers("3", "1")}},
		{0, []*common.RateLimitDescriptor{asks, of("who", "knows")}, &rls.RateLimitResponse{
			OverallCode: ok,
			Statuses: statuses{{Code: ok, CurrentLimit: week, LimitRemaining: 1},
				{Code: ok}},
			ResponseHeadersToAdd: headers("3", "1")}},
		{2, []*common.RateLimitDescriptor{of("ip", "a"), of("ip", "b")}, &rls.RateLimitResponse{
			OverallCode: over,
			Statuses: statuses{{Code: over, CurrentLimit: week},
				{Code: ok, CurrentLimit: week, LimitRemaining: 1}},
			ResponseHeadersToAdd: headers("3", "0")}},
		{0, []*common.RateLimitDescriptor{back}, &rls.RateLimitResponse{OverallCode: ok,
			Statuses:             statuses{{Code: ok, CurrentLimit: week, LimitRemaining: 2}},
			ResponseHeadersToAdd: headers("3", "2")}},
		{1, []*common.RateLimitDescriptor{of("ip", "a"), of("vip", "é")}, &rls.RateLimitResponse{
			OverallCode: ok,
			Statuses:    statuses{{Code: ok}, {Code: ok, LimitRemaining: math.MaxUint32}}}},
		{9, []*common.RateLimitDescriptor{of("tried", "a")}, &rls.RateLimitResponse{OverallCode: ok,
			Statuses: statuses{{Code: ok, CurrentLimit: &rls.RateLimitResponse_RateLimit{
				RequestsPerUnit: 1, Unit: rls.RateLimitResponse_RateLimit_MONTH}}},
			ResponseHeadersToAdd: headers("1", "0")}},
		{3, []*common.RateLimitDescriptor{own}, &rls.RateLimitResponse{OverallCode: ok,
			Statuses: statuses{{Code: ok, LimitRemaining: 4,
				CurrentLimit: &rls.RateLimitResponse_RateLimit{RequestsPerUnit: 7,
					Unit:           rls.RateLimitResponse_RateLimit_DAY,
					UnitMultiplier: wrapperspb.UInt32(10)}}},
			ResponseHeadersToAdd: headers("7", "4")}},
	} {
		got := ask(t, client, &rls.RateLimitRequest{Domain: "edge", Descriptors: c.of,
			HitsAddend: c.hits})
		if lasts(t, got); !proto.Equal(got, c.want) {
			t.Errorf("%d: %v, want %v", i, got, c.want)
		}
	}
	none := ask(t, client, &rls.RateLimitRequest{Domain: "elsewhere",
		Descriptors: []*common.RateLimitDescriptor{of("ip", "a")}})
	if want := (&rls.RateLimitResponse{OverallCode: ok, Statuses: statuses{{Code: ok}}}); !proto.
		Equal(none, want) {
		t.Errorf("an unknown domain: %v", none)
	}
}

func TestAnswersInMemory(t *testing.T) { testAnswers(t, limiter.New(limiter.Options{})) }

func TestAnswersInRedis(t *testing.T) {
	testAnswers(t, limiter.New(limiter.Options{Shared: inredis.New(redistest.Start(t).Client(),
		inredis.Options{Timeout: waittest.Patience()})}))
}

func TestBadRequestsHaveACode(t *testing.T) {
	server := redistest.Start(t)
	s := serve(t, limiter.New(limiter.Options{Shared: inredis.New(server.Client(),
		inredis.Options{Timeout: waittest.Patience()})}), guard.Options{})
	client := s.plain()
	fails := func(want codes.Code, text string, r *rls.RateLimitRequest) {
		t.Helper()
		_, err := client.ShouldRateLimit(t.Context(), r)
		if status.Code(err) != want || text != "" && status.Convert(err).Message() != text {
			t.Errorf("%v, want %s: %s", err, want, text)
		}
		if got := <-s.failed; got != want.String() {
			t.Errorf("%s was counted, want %s", got, want)
		}
	}
	fails(codes.InvalidArgument, "domain: must not be empty", &rls.RateLimitRequest{
		Descriptors: []*common.RateLimitDescriptor{of("ip", "a")}})
	fails(codes.InvalidArgument, "descriptors: must not be empty",
		&rls.RateLimitRequest{Domain: "edge"})
	fails(codes.InvalidArgument, "descriptors: must have at most 256 entries",
		&rls.RateLimitRequest{Domain: "edge",
			Descriptors: make([]*common.RateLimitDescriptor, 257)})
	unit := of("ip", "a")
	unit.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1}
	fails(codes.InvalidArgument, "limit: the unit is unknown", &rls.RateLimitRequest{
		Domain: "edge", Descriptors: []*common.RateLimitDescriptor{unit}})
	unit.Limit.Unit, unit.Limit.UnitMultiplier = kinds.RateLimitUnit_DAY, wrapperspb.UInt32(0)
	fails(codes.InvalidArgument, "limit: the unit_multiplier must be at least 1, and a window at "+
		"most 366 days", &rls.RateLimitRequest{Domain: "edge",
		Descriptors: []*common.RateLimitDescriptor{unit}})
	fails(codes.ResourceExhausted, "", &rls.RateLimitRequest{Domain: string(make([]byte, 1<<20))})
	fine := &rls.RateLimitRequest{Domain: "edge",
		Descriptors: []*common.RateLimitDescriptor{of("ip", "a")}}
	if got := ask(t, client, fine); got.OverallCode != rls.RateLimitResponse_OK {
		t.Errorf("the next: %v", got)
	}
	server.Stop()
	fails(codes.Unavailable, "the store of limits does not answer", fine)
}

func TestHealthService(t *testing.T) {
	s := serve(t, limiter.New(limiter.Options{}), guard.Options{})
	health := grpc_health_v1.NewHealthClient(s.connect(insecure.NewCredentials()))
	check := func(service string) grpc_health_v1.HealthCheckResponse_ServingStatus {
		t.Helper()
		answer, err := health.Check(t.Context(),
			&grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		return answer.Status
	}
	for _, name := range []string{"", envoy.Name, "ratelimit"} {
		if got := check(name); got != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("%q: %s", name, got)
		}
	}
	watch, err := health.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := watch.Recv(); err != nil ||
		first.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", first, err)
	}
	s.server.Stopping()
	if got := check(""); got != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("about to stop: %s", got)
	}
	answer := ask(t, s.plain(), &rls.RateLimitRequest{Domain: "edge",
		Descriptors: []*common.RateLimitDescriptor{of("ip", "a")}})
	if answer.OverallCode != rls.RateLimitResponse_OK {
		t.Errorf("about to stop, it answers %v", answer)
	}
	s.end()
	if _, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err == nil {
		t.Error("it answers when it has ended")
	}
}

// Tools such as grpcurl use reflection.
func TestTheAPIIsDescribedByReflection(t *testing.T) {
	s := serve(t, limiter.New(limiter.Options{}), guard.Options{})
	client := reflection.NewServerReflectionClient(s.connect(insecure.NewCredentials()))
	stream, err := client.ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(request *reflection.ServerReflectionRequest) *reflection.ServerReflectionResponse {
		t.Helper()
		if err := stream.Send(request); err != nil {
			t.Fatal(err)
		}
		answer, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	services := ask(&reflection.ServerReflectionRequest{
		MessageRequest: &reflection.ServerReflectionRequest_ListServices{}})
	if !strings.Contains(services.String(), envoy.Name) {
		t.Errorf("services: %s", services)
	}
	described := ask(&reflection.ServerReflectionRequest{
		MessageRequest: &reflection.ServerReflectionRequest_FileContainingSymbol{
			FileContainingSymbol: envoy.Name}})
	if len(described.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("%s is not described: %s", envoy.Name, described)
	}
}

func TestRightsOfGateways(t *testing.T) {
	authority := certtest.New(t)
	tokens := filepath.Join(t.TempDir(), "clients.yaml")
	lines := "clients:\n"
	for name, may := range map[string][2]string{"good": {"check", "envoy.edge"},
		"other": {"check", "envoy.other"}, "edge": {"check", "edge"}, "reads": {"read", "*"}} {
		lines += access.Line(name, may[:1], may[1:], nil, name) + "\n"
	}
	lines += "  - {name: mesh, rights: [check], policies: ['envoy.*'], certificates: [mesh]}\n"
	if err := os.WriteFile(tokens, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	files := guard.Files{ClientCA: authority.File}
	files.Cert, files.Key = authority.Issue("server")
	s := serve(t, limiter.New(limiter.Options{}), guard.Options{Tokens: tokens, TLS: files})
	with := func(c *tls.Config) *grpc.ClientConn { return s.connect(credentials.NewTLS(c)) }
	anyone, mesh := with(authority.Client("")), with(authority.Client("mesh"))
	forged := authority.Client("")
	forged.Certificates = certtest.New(t).Client("mesh").Certificates
	for what, c := range map[string]struct {
		conn  *grpc.ClientConn
		token string
		want  codes.Code
	}{
		"a token":                         {anyone, "Bearer good", codes.OK},
		"a certificate":                   {mesh, "", codes.OK},
		"nobody":                          {anyone, "", codes.Unauthenticated},
		"a wrong token":                   {anyone, "Bearer bad", codes.Unauthenticated},
		"another scheme":                  {anyone, "Basic good", codes.Unauthenticated},
		"a wrong token and a certificate": {mesh, "Bearer bad", codes.Unauthenticated},
		"a certificate of no client": {with(authority.Client("stranger")), "",
			codes.Unauthenticated},
		"another's certificate":  {with(forged), "", codes.Unavailable},
		"another domain's token": {anyone, "Bearer other", codes.PermissionDenied},
		"a policy's token":       {anyone, "Bearer edge", codes.PermissionDenied},
		"another right":          {anyone, "Bearer reads", codes.PermissionDenied},
		"plain text": {s.connect(insecure.NewCredentials()), "Bearer good",
			codes.Unavailable},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience())
		if c.token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", c.token)
		}
		_, err := rls.NewRateLimitServiceClient(c.conn).ShouldRateLimit(ctx,
			&rls.RateLimitRequest{Domain: "edge",
				Descriptors: []*common.RateLimitDescriptor{of("ip", what)}})
		if status.Code(err) != c.want {
			t.Errorf("%s: %v, want %s", what, err, c.want)
		}
		cancel()
	}
	// Requests of unknown clients are not read, so they take no memory.
	_, err := rls.NewRateLimitServiceClient(anyone).ShouldRateLimit(t.Context(),
		&rls.RateLimitRequest{Domain: strings.Repeat("x", 300<<10)})
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("a large request of nobody: %v", err)
	}
	health := grpc_health_v1.NewHealthClient(anyone)
	if _, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Errorf("health is for everybody: %v", err)
	}
}
