package envoy_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"maps"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/penstock-mq/penstock/internal/kit/certtest"
	"github.com/penstock-mq/penstock/internal/server/envoy"
	"github.com/penstock-mq/penstock/internal/server/follow"
	"github.com/penstock-mq/penstock/internal/server/guard"
)

func listen(t *testing.T, at net.Listener, o guard.Options) {
	t.Helper()
	s, _, _ := serve(t, envoy.Options{}, edge)
	g, err := guard.Open(o, new(follow.Status), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	server := envoy.NewServer(s, at, envoy.ServerOptions{Guard: g,
		Logger: slog.New(slog.DiscardHandler)})
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func dial(t *testing.T, at *bufconn.Listener) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return at.DialContext(ctx)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// A client may open streams and send no request.
func TestStreamsWithoutARequestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := bufconn.Listen(1 << 20)
		listen(t, at, guard.Options{})
		connect := func() *grpc.ClientConn { return dial(t, at) }
		conn := connect()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		watch, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx,
			&grpc_health_v1.HealthCheckRequest{})
		if err == nil {
			_, err = watch.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for _, method := range []string{"/" + envoy.Name + "/ShouldRateLimit",
			"/grpc.health.v1.Health/Check",
			"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"} {
			stream, err := conn.NewStream(ctx,
				&grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
			if err != nil {
				t.Fatal(err)
			}
			err = stream.RecvMsg(new(grpc_health_v1.HealthCheckResponse))
			if status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("%s: %v", method, err)
			}
		}
		if took := time.Since(began); took != 15*time.Second {
			t.Errorf("three streams take %s", took)
		}

		// Watches last. They are limited, because each takes memory.
		for n := 2; ; n++ {
			if n%100 == 0 {
				conn = connect()
			}
			another, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx,
				&grpc_health_v1.HealthCheckRequest{})
			if err == nil {
				_, err = another.Recv()
			}
			if status.Code(err) == codes.ResourceExhausted {
				break
			}
			if err != nil || n > 2000 {
				t.Fatalf("watch %d: %v", n, err)
			}
		}
	})
}

// addressed gives each connection an address.
type addressed struct {
	*bufconn.Listener
	next func() net.Addr
}

func (a addressed) Accept() (net.Conn, error) {
	conn, err := a.Listener.Accept()
	return from{conn, a.next()}, err
}

type from struct {
	net.Conn
	address net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.address }

// Each stream takes memory, and anyone may open streams. Beyond a bound of one address, and of all,
// the oldest stream without a message ends.
func TestStreamsWithoutAMessageAreBounded(t *testing.T) {
	for name, c := range map[string]struct{ addresses, bound int }{
		"of an address": {1, 1024}, "of all": {256, 4096}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				at := addressed{bufconn.Listen(1 << 20), func() net.Addr {
					n++
					return &net.TCPAddr{IP: net.IPv4(10, 0, 0, byte(n%c.addresses)), Port: n}
				}}
				listen(t, at, guard.Options{})
				ended := map[codes.Code]int{}
				var mu sync.Mutex
				opened := c.bound/128*128 + 2*128
				conn := dial(t, at.Listener)
				watch, err := grpc_health_v1.NewHealthClient(conn).Watch(t.Context(),
					&grpc_health_v1.HealthCheckRequest{})
				if err == nil {
					_, err = watch.Recv()
				}
				if err != nil {
					t.Fatal(err)
				}
				ends := func(receive func() error) {
					err := receive()
					mu.Lock()
					defer mu.Unlock()
					ended[status.Code(err)]++
				}
				go ends(func() error { // it has sent its message
					_, err := watch.Recv()
					return err
				})
				for i := range opened {
					if i%128 == 0 {
						conn = dial(t, at.Listener)
					}
					stream, err := conn.NewStream(t.Context(),
						&grpc.StreamDesc{ClientStreams: true}, "/"+envoy.Name+"/ShouldRateLimit")
					if err != nil {
						t.Fatal(err)
					}
					go ends(func() error {
						return stream.RecvMsg(new(ratelimit.RateLimitResponse))
					})
				}
				synctest.Wait()
				check := func(want map[codes.Code]int) {
					t.Helper()
					mu.Lock()
					defer mu.Unlock()
					if !maps.Equal(ended, want) {
						t.Errorf("%v have ended, want %v", ended, want)
					}
				}
				check(map[codes.Code]int{codes.Canceled: opened - c.bound})
				_, err = ratelimit.NewRateLimitServiceClient(dial(t, at.Listener)).ShouldRateLimit(
					t.Context(), &ratelimit.RateLimitRequest{Domain: "edge",
						Descriptors: []*descriptor{of("ip", "a")}})
				if err != nil {
					t.Errorf("another request: %v", err)
				}
				time.Sleep(5 * time.Second)
				synctest.Wait()
				check(map[codes.Code]int{codes.Canceled: opened - c.bound + 1,
					codes.DeadlineExceeded: c.bound - 1})
			})
		})
	}
}

// Streams that are refused are not among the streams that are limited.
func TestRefusedWatchesTakeNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := bufconn.Listen(1 << 20)
		listen(t, at, guard.Options{})
		watch := func(ctx context.Context, conn *grpc.ClientConn) codes.Code {
			w, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx,
				&grpc_health_v1.HealthCheckRequest{})
			if err == nil {
				_, err = w.Recv()
			}
			return status.Code(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var conn *grpc.ClientConn
		for i := range 1950 {
			if i%100 == 0 {
				conn = dial(t, at)
			}
			want := codes.OK
			if i >= 1000 {
				want = codes.ResourceExhausted
			}
			if got := watch(ctx, conn); got != want {
				t.Fatalf("watch %d: %s, want %s", i, got, want)
			}
		}
		time.Sleep(time.Hour) // watches last
		if got := watch(ctx, conn); got != codes.ResourceExhausted {
			t.Errorf("after an hour: %s", got)
		}
		cancel()
		synctest.Wait()
		for i := range 100 {
			if got := watch(t.Context(), conn); got != codes.OK {
				t.Fatalf("watch %d after the others: %s", i, got)
			}
		}
	})
}

// Envoy, with auto_config, and proxies offer both protocols.
func TestClientsThatAlsoSpeakHTTP1GetHTTP2(t *testing.T) {
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	authority := certtest.New(t)
	o := guard.Options{}
	o.TLS.Cert, o.TLS.Key = authority.Issue("server")
	listen(t, at, o)
	config := authority.Client("")
	config.NextProtos = []string{"http/1.1", "h2"}
	conn, err := tls.Dial("tcp", at.Addr().String(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.ConnectionState().NegotiatedProtocol; got != "h2" {
		t.Errorf("it speaks %q", got)
	}
}
