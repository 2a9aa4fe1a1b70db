package envoytest

import (
	"bytes"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/penstock-mq/penstock/admission/limiter"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/server/envoy"
	"github.com/penstock-mq/penstock/internal/server/guard"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
)

// headersOf is the block of headers of a request.
func headersOf(t testing.TB, method string) []byte {
	t.Helper()
	var block bytes.Buffer
	fields := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "x"},
		{":path", method}, {"te", "trailers"}, {"content-type", "application/grpc"}} {
		field := hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true}
		if err := fields.WriteField(field); err != nil {
			t.Fatal(err)
		}
	}
	return block.Bytes()
}

// silent opens a connection with streams without a message, and returns when the server has them.
func silent(t testing.TB, address string, streams int, headers []byte) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	var all bytes.Buffer
	frames := http2.NewFramer(&all, conn)
	all.WriteString(http2.ClientPreface)
	err = frames.WriteSettings()
	for i := range uint32(streams) {
		if err == nil {
			err = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1,
				EndHeaders: true, BlockFragment: headers})
		}
	}
	if err == nil {
		err = frames.WritePing(false, [8]byte{})
	}
	if err == nil {
		_, err = conn.Write(all.Bytes())
	}
	_ = conn.SetReadDeadline(time.Now().Add(waittest.Patience()))
	for err == nil {
		var frame http2.Frame
		frame, err = frames.ReadFrame()
		if ping, ok := frame.(*http2.PingFrame); ok && ping.IsAck() {
			return
		}
	}
	t.Fatal(err)
}

// memory is that of objects and stacks, in MiB.
func memory() float64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse+m.StackInuse) / (1 << 20)
}

// The most memory that connections and streams of one address take at a time, without a message:
// go -C internal/envoytest test -bench SilentStreams -run '^$' -benchtime 1x
func BenchmarkSilentStreams(b *testing.B) {
	for b.Loop() {
		s := serve(b, limiter.New(limiter.Options{}), guard.Options{})
		go func() {
			for range s.failed {
			}
		}()
		block := headersOf(b, "/"+envoy.Name+"/ShouldRateLimit")
		runtime.GC()
		before := memory()
		for range lifecycle.DefaultMaxPerClient {
			silent(b, s.address, 0, block)
		}
		connections, most, streams := memory()-before, 0., 0
		for range lifecycle.DefaultMaxPerClient {
			silent(b, s.address, 128, block)
			most = max(most, memory()-before-2*connections)
			streams = max(streams, runtime.NumGoroutine()-6*lifecycle.DefaultMaxPerClient)
		}
		b.ReportMetric(connections, "MiB-of-connections")
		b.ReportMetric(most, "MiB-of-streams")
		b.ReportMetric(float64(streams), "streams")
	}
}
