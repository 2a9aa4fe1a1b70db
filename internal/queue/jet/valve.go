package jet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/queue"
)

// AskValve asks a partition's owner and waits at most 2 seconds. It returns [ErrUnavailable]
// without an owner or an answer; an owner's refusal is a plain error.
func (b *Broker) AskValve(ctx context.Context, policy string, partition int,
	q job.Question) (a job.Answer, err error) {
	defer errs.Annotate(&err, "ask valve %s.%d", policy, partition)
	q.V = job.FormatVersion
	body, err := json.Marshal(q)
	if err != nil {
		return a, fmt.Errorf("encode: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, b.js.Timeout)
	defer cancel()
	m, err := b.nc.RequestWithContext(ctx, b.names.Valve(policy, partition), body)
	if err != nil {
		return a, jsapi.Translate(err)
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return a, fmt.Errorf("read answer: %w", err)
	}
	switch {
	case a.V != job.FormatVersion:
		err = fmt.Errorf("%w: answer in format %d", job.ErrVersion, a.V)
	case a.Error != "":
		err = errors.New(a.Error)
	}
	return a, err
}

// Owned reports whether a drainer owns a partition; an error means unknown.
func (b *Broker) Owned(ctx context.Context, policy string, partition int) (bool, error) {
	body := encoded(job.Claim{V: job.FormatVersion, Op: job.OpClaim, Want: job.WantJob})
	ctx, cancel := context.WithTimeout(ctx, b.js.Timeout)
	defer cancel()
	_, err := b.nc.RequestWithContext(ctx, b.names.Claims(policy, partition), body)
	if errors.Is(err, nats.ErrNoResponders) {
		return false, nil
	}
	return err == nil, jsapi.Translate(err)
}

// ServeValve calls answer, which must not block, for each question to a partition's owner, one at a
// time for all partitions. Call reply once, at any time. Questions that already arrived may follow
// stop.
func (b *Broker) ServeValve(policy string, partition int,
	answer func(q job.Question, reply func(job.Answer))) (stop func(), err error) {
	return b.serve(b.names.Valve(policy, partition), func(m *nats.Msg) {
		reply := func(a job.Answer) {
			a.V = job.FormatVersion
			b.respond(m, a)
		}
		var q job.Question
		switch err := json.Unmarshal(m.Data, &q); {
		case err != nil:
			reply(job.Answer{Error: "question is not JSON: " + err.Error()})
		case q.V != job.FormatVersion:
			reply(job.Answer{Error: fmt.Sprintf("question in format %d, this valve knows %d", q.V,
				job.FormatVersion)})
		default:
			answer(q, reply)
		}
	})
}

// ServeClaims calls hear, which must not block, for each claim to a partition's owner. It may reply
// several times, also after stop.
func (b *Broker) ServeClaims(policy string, partition int,
	hear func(c job.Claim, reply func(job.Turn))) (stop func(), err error) {
	return b.serve(b.names.Claims(policy, partition), func(m *nats.Msg) {
		if m.Reply != "" && !b.names.IsReply(m.Reply) {
			return // an answer there would use our permissions
		}
		reply := func(t job.Turn) {
			t.V = job.FormatVersion
			b.respond(m, t)
		}
		c, err := job.ReadClaim(m.Data)
		switch {
		case err != nil:
			reply(job.Turn{State: job.TurnError, Error: err.Error()})
		case c.Want != job.WantJob && !b.claimedHere(policy, partition, c):
			reply(job.Turn{State: job.TurnRefused, Reason: job.RefusedNever,
				Error: fmt.Sprintf("%.64q is no key of partition %d", c.Key, partition)})
		default:
			hear(c, reply)
		}
	})
}

// claimedHere reports whether a claim went to its key's partition: elsewhere its bucket would have
// a second rate.
func (b *Broker) claimedHere(policy string, partition int, c job.Claim) bool {
	_, err := queue.ParseKey(string(c.Key))
	return err == nil && (c.Op != job.OpClaim ||
		job.Partition(b.names.Jobs(policy, c.Key), c.Partitions) == partition)
}

func (b *Broker) respond(m *nats.Msg, answer any) {
	if err := m.Respond(encoded(answer)); err != nil && !errors.Is(err, nats.ErrMsgNoReply) {
		b.log.Debug("valve's answer not sent", "subject", m.Subject, "error", err)
	}
}

func encoded(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("queue: encode %T: %v", v, err))
	}
	return body
}

func (b *Broker) serve(subject string, handle nats.MsgHandler) (stop func(), err error) {
	if _, stop, err = b.shared.subscribe(subject, "", handle); err != nil {
		return nil, fmt.Errorf("serve %s: %w", subject, jsapi.Translate(err))
	}
	return stop, nil
}

// ServeWork calls offered, which must not block, for offers on a subject, until stop. Each offer
// goes to one process.
func (b *Broker) ServeWork(subject string, offered nats.MsgHandler) (stop func(), err error) {
	if _, stop, err = b.shared.subscribe(subject, workGroup, offered); err != nil {
		return nil, fmt.Errorf("serve %s: %w", subject, jsapi.Translate(err))
	}
	return stop, nil
}
