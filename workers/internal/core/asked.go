package core

import (
	"encoding/json"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func (e Asked) apply(c *Core, now pace.Instant) {
	p := c.part(e.Part)
	if p == nil {
		e.Reply(job.Answer{Error: "the partition has another owner"})
		return
	}
	v := c.valves[p.Policy]
	switch e.Question.Op {
	case job.OpOutcome:
		var o record.Outcome
		var a job.Answer
		if err := json.Unmarshal(e.Question.Outcome, &o); err != nil {
			a.Error = "outcome is not understood: " + err.Error()
		} else if !c.reported(p.Policy, p.Number, o, now) {
			a.Error = "the partition is being opened"
		}
		e.Reply(a)
	case job.OpWorker:
		var a job.Answer
		if v.Policy.Target != nil {
			a.Error = "the policy has a target, which runs all of its jobs"
		}
		e.Reply(a)
	case job.OpCall, job.OpSettle:
		switch q := e.Question; {
		case q.Call == nil:
			e.Reply(job.Answer{Error: "no call is named"})
		case p.fresh:
			e.Reply(job.Answer{Error: "the partition is being opened"})
		case q.Op == job.OpCall:
			v.Call(p.Part, q, e.Reply, now)
		default:
			t := v.Settle(p.Part, q, now)
			e.Reply(job.Answer{Turn: &t})
		}
	default:
		c.questions.Ask(p.Part, e.Question, e.Reply, now)
	}
}

func (c *Core) Ponder(clock func() pace.Instant) { c.questions.Ponder(clock) }
