package queue

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/queue/embedded"
)

func TestAskValve(t *testing.T) {
	s := startServer(t, embedded.Options{})
	owner, asker := brokerOver(t, connect(t, s)), brokerOver(t, connect(t, s))
	ctx := testContext(t)
	if _, err := asker.AskValve(ctx, "stripe", 3, ValveQuestion{Op: OpRoom, Key: "a"}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("nobody owns it: %v, want ErrUnavailable", err)
	}
	type asked struct {
		q     ValveQuestion
		reply func(ValveAnswer)
	}
	questions := make(chan asked, 4)
	stop, err := owner.ServeValve("stripe", 3, func(q ValveQuestion, reply func(ValveAnswer)) { questions <- asked{q, reply} })
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{})
	go func() { // later, and from elsewhere
		defer close(answered)
		for a := range questions {
			switch a.q.Op {
			case OpExpect:
				var starts []ExpectedStart
				for _, seq := range a.q.Jobs {
					starts = append(starts, ExpectedStart{Seq: seq, Known: true, DelayMS: int64(seq) * 10})
				}
				a.reply(ValveAnswer{Starts: starts})
			case OpRoom:
				a.reply(ValveAnswer{DelayMS: 250})
			default:
				a.reply(ValveAnswer{Error: "no such operation"})
			}
		}
	}()
	a, err := asker.AskValve(ctx, "stripe", 3, ValveQuestion{Op: OpExpect, Jobs: []uint64{4, 2}})
	if err != nil || len(a.Starts) != 2 || a.Starts[0] != (ExpectedStart{4, true, 40}) || a.Starts[1].Seq != 2 {
		t.Errorf("got %+v, %v", a, err)
	}
	if a, err = asker.AskValve(ctx, "stripe", 3, ValveQuestion{Op: OpRoom, Key: "a"}); err != nil || a.DelayMS != 250 {
		t.Errorf("got %+v, %v", a, err)
	}
	if _, err = asker.AskValve(ctx, "stripe", 3, ValveQuestion{Op: "dance"}); err == nil || !strings.Contains(err.Error(), "no such") {
		t.Errorf("got %v", err)
	}
	for _, raw := range []string{`{"v":2,"op":"room"}`, `{`} {
		m, err := asker.nc.Request(asker.names.Valve("stripe", 3), []byte(raw), 5*time.Second)
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
	if _, err := asker.AskValve(short, "stripe", 3, ValveQuestion{Op: OpRoom}); !errors.Is(err, ErrUnavailable) {
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
		if m, err := sub.NextMsg(patience); err == nil {
			_ = m.Respond([]byte(`{"v":2}`))
		}
	}()
	if _, err := b.AskValve(testContext(t), "stripe", 0, ValveQuestion{Op: OpRoom}); !errors.Is(err, ErrVersion) {
		t.Errorf("got %v, want ErrVersion", err)
	}
}
