package door_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/limiter"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/server/door"
	"github.com/penstock-mq/penstock/internal/server/follow"
	"github.com/penstock-mq/penstock/internal/server/guard"
	"github.com/penstock-mq/penstock/policy"
)

func TestACallWhoseFirstConnectionFailsIsUnavailable(t *testing.T) {
	nc, log := natstest.New(t), slog.New(slog.DiscardHandler)
	broker, err := jet.NewBroker(nc, jet.Options{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	unused, err := guard.Open(guard.Options{}, new(follow.Status), log)
	if err != nil {
		t.Fatal(err)
	}
	away := nats.ErrNoServers
	d := door.New(door.Options{Broker: broker, Valves: broker, Log: log,
		Limits:  limiter.New(limiter.Options{Logger: log}),
		HTTP:    door.HTTP{Guard: unused},
		Connect: func(string) (*nats.Conn, error) { return nc, away }})
	defer d.Close()
	d.Follow(inforce.Entries{"mail": {Policy: policy.Policy{Name: "mail",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 1,
			Outflow: algorithms.Rate{Count: 1, Per: time.Second}}}.WithDefaults()}},
		[]string{"mail"})
	if _, err := d.Callers("mail"); !errors.Is(err, admission.ErrUnavailable) ||
		!errors.Is(err, nats.ErrNoServers) {
		t.Errorf("without NATS: %v", err)
	}
	away = nil
	if _, err := d.Callers("mail"); err != nil {
		t.Errorf("with NATS again: %v", err)
	}
	if _, err := d.Callers("male"); !errors.Is(err, admission.ErrUnknownPolicy) {
		t.Errorf("of an unknown policy: %v", err)
	}
}
