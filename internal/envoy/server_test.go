package envoy_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/penstock-mq/penstock/internal/certtest"
	"github.com/penstock-mq/penstock/internal/envoy"
	"github.com/penstock-mq/penstock/internal/follow"
	"github.com/penstock-mq/penstock/internal/guard"
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

// A client may open streams and send no request.
func TestStreamsWithoutARequestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := bufconn.Listen(1 << 20)
		listen(t, at, guard.Options{})
		connect := func() *grpc.ClientConn {
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
		if took := time.Since(began); took > time.Minute {
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
