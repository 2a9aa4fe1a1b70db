// Package natstest gives tests a NATS server of their own, in their process.
package natstest

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/waittest"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// Patience is how long a test waits for what should come at once.
var Patience = waittest.Patience()

// Start starts a server, in a directory of the test unless the options name one.
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

// Connect returns a connection to a server, until the end of the test.
func Connect(t testing.TB, s *embedded.Server) *nats.Conn {
	t.Helper()
	nc, err := s.Connect(nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Reconnecting returns a connection, until the end of the test, that looks for its server every 10
// ms when it is lost.
func Reconnecting(t testing.TB, url string, o ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, append(o, nats.MaxReconnects(-1),
		nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// New returns a connection to a server of its own.
func New(t testing.TB) *nats.Conn {
	t.Helper()
	return Connect(t, Start(t, embedded.Options{}))
}

// Context returns a context that ends when a test has waited for too long.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}
