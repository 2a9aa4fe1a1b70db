package envoytest

import (
	"io"
	"net"
	"runtime"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"

	"github.com/penstock-mq/penstock/admission/limiter"
	"github.com/penstock-mq/penstock/internal/server/envoy"
	"github.com/penstock-mq/penstock/internal/server/guard"
)

// A client that begins requests and resets them at once (CVE-2023-44487) is limited by the streams
// of its connection, and others are answered.
func TestRapidResetsHoldNothing(t *testing.T) {
	s := serve(t, limiter.New(limiter.Options{}), guard.Options{})
	go func() {
		for range s.failed {
		}
	}()
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	header := headersOf(t, "/"+envoy.Name+"/ShouldRateLimit")
	frames := http2.NewFramer(conn, nil)
	_, err = io.WriteString(conn, http2.ClientPreface)
	if err == nil {
		err = frames.WriteSettings()
	}
	most, before := 0, runtime.NumGoroutine()
	for id := uint32(1); id < 20_000 && err == nil; id += 2 {
		err = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true,
			BlockFragment: header})
		if err == nil {
			err = frames.WriteRSTStream(id, http2.ErrCodeCancel)
		}
		most = max(most, runtime.NumGoroutine()-before)
	}
	if err != nil {
		t.Logf("the server ended the connection: %v", err)
	}
	if most > 1100 { // the streams of a connection, and the connection's
		t.Errorf("%d goroutines are at work", most)
	}
	ask(t, s.plain(), &rls.RateLimitRequest{Domain: "edge",
		Descriptors: []*common.RateLimitDescriptor{of("ip", "a")}})
}
