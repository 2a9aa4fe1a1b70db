package queue

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

// Outcome is the subject of a job's outcome for its waiting submitter. The token is the job's
// [job.HeaderWaiter] and cannot be guessed.
func (n Names) Outcome(token string) string { return n.lower + ".outcome." + token }

// headerTold holds a job's result; the message's body is the reply's.
const headerTold = "Penstock-Outcome"

// PublishResult publishes a job's result once, on core NATS, if its header names a waiter. Any
// producer may have written that header, so it goes only to [Names.Outcome].
func (b *Broker) PublishResult(header map[string][]string, t job.Result) {
	token := job.HeaderValue(header, job.HeaderWaiter)
	if !job.IsWaiter(token) {
		return
	}
	m := nats.NewMsg(b.names.Outcome(token))
	if t.Reply != nil {
		reply := t.Reply.Within(b.nc.MaxPayload())
		if t.Reply = &reply; !reply.Cut {
			m.Data = reply.Body
		}
	}
	m.Header.Set(headerTold, string(t.Encode()))
	if err := b.nc.PublishMsg(m); err != nil {
		b.log.Debug("outcome not told", "job", t.Job, "error", err)
	}
}

// Waiting waits for the end of a job. Call Leave afterwards.
type Waiting struct {
	// Token belongs in the job's [job.HeaderWaiter].
	Token   string
	sub     *nats.Subscription
	outcome <-chan *nats.Msg
}

// Await waits for the outcome of a job that is then published over this connection. Call
// [Waiting.Leave].
func (b *Broker) Await() (*Waiting, error) {
	token := rand.Text()
	outcome := make(chan *nats.Msg, 1)
	sub, err := b.nc.ChanSubscribe(b.names.Outcome(token), outcome)
	if err == nil {
		err = sub.AutoUnsubscribe(1) // a sender with a guessed token cannot fill memory
	}
	if err != nil {
		return nil, fmt.Errorf("wait for an outcome: %w", jsapi.Translate(err))
	}
	return &Waiting{token, sub, outcome}, nil
}

// Outcome returns the result of the job once it has ended, or an error once ctx has.
func (w *Waiting) Outcome(ctx context.Context) (job.Result, error) {
	var m *nats.Msg
	select {
	case m = <-w.outcome:
	case <-ctx.Done():
		return job.Result{}, fmt.Errorf("wait for an outcome: %w", ctx.Err())
	}
	t, err := job.DecodeResult([]byte(m.Header.Get(headerTold)))
	if err != nil {
		return job.Result{}, fmt.Errorf("outcome of a job: %w", err)
	}
	if t.Reply != nil {
		t.Reply.Body = m.Data
	}
	return t, nil
}

// Leave ends the waiting.
func (w *Waiting) Leave() { _ = w.sub.Unsubscribe() }
