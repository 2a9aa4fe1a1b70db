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
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// questions are what others ask the valves of this drainer, and what it tells valves elsewhere.
// The core answers; its long answers are worked on in goroutines of their own, beside the loop.
type questions struct {
	*calls
	broker *queue.Broker
	core   *core.Core
	served sync.Map // the handle.Partition of each address that is served
}

// address is by what others know a partition.
type address struct {
	policy string
	number int
}

// serve takes questions to a partition's valve until stop is called.
func (q *questions) serve(p handle.Partition) (stop func()) {
	stopNATS, err := q.broker.ServeValve(p.Policy, p.Number, func(asked job.Question,
		reply func(job.Answer)) {
		q.send(core.Asked{Part: p, Question: asked, Reply: reply})
	})
	if err != nil {
		q.log.Warn("questions to the valve will not be answered", "policy", p.Policy, "error", err)
		stopNATS = func() {}
	}
	at := address{p.Policy, p.Number}
	q.served.Store(at, p)
	return func() {
		q.served.CompareAndDelete(at, p)
		stopNATS()
	}
}

// valve asks the valve of a partition, over NATS unless it is this drainer's.
func (q *questions) valve(ctx context.Context, policy string, partition int,
	question job.Question) (job.Answer, error) {

	p, mine := q.served.Load(address{policy, partition})
	if !mine {
		return q.broker.AskValve(ctx, policy, partition, question)
	}
	answers := make(chan job.Answer, 1) // one comes
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

// WorkOn does the part of an answer that needs nothing of the loop's.
func (q *questions) WorkOn(a valve.Aside) {
	q.spawn(func() {
		a.Work()
		q.send(core.Worked{Aside: a})
	})
}

// Report tells a partition's new owner an outcome until it is heard, or nobody can hear it any
// more.
func (q *questions) Report(r record.Report) {
	outcome := encodeOutcome(r.Outcome)
	q.spawn(func() {
		if q.retry(q.life, "report an outcome", func() error {
			_, err := q.broker.AskValve(q.life, r.Policy, r.Partition, outcome)
			if err != nil && !q.matters(r) {
				return nil
			}
			return err
		}) {
			q.send(core.Delivered{Report: r})
		}
	})
}

// matters asks the loop whether a report still concerns anybody.
func (q *questions) matters(r record.Report) bool {
	known, _ := ask(q.loop, func() bool { return q.core.Matters(r) })
	return known
}

// encodeOutcome is an outcome as the owner of its partition is told it.
func encodeOutcome(o record.Outcome) job.Question {
	data, err := json.Marshal(o)
	if err != nil {
		// strings and numbers only: cannot fail
		panic(fmt.Sprintf("workers: encode outcome: %v", err))
	}
	return job.Question{Op: job.OpOutcome, Outcome: data}
}
