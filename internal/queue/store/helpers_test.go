package store

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/policytest"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
)

var paced = policytest.Paced

func storeOver(t testing.TB, nc *nats.Conn) *Store {
	t.Helper()
	broker, err := jet.NewBroker(nc, jet.Options{})
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

// pause pauses or resumes a policy, as an operator.
func pause(t testing.TB, s *Store, name string, paused bool) inforce.Entry {
	t.Helper()
	patch := []byte(`{"paused":false}`)
	if paused {
		patch = []byte(`{"paused":true}`)
	}
	return pull(t, s, name, patch, inforce.Lever{})
}

func pull(t testing.TB, s *Store, name string, patch []byte, l inforce.Lever) inforce.Entry {
	t.Helper()
	_, entry, err := s.Change(natstest.Context(t), name, Change{Act: Pull,
		Edit: func(_ inforce.Entry, e *inforce.Entry) (err error) {
			e.Levers, err = e.Levers.Patch(patch, l)
			return err
		}})
	if err != nil {
		t.Fatal(err)
	}
	return entry
}

func do(t testing.TB, s *Store, name string, c Change) {
	t.Helper()
	if _, _, err := s.Change(natstest.Context(t), name, c); err != nil {
		t.Fatal(err)
	}
}

// load replaces a set by policies with Again.
func load(t testing.TB, s *Store, set string, ps ...policy.Policy) Replaced {
	t.Helper()
	result, err := s.Replace(natstest.Context(t), Set{Name: set, Policies: ps, Again: true,
		Shrink: true})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// end drains and forgets a policy of the API.
func end(t testing.TB, s *Store, name string) {
	t.Helper()
	ctx := natstest.Context(t)
	do(t, s, name, Change{Act: Delete})
	if gone, err := s.Forget(ctx, name); err != nil || !gone {
		t.Fatalf("gone %t, %v", gone, err)
	}
}
