package workers

import (
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func TestProtocolRoundTrip(t *testing.T) {
	j := Job{
		ID: "api:7", IdempotencyKey: "x", Policy: "api", Key: "a.b", Body: []byte("body"),
		Attempt:  3,
		Accepted: time.Date(2026, 3, 4, 5, 6, 7, 89, time.UTC),
		Header: nats.Header{
			"Own": {"1", "2"}, "penstock-status": {"no"}, "Penstock-Attempt": {"99"},
			"Penstock-Deadline": {"1h"},
			"idempotency-key":   {"x"},
		},
		settled: &settled{kept: true},
	}
	m := jobMessage("to", "reply", j, 1500*time.Millisecond)
	if m.Subject != "to" || m.Reply != "reply" ||
		job.HeaderValue(m.Header, "Penstock-Status") != "go" {
		t.Fatalf("message %v", m)
	}
	got, timeout, err := readJob(m)
	if err != nil || timeout != 1500*time.Millisecond {
		t.Fatal(timeout, err)
	}
	want := j
	want.Header = nats.Header{"Own": {"1", "2"}, "Penstock-Deadline": {"1h"},
		"Idempotency-Key": {"x"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("job %v, want %v", got, want)
	}
	for _, o := range []record.Outcome{
		{Seq: 7, Kind: record.OutcomeDone}, {Seq: 7, Kind: record.OutcomeFailed, Error: "no"},
		{Seq: 7, Kind: record.OutcomePermanent, Error: "never"},
		{Seq: 7, Kind: record.OutcomeThrottled, RetryAfter: 1500 * time.Millisecond, Error: "slow"},
		{Seq: 7, Kind: record.OutcomeThrottled},
		{Seq: 7, Kind: record.OutcomeThrottled, Doubtful: true, Error: "slow"},
		{Seq: 7, Kind: record.OutcomeFailed, Again: 10 * time.Second, Error: "locked"},
		{Seq: 7, Kind: record.OutcomeUncounted},
		{Seq: 7, Kind: record.OutcomeUncounted, Again: 10*time.Minute + time.Millisecond},
		{Seq: 7, Kind: record.OutcomeDone, RetryAfter: 2 * time.Second},
		{Seq: 7, Kind: record.OutcomeFailed, RetryAfter: time.Minute, Error: "no"},
		{Seq: 7, Kind: record.OutcomeDone, Used: map[string]int64{"tokens": 830, "calls": 0}},
	} {
		got, err := readOutcome(7, outcomeMessage("to", o))
		if err != nil || !reflect.DeepEqual(got, o) {
			t.Errorf("outcome %+v, want %+v: %v", got, o, err)
		}
	}
	for _, bad := range []nats.Header{
		{}, {"Penstock-Status": {"maybe"}},
		{"Penstock-Status": {"retry-after"}, "Penstock-Retry-After": {"soon"}},
		{"Penstock-Status": {"returned"}, "Penstock-Again": {"soon"}},
	} {
		if o, err := readOutcome(7, &nats.Msg{Header: bad}); err == nil {
			t.Errorf("%v is understood as %+v", bad, o)
		}
	}
	broken := nats.Header{headerReply: {"{"}}
	for _, m := range []*nats.Msg{{}, {Header: broken, Data: []byte("x")}} {
		if r := readReply(m); r != nil {
			t.Errorf("%v has the reply %+v", m, r)
		}
	}
	if r := readReply(&nats.Msg{Data: []byte("x")}); r == nil || string(r.Body) != "x" {
		t.Errorf("a payload alone is the reply %+v", r)
	}
	m.Header.Set("Penstock-V", "2")
	if _, _, err := readJob(m); err == nil {
		t.Error("a job of another version is understood")
	}
}
