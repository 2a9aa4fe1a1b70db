package queue

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

// Outcome is where a job's outcome is told to who waits for it: the token is in the job's
// [job.HeaderWaiter], and nobody can guess it.
func (n Names) Outcome(token string) string { return n.lower + ".outcome." + token }

// headerTold holds how a job ended, beside the body of its reply. NATS has no larger headers than
// payloads, and this one holds a target's headers.
const headerTold = "Penstock-Outcome"

// roomForHeader is what a message with the body of a reply leaves for its header.
const roomForHeader = 64 << 10

// TellOutcome tells who waits for a job how it ended, if anybody does by the job's header, which a
// plain producer may have written: it goes to no other subject than [Names.Outcome]. It is told
// once, by core NATS: who does not hear it looks the job up.
func (b *Broker) TellOutcome(header map[string][]string, t job.Told) {
	token := job.HeaderValue(header, job.HeaderWaiter)
	if !job.IsWaiter(token) {
		return
	}
	m := nats.NewMsg(b.names.Outcome(token))
	if r := t.Reply; r != nil {
		reply := *r
		if most := b.nc.MaxPayload() - roomForHeader; r.Cut || int64(len(r.Body)) > most {
			reply.Body, reply.Cut = nil, true
		}
		m.Data, t.Reply = reply.Body, &reply
		if len(t.Encode()) > roomForHeader/2 { // a target may answer with as much as it likes
			reply.Header = nil
		}
	}
	m.Header.Set(headerTold, string(t.Encode()))
	if err := b.nc.PublishMsg(m); err != nil {
		b.log.Debug("outcome not told", "job", t.Job, "error", err)
	}
}

// Waiting hears the outcome of one job.
type Waiting struct {
	// Token is what the job must have as its [job.HeaderWaiter].
	Token   string
	sub     *nats.Subscription
	outcome <-chan *nats.Msg
}

// Await begins to wait for the outcome of a job that is yet to be published, over the same
// connection. [Waiting.Leave] must be called.
func (b *Broker) Await() (*Waiting, error) {
	token := rand.Text()
	// SubscribeSync would make room for 65,536 messages, which is half a MiB for each that waits.
	outcome := make(chan *nats.Msg, 1)
	sub, err := b.nc.ChanSubscribe(b.names.Outcome(token), outcome)
	if err == nil {
		err = sub.AutoUnsubscribe(1) // who guessed a token could not fill the memory
	}
	if err != nil {
		return nil, fmt.Errorf("wait for an outcome: %w", jsapi.Translate(err))
	}
	return &Waiting{token, sub, outcome}, nil
}

// Outcome returns how the job ended, as soon as it has.
func (w *Waiting) Outcome(ctx context.Context) (job.Told, error) {
	var m *nats.Msg
	select {
	case m = <-w.outcome:
	case <-ctx.Done():
		return job.Told{}, fmt.Errorf("wait for an outcome: %w", ctx.Err())
	}
	t, err := job.DecodeTold([]byte(m.Header.Get(headerTold)))
	if err != nil {
		return job.Told{}, fmt.Errorf("outcome of a job: %w", err)
	}
	if t.Reply != nil {
		t.Reply.Body = m.Data
	}
	return t, nil
}

// Leave ends the waiting.
func (w *Waiting) Leave() { _ = w.sub.Unsubscribe() } // it may have ended by itself
