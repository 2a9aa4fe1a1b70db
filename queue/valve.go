package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/errs"
	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
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
	_, err := b.AskValve(ctx, policy, partition, job.Question{Op: job.OpWorker})
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return false, nil
	case errors.Is(err, ErrUnavailable):
		return false, err
	}
	return true, nil
}

// ServeValve calls answer, which must not block, for each question to a partition's owner, one at a
// time for all partitions. Call reply once, at any time. Questions that already arrived may follow
// stop.
func (b *Broker) ServeValve(policy string, partition int,
	answer func(q job.Question, reply func(job.Answer))) (stop func(), err error) {
	calls := b.names.Calls(policy, partition)
	handle := func(m *nats.Msg) {
		if m.Subject == calls && m.Reply != "" && !b.names.IsReply(m.Reply) {
			return // an answer there would use our permissions
		}
		reply := func(a job.Answer) {
			a.V = job.FormatVersion
			body, err := json.Marshal(a)
			if err == nil {
				err = m.Respond(body)
			}
			if err != nil && !errors.Is(err, nats.ErrMsgNoReply) {
				b.log.Debug("valve's answer not sent", "policy", policy, "partition", partition,
					"error", err)
			}
		}
		var q job.Question
		switch err := json.Unmarshal(m.Data, &q); {
		case err != nil:
			reply(job.Answer{Error: "question is not JSON: " + err.Error()})
		case q.V != job.FormatVersion:
			reply(job.Answer{Error: fmt.Sprintf("question in format %d, this valve knows %d", q.V,
				job.FormatVersion)})
		case m.Subject == calls && q.Op != job.OpCall && q.Op != job.OpSettle:
			reply(job.Answer{Error: "callers may only ask for calls"})
		case m.Subject == calls && q.Call != nil && !b.calledHere(policy, partition, q):
			reply(job.Answer{Error: fmt.Sprintf("%.64q is no key of partition %d", q.Key,
				partition), Turn: &job.Turn{State: job.TurnRefused, Reason: job.RefusedNever}})
		default:
			answer(q, reply)
		}
	}
	var stops []func()
	stop = func() {
		for _, one := range stops {
			one()
		}
	}
	for _, subject := range []string{b.names.Valve(policy, partition), calls} {
		_, one, err := b.shared.subscribe(subject, "", handle)
		if err != nil {
			stop()
			return nil, fmt.Errorf("serve valve %s.%d: %w", policy, partition, jsapi.Translate(err))
		}
		stops = append(stops, one)
	}
	return stop, nil
}

// calledHere reports whether a call went to its key's partition: elsewhere its bucket would have a
// second rate.
func (b *Broker) calledHere(policy string, partition int, q job.Question) bool {
	_, err := job.ParseKey(string(q.Key))
	return err == nil && (q.Op == job.OpSettle ||
		job.Partition(b.names.Jobs(policy, q.Key), q.Call.Partitions) == partition)
}

// ServeWork calls offered, which must not block, for offers on a subject, until stop. Each offer
// goes to one process.
func (b *Broker) ServeWork(subject string, offered nats.MsgHandler) (stop func(), err error) {
	if _, stop, err = b.shared.subscribe(subject, WorkGroup, offered); err != nil {
		return nil, fmt.Errorf("serve %s: %w", subject, jsapi.Translate(err))
	}
	return stop, nil
}
