package claims_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/claims"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// begin returns a claimant, and a connection of its valve.
func begin(t *testing.T) (*claims.Client, *claims.Claimant, *nats.Conn) {
	t.Helper()
	server, err := embedded.Start(embedded.Options{Listen: "127.0.0.1:0", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	connect := func() *nats.Conn {
		nc, err := nats.Connect(server.URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	client, err := claims.New(connect())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client, client.Open("x"), connect()
}

func serve(t *testing.T, nc *nats.Conn, subject string, handle func(m *nats.Msg, c job.Claim)) {
	t.Helper()
	_, err := nc.Subscribe(subject, func(m *nats.Msg) {
		text := m.Data
		if carried := m.Header.Get(job.HeaderTurn); carried != "" {
			text = []byte(carried)
		}
		c, err := job.ReadClaim(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		handle(m, c)
	})
	if err != nil || nc.Flush() != nil {
		t.Fatal(err, nc.LastError())
	}
}

func answer(t *testing.T, m *nats.Msg, turn job.Turn) {
	t.Helper()
	turn.V = job.FormatVersion
	text, err := json.Marshal(turn)
	if err == nil {
		err = m.Respond(text)
	}
	if err != nil {
		t.Error(err)
	}
}

func next(t *testing.T, k *claims.Claimant) *claims.Turn {
	t.Helper()
	select {
	case turn := <-k.Turns:
		return turn
	case <-time.After(waittest.Patience()):
		t.Fatal("no turn came")
		return nil
	}
}

func TestOnlyTheLatestClaimCounts(t *testing.T) {
	_, k, nc := begin(t)
	serve(t, nc, "valve", func(m *nats.Msg, c job.Claim) {
		answer(t, m, job.Turn{State: job.TurnGo, LeaseMS: int64(c.N)})
	})
	for range 2 {
		if err := k.Send("valve", job.Claim{Op: job.OpClaim}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 2 {
		turn := next(t, k)
		if turn.LeaseMS != int64(n+1) || k.Answers(turn) != (n == 1) {
			t.Errorf("turn %d is %+v", n, turn)
		}
	}
	if age := time.Since(k.At); age < 0 || age > waittest.Patience() {
		t.Errorf("the claim is %v old", age)
	}
}

func TestAGoCarriesItsJob(t *testing.T) {
	_, k, nc := begin(t)
	serve(t, nc, "valve", func(m *nats.Msg, _ job.Claim) {
		run := nats.NewMsg(m.Reply)
		run.Reply, run.Data = "reports", []byte("body")
		run.Header.Set("X-Mine", "1")
		run.Header.Set(job.HeaderTurn, `{"v":1,"state":"go","job":{"id":"p:7","attempt":2}}`)
		if err := nc.PublishMsg(run); err != nil {
			t.Error(err)
		}
	})
	if err := k.Send("valve", job.Claim{Op: job.OpClaim, Want: job.WantJob}); err != nil {
		t.Fatal(err)
	}
	turn := next(t, k)
	if turn.Job == nil || turn.Job.ID != "p:7" || turn.Job.Attempt != 2 || turn.To != "reports" ||
		string(turn.Body) != "body" || turn.Header.Get("X-Mine") != "1" {
		t.Errorf("%+v", turn)
	}
}

func TestAReportIsRepeatedUntilItIsAnswered(t *testing.T) {
	_, k, nc := begin(t)
	heard := 0
	serve(t, nc, "second", func(m *nats.Msg, c job.Claim) {
		switch heard++; {
		case c.Status != job.SettledDone || string(m.Data) != "reply" || c.Reply.Status != 201:
			t.Errorf("%+v, %q", c, m.Data)
		case heard == 2: // the first one seems lost
			answer(t, m, job.Turn{State: job.TurnSettled})
		}
	})
	serve(t, nc, "first", func(m *nats.Msg, _ job.Claim) {
		answer(t, m, job.Turn{State: job.TurnMoved, Partitions: 2})
	})
	subjects := []string{"nobody", "first", "second"}
	asked := -1
	report := job.Claim{Op: job.OpSettle, Settlement: job.Settlement{Status: job.SettledDone,
		Reply: &queue.Reply{Status: 201, Body: []byte("reply")}}}
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience())
	defer cancel()
	turn, err := k.Tell(ctx, func() string {
		asked = min(asked+1, len(subjects)-1)
		return subjects[asked]
	}, report, func(moved job.Turn) time.Duration {
		if moved.Partitions != 2 {
			t.Errorf("%+v", moved)
		}
		return 0
	})
	if err != nil || turn.State != job.TurnSettled || heard != 2 {
		t.Errorf("%+v, %v, heard %d times", turn, err, heard)
	}
}

// An admitter's client may report the end of a call while its progress is not answered yet.
func TestReportsOfOneCallGetTheirOwnAnswers(t *testing.T) {
	client, first, nc := begin(t)
	late := make(chan *nats.Msg, 1)
	serve(t, nc, "valve", func(m *nats.Msg, c job.Claim) {
		if c.Op == job.OpSettle {
			answer(t, m, job.Turn{State: job.TurnGone})
			return
		}
		select {
		case late <- m:
		default:
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience())
	defer cancel()
	tell := func(k *claims.Claimant, op, want string) {
		defer k.Close()
		k.Latest()
		turn, err := k.Tell(ctx, func() string { return "valve" }, job.Claim{Op: op}, nil)
		if err != nil || turn.State != want {
			t.Errorf("%s: %+v, %v, want %s", op, turn, err, want)
		}
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		tell(first, job.OpProgress, job.TurnSettled)
	}()
	progress := <-late
	tell(client.Open(first.ID), job.OpSettle, job.TurnGone)
	answer(t, progress, job.Turn{State: job.TurnSettled})
	select {
	case <-told:
	case <-time.After(claims.Patience * 3 / 4):
		t.Error("the answer was not heard")
		cancel()
		<-told
	}
}

func TestAReportEndsWithItsClientOrContext(t *testing.T) {
	client, k, _ := begin(t)
	nobody := func() string { return "nobody" }
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := k.Tell(ctx, nobody, job.Claim{Op: job.OpSettle}, nil); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Error(err)
	}
	client.Close()
	client.Close()
	if _, err := k.Tell(t.Context(), nobody, job.Claim{Op: job.OpSettle}, nil); !errors.Is(err,
		nats.ErrConnectionClosed) {
		t.Error(err)
	}
}
