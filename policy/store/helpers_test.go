package store

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/natstest"
	"github.com/penstock-mq/penstock/internal/policytest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

var paced = policytest.Paced

func storeOver(t testing.TB, nc *nats.Conn) *Store {
	t.Helper()
	broker, err := queue.NewBroker(nc, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.Setup(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	return New(broker, nil)
}

func newStore(t testing.TB) *Store {
	t.Helper()
	return storeOver(t, natstest.New(t))
}

func apply(t testing.TB, s *Store, p policy.Policy) {
	t.Helper()
	if err := s.broker.Apply(natstest.Context(t), p); err != nil {
		t.Fatal(err)
	}
}
