// Package natstest starts embedded NATS servers for tests.
package natstest

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// Patience bounds the waits of tests for fast operations.
var Patience = waittest.Patience()

// Start starts a server, by default in the test's directory.
func Start(t testing.TB, o embedded.Options) *embedded.Server {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s, err := embedded.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

// Connect returns a connection that is closed at the end of the test.
func Connect(t testing.TB, s *embedded.Server) *nats.Conn {
	t.Helper()
	nc, err := s.Connect(nats.MaxReconnects(-1), nats.Timeout(timeout))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Reconnecting is Connect with a reconnect interval of 10 ms.
func Reconnecting(t testing.TB, url string, o ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, append(o, nats.MaxReconnects(-1), nats.Timeout(timeout),
		nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// New returns a connection to a new server.
func New(t testing.TB) *nats.Conn {
	t.Helper()
	return Connect(t, Start(t, embedded.Options{}))
}

// Context returns a context that ends after Patience.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}
