package workers

import (
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/claims"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// heard is what a worker's client makes of a message.
func heard(m *nats.Msg) (*claims.Turn, error) {
	text, body := job.Carried(m.Header, m.Data)
	t, err := job.ReadTurn(text)
	return &claims.Turn{Turn: t, To: m.Reply, Header: m.Header, Body: body}, err
}

func TestAJobArrivesAsItWasSent(t *testing.T) {
	j := Job{
		ID: "api:7", IdempotencyKey: "x", Policy: "api", Key: "a.b", Body: []byte("body"),
		Attempt:  3,
		Accepted: time.Date(2026, 3, 4, 5, 6, 7, 89, time.UTC),
		Header: nats.Header{
			"Own": {"1", "2"}, "penstock-turn": {"no"}, "Penstock-Attempt": {"99"},
			"Penstock-Deadline": {"1h"},
			"idempotency-key":   {"x"},
		},
		settled: &settled{kept: true, maxDelay: 20 * time.Millisecond},
	}
	m := jobMessage("to", "reply", j, 1500*time.Millisecond)
	if m.Subject != "to" || m.Reply != "reply" {
		t.Fatalf("message %v", m)
	}
	turn, err := heard(m)
	if err != nil || turn.State != job.TurnGo {
		t.Fatalf("turn %+v: %v", turn, err)
	}
	got, lease, err := readJob(turn)
	if err != nil || lease != 1500*time.Millisecond {
		t.Fatal(lease, err)
	}
	want := j
	want.Header = nats.Header{"Own": {"1", "2"}, "Penstock-Attempt": {"99"},
		"Penstock-Deadline": {"1h"}, "idempotency-key": {"x"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("job %v, want %v", got, want)
	}
	for _, bad := range []job.Turn{{State: job.TurnGo, LeaseMS: 1},
		{State: job.TurnRefused, LeaseMS: 1, Job: &job.Started{}},
		{State: job.TurnGo, Job: &job.Started{}},
		{State: job.TurnGo, LeaseMS: -1, Job: &job.Started{}}} {
		if j, lease, err := readJob(&claims.Turn{Turn: bad}); err == nil {
			t.Errorf("%+v is understood as %+v within %v", bad, j, lease)
		}
	}
	m.Header.Set(job.HeaderTurn, `{"v":2,"state":"go","lease_ms":1,"job":{"id":"api:7"}}`)
	if turn, err := heard(m); err == nil {
		t.Errorf("a job of another version is understood: %+v", turn)
	}
}

func TestReportsOfARun(t *testing.T) {
	for _, c := range []struct {
		text, carried string
		outcome       record.Outcome
		reply         *queue.Reply // nil: none
	}{
		{text: `{"v":1,"op":"settle","status":"done"}`,
			outcome: record.Outcome{Kind: record.OutcomeDone}},
		{text: `{"v":1,"op":"settle","status":"fail"}`,
			outcome: record.Outcome{Kind: record.OutcomeFailed, Answer: record.AnswerNone,
				Error: "the worker gave no reason"}},
		{text: `{"v":1,"op":"settle","status":"retry-after","answer":"none"}`,
			outcome: record.Outcome{Kind: record.OutcomeThrottled, Answer: record.AnswerNone}},
		{text: `{"v":1,"op":"settle","status":"permanent"}`,
			outcome: record.Outcome{Kind: record.OutcomePermanent,
				Error: "the worker gave no reason"}},
		{text: `{"v":1,"op":"progress","progress":"40 %"}`},
		{text: `{"v":1,"op":"settle","status":"done"}`, carried: "x",
			outcome: record.Outcome{Kind: record.OutcomeDone},
			reply:   &queue.Reply{Body: []byte("x")}},
		{text: `{"v":1,"op":"settle","status":"done","reply":{"status":201}}`, carried: "x",
			outcome: record.Outcome{Kind: record.OutcomeDone},
			reply:   &queue.Reply{Status: 201, Body: []byte("x")}},
	} {
		m := &nats.Msg{Data: []byte(c.text)}
		if c.carried != "" {
			m = &nats.Msg{Data: []byte(c.carried),
				Header: nats.Header{"penstock-turn": {c.text}}}
		}
		claim, o, err := readReport(m, time.Now())
		if err != nil || !reflect.DeepEqual(o, c.outcome) ||
			!reflect.DeepEqual(claim.Reply, c.reply) {
			t.Errorf("%s is read as %+v, %+v: %v", c.text, claim, o, err)
		}
	}
	for _, bad := range []string{"", "{", `{"v":2,"op":"progress"}`, `{"v":1,"op":"claim"}`,
		`{"v":1,"op":"maybe"}`, `{"v":1,"op":"settle"}`, `{"v":1,"op":"settle","status":"maybe"}`,
		`{"v":1,"op":"settle","status":"retry-after","retry_after_ms":"soon"}`,
		`{"v":1,"op":"settle","status":"returned","again":"soon"}`,
		`{"v":1,"op":"settle","status":"done","reply":{"status":"x"}}`} {
		if c, o, err := readReport(&nats.Msg{Data: []byte(bad)}, time.Now()); err == nil {
			t.Errorf("%s is understood as %+v, %+v", bad, c, o)
		}
	}
}
