package natstarget_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
	"github.com/penstock-mq/penstock/workers/natstarget"
)

// A forwarded Nats-Rollup once emptied the stream, and a job with another's Nats-Msg-Id was dropped
// as its duplicate.
func TestNoJobCommandsTheStreamBehindItsTarget(t *testing.T) {
	nc := connect(t)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(waittest.Patience()))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(t.Context(),
		jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, AllowRollup: true})
	if err != nil {
		t.Fatal(err)
	}
	handle := target(t, nc, "orders.new")
	run := func(id string, header nats.Header) string {
		return kind(handle(t.Context(),
			workers.Job{ID: id, IdempotencyKey: id, Policy: "api", Key: "k", Header: header}))
	}
	for _, id := range []string{"a", "b", "c"} {
		if got := run(id, nil); got != "done" {
			t.Fatalf("job %s: %s", id, got)
		}
	}
	for name, value := range map[string]string{
		"Penstock-Forward-Nats-Rollup": "all", "penstock-forward-nats-rollup": "sub",
		"Penstock-Forward-Nats-Msg-Id": "a",
		"Penstock-Forward-Status":      "503", "Penstock-Forward-Penstock-Key": "other",
	} {
		if got := run("x", nats.Header{name: {value}}); got != "permanent" {
			t.Errorf("%s: %s: %s", name, value, got)
		}
	}
	if info, err := stream.Info(t.Context()); err != nil || info.State.Msgs != 3 {
		t.Errorf("the stream holds %d messages, %v; want 3", info.State.Msgs, err)
	}
	if got := run("a", nil); got != "done" {
		t.Errorf("job a once more: %s", got)
	}
	if info, err := stream.Info(t.Context()); err != nil || info.State.Msgs != 3 {
		t.Errorf("a job whose answer was lost was stored twice: %d messages, %v", info.State.Msgs,
			err)
	}
}

func TestAPolicyMayForwardNothing(t *testing.T) {
	nc := connect(t)
	handle, err := natstarget.New(nc, "penstock")(inforce.Entry{Policy: policy.Policy{
		Target: &policy.Target{NATS: &policy.NATSTarget{Subject: "svc",
			Forward: policy.Forward{}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := kind(handle(t.Context(),
		workers.Job{Header: nats.Header{"Penstock-Forward-X-A": {"1"}}})); got != "permanent" {
		t.Errorf("got %s", got)
	}
}

// Such jobs could command valves or bypass other policies' limits.
func TestNoTargetIsPenstocksOwnSubject(t *testing.T) {
	for _, subject := range []string{"staging.valve.next.0", "staging.admitted.next.k"} {
		p := policy.Policy{Name: "api",
			Rule: policy.Rule{Algorithm: policy.LeakingBucket, Outflow: algorithms.Rate{Count: 1,
				Per: 1e9}, Capacity: 1},
			Target: &policy.Target{NATS: &policy.NATSTarget{Subject: subject}}}
		if handle, err := natstarget.New(nil, "staging")(inforce.Entry{Policy: p}); err == nil ||
			handle != nil {
			t.Errorf("%s is a target", subject)
		}
	}
}
