package jet

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue/embedded"
)

func TestAskValve(t *testing.T) {
	s := natstest.Start(t, embedded.Options{})
	owner, asker := brokerOver(t, natstest.Connect(t, s)), brokerOver(t, natstest.Connect(t, s))
	ctx := natstest.Context(t)
	if _, err := asker.AskValve(ctx, "stripe", 3,
		job.Question{Op: job.OpRoom, Key: "a"}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("nobody owns it: %v, want ErrUnavailable", err)
	}
	type asked struct {
		q     job.Question
		reply func(job.Answer)
	}
	questions := make(chan asked, 4)
	stop, err := owner.ServeValve("stripe", 3, func(q job.Question, reply func(job.Answer)) {
		questions <- asked{q, reply}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for a := range questions {
			switch a.q.Op {
			case job.OpExpect:
				var starts []job.ExpectedStart
				for _, seq := range a.q.Jobs {
					starts = append(starts,
						job.ExpectedStart{Seq: seq, Known: true, DelayMS: int64(seq) * 10})
				}
				a.reply(job.Answer{Starts: starts})
			case job.OpRoom:
				a.reply(job.Answer{DelayMS: 250})
			default:
				a.reply(job.Answer{Error: "no such operation"})
			}
		}
	}()
	a, err := asker.AskValve(ctx, "stripe", 3, job.Question{Op: job.OpExpect, Jobs: []uint64{4, 2}})
	if err != nil || len(a.Starts) != 2 ||
		a.Starts[0] != (job.ExpectedStart{Seq: 4, Known: true, DelayMS: 40}) ||
		a.Starts[1].Seq != 2 {
		t.Errorf("got %+v, %v", a, err)
	}
	if a, err = asker.AskValve(ctx, "stripe", 3, job.Question{Op: job.OpRoom, Key: "a"}); err !=
		nil || a.DelayMS != 250 {
		t.Errorf("got %+v, %v", a, err)
	}
	if _, err = asker.AskValve(ctx, "stripe", 3, job.Question{Op: "dance"}); err == nil ||
		!strings.Contains(err.Error(), "no such") {
		t.Errorf("got %v", err)
	}
	for _, raw := range []string{`{"v":2,"op":"room"}`, `{`} {
		m, err := asker.nc.Request(asker.names.Valve("stripe", 3), []byte(raw), natstest.Patience)
		if err != nil || !strings.Contains(string(m.Data), `"error"`) {
			t.Errorf("%s is answered %v, %v", raw, m, err)
		}
	}
	stop()
	close(questions)
	<-answered
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := owner.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := asker.AskValve(short, "stripe", 3, job.Question{Op: job.OpRoom}); !errors.Is(err,
		ErrUnavailable) {
		t.Errorf("after stop: %v", err)
	}
}

func TestValveInANewerFormat(t *testing.T) {
	b := newBroker(t)
	sub, err := b.nc.SubscribeSync(b.names.Valve("stripe", 0))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if m, err := sub.NextMsg(natstest.Patience); err == nil {
			_ = m.Respond([]byte(`{"v":2}`))
		}
	}()
	if _, err := b.AskValve(natstest.Context(t), "stripe", 0,
		job.Question{Op: job.OpRoom}); !errors.Is(err, job.ErrVersion) {
		t.Errorf("got %v, want ErrVersion", err)
	}
}

func TestValveStates(t *testing.T) {
	b := newBroker(t)
	zero, position := int64(0), 3
	answers := map[string]job.Answer{
		job.OpBuckets: {Total: 7, Buckets: []job.BucketState{
			{Key: "a", Depth: 3, BucketState: api.BucketState{Waiting: 1, Delayed: 1,
				Running: 1, Rate: 0.25, ETAMS: &zero}},
			{Key: "b%20c", Depth: 1, BucketState: api.BucketState{Paused: true,
				ThrottledMS: 5, HeadAgeMS: 9}},
		}},
		job.OpBucket: {Bucket: &job.BucketState{Key: "a"}},
		job.OpJob: {Job: &job.State{Seq: 4, Key: "a", State: job.Waiting, Position: &position,
			Attempts: 1, LastError: "x",
			AcceptedAt: time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)}},
		job.OpCancel: {Removed: 1, Job: &job.State{Seq: 4, Key: "a", State: job.Delayed}},
		job.OpPurge:  {Removed: 9},
	}
	asked := make(chan job.Question, len(answers))
	stop, err := b.ServeValve("stripe", 0, func(q job.Question, reply func(job.Answer)) {
		asked <- q
		reply(answers[q.Op])
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for op, want := range answers {
		q := job.Question{Op: op, Key: "a", Jobs: []uint64{4}, Limit: 10, Offset: 20}
		got, err := b.AskValve(natstest.Context(t), "stripe", 0, q)
		want.V, q.V = job.FormatVersion, job.FormatVersion
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", op, got, err, want)
		}
		if heard := <-asked; !reflect.DeepEqual(heard, q) {
			t.Errorf("asked %+v, heard %+v", q, heard)
		}
	}
}
