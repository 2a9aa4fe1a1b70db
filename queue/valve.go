package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// What a [ValveQuestion] can ask.
const (
	OpExpect  = "expect"  // when will these jobs start?
	OpRoom    = "room"    // when will this bucket have room again?
	OpOutcome = "outcome" // this is how a job that was handed over as running ended
)

// ValveQuestion is what anyone asks or tells the owner of a partition.
type ValveQuestion struct {
	V       int             `json:"v"` // format version; AskValve fills it in
	Op      string          `json:"op"`
	Jobs    []uint64        `json:"jobs,omitempty"`    // OpExpect: stream sequences
	Key     Key             `json:"key,omitempty"`     // OpRoom: the bucket
	Outcome json.RawMessage `json:"outcome,omitempty"` // OpOutcome: the drainers' own format
}

// ValveAnswer is the owner's answer.
type ValveAnswer struct {
	V       int             `json:"v"`                // format version; ServeValve fills it in
	Starts  []ExpectedStart `json:"starts,omitempty"` // OpExpect: one for each job asked for, in that order
	DelayMS int64           `json:"delay_ms"`         // OpRoom: milliseconds until the bucket has room
	Error   string          `json:"error,omitempty"`  // not empty: the question could not be answered
}

// ExpectedStart says when a job will start as things stand.
type ExpectedStart struct {
	Seq     uint64 `json:"seq"`
	Known   bool   `json:"known"`    // false: the valve has not seen the job, or cannot tell
	DelayMS int64  `json:"delay_ms"` // milliseconds from now; 0 for a job that has started or finished
}

// AskValve asks the owner of a partition and waits for its answer until the context ends, at most 2 seconds. It answers
// [ErrUnavailable] when nobody owns the partition or no answer came; an owner's refusal is a plain error.
func (b *Broker) AskValve(ctx context.Context, policy string, partition int, q ValveQuestion) (ValveAnswer, error) {
	doing := fmt.Sprintf("ask valve %s.%d", policy, partition)
	q.V = formatVersion
	body, err := json.Marshal(q)
	if err != nil {
		return ValveAnswer{}, fmt.Errorf("%s: encode: %w", doing, err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	m, err := b.nc.RequestWithContext(ctx, b.names.Valve(policy, partition), body)
	if err != nil {
		return ValveAnswer{}, fmt.Errorf("%s: %w", doing, translate(err))
	}
	var a ValveAnswer
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return ValveAnswer{}, fmt.Errorf("%s: read answer: %w", doing, err)
	}
	if a.V != formatVersion {
		return ValveAnswer{}, fmt.Errorf("%s: %w: answer in format %d", doing, ErrVersion, a.V)
	}
	if a.Error != "" {
		return a, fmt.Errorf("%s: %s", doing, a.Error)
	}
	return a, nil
}

// ServeValve lets the owner of a partition answer: answer is called for each question, one at a time, in the connection's
// goroutine, so it must hand the work over; reply may be called later and from anywhere, once. A question in an unknown
// format is refused here. stop ends it; questions that had arrived before may still come.
func (b *Broker) ServeValve(
	policy string, partition int, answer func(q ValveQuestion, reply func(ValveAnswer)),
) (stop func(), err error) {
	sub, err := b.nc.Subscribe(b.names.Valve(policy, partition), func(m *nats.Msg) {
		reply := func(a ValveAnswer) {
			a.V = formatVersion
			body, err := json.Marshal(a)
			if err == nil {
				err = m.Respond(body)
			}
			if err != nil && !errors.Is(err, nats.ErrMsgNoReply) {
				b.log.Debug("valve's answer not sent", "policy", policy, "partition", partition, "error", err)
			}
		}
		var q ValveQuestion
		switch err := json.Unmarshal(m.Data, &q); {
		case err != nil:
			reply(ValveAnswer{Error: "question is not JSON: " + err.Error()})
		case q.V != formatVersion:
			reply(ValveAnswer{Error: fmt.Sprintf("question in format %d, this valve knows %d", q.V, formatVersion)})
		default:
			answer(q, reply)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("serve valve %s.%d: %w", policy, partition, translate(err))
	}
	return func() { _ = sub.Unsubscribe() }, nil
}
