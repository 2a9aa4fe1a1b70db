package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

type questions struct {
	*calls
	broker *queue.Broker
	served sync.Map // by handle.Partition without tenure
}

func (q *questions) serve(p handle.Partition) (stop func()) {
	var stops []func()
	serves := func(stop func(), err error) {
		if err != nil {
			q.log.Warn("the valve will not hear all", "policy", p.Policy, "error", err)
			return
		}
		stops = append(stops, stop)
	}
	serves(q.broker.ServeValve(p.Policy, p.Number,
		func(asked job.Question, reply func(job.Answer)) {
			q.send(core.Asked{Part: p, Question: asked, Reply: reply})
		}))
	serves(q.broker.ServeClaims(p.Policy, p.Number, func(c job.Claim, reply func(job.Turn)) {
		q.send(core.Heard{Part: p, Claim: c, Reply: reply})
	}))
	at := handle.Partition{Policy: p.Policy, Number: p.Number}
	q.served.Store(at, p)
	return func() {
		q.served.CompareAndDelete(at, p)
		for _, one := range stops {
			one()
		}
	}
}

// valve asks a partition's valve, over NATS unless it is local.
func (q *questions) valve(ctx context.Context, policy string, partition int,
	question job.Question) (job.Answer, error) {
	p, mine := q.served.Load(handle.Partition{Policy: policy, Number: partition})
	if !mine {
		return q.broker.AskValve(ctx, policy, partition, question)
	}
	answers := make(chan job.Answer, 1)
	q.send(core.Asked{Part: p.(handle.Partition), Question: question,
		Reply: func(a job.Answer) { answers <- a }})
	select {
	case a := <-answers:
		if a.Error != "" {
			return a, errors.New(a.Error)
		}
		return a, nil
	case <-ctx.Done():
		return job.Answer{}, fmt.Errorf("%w: %w", queue.ErrUnavailable, ctx.Err())
	case <-q.stopped:
		return job.Answer{}, queue.ErrUnavailable
	}
}

// Report sends an outcome to a new owner until it is received or no longer needed.
func (q *questions) Report(r record.Report) {
	outcome := encodeOutcome(r.Outcome)
	matters := func() bool {
		known, _ := ask(q.loop, func() bool { return q.core.Matters(r) })
		return known
	}
	q.spawn(func() {
		if q.retry(q.life, "report an outcome", func() error {
			_, err := q.broker.AskValve(q.life, r.Policy, r.Partition, outcome)
			if err != nil && !matters() {
				return nil
			}
			return err
		}) {
			q.send(core.Delivered{Report: r})
		}
	})
}

func encodeOutcome(o record.Outcome) job.Question {
	data, _ := json.Marshal(o)
	return job.Question{Op: job.OpOutcome, Outcome: data}
}
