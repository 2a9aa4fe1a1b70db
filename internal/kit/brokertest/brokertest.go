// Package brokertest starts NATS servers with an installation's tables for tests.
package brokertest

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// Start starts a server in a temporary directory and connects to it. Both end with the test.
func Start(t testing.TB, o embedded.Options) (*embedded.Server, *nats.Conn) {
	t.Helper()
	o.Dir = ""
	server := natstest.Start(t, o)
	return server, natstest.Connect(t, server)
}

// Open returns a broker with tables, and with policies with defaults and their streams.
func Open(t testing.TB, nc *nats.Conn, policies ...policy.Policy) *jet.Broker {
	t.Helper()
	broker, err := jet.NewBroker(nc, jet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range policies {
		p = p.WithDefaults()
		if _, err := store.New(broker, nil).Put(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if err := broker.Apply(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	return broker
}
