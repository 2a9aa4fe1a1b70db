package core

import (
	"encoding/json"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func (e Asked) apply(c *Core, now pace.Instant) {
	p := c.part(e.Part)
	if p == nil {
		e.Reply(job.Answer{Error: "the partition has another owner"})
		return
	}
	switch e.Question.Op {
	case job.OpOutcome:
		var o record.Outcome
		var a job.Answer
		if err := json.Unmarshal(e.Question.Outcome, &o); err != nil {
			a.Error = "outcome is not understood: " + err.Error()
		} else if !c.Open(now) || p.fresh {
			a.Error = "the partition is being opened"
		} else {
			p.Reported(o, now)
		}
		e.Reply(a)
	default:
		c.questions.Ask(p.Part, e.Question, e.Reply, now)
	}
}

func (e Heard) apply(c *Core, now pace.Instant) {
	p := c.part(e.Part)
	if p == nil {
		e.Reply(job.Turn{State: job.TurnMoved})
		return
	}
	switch v := c.valves.all[p.Policy]; {
	case e.Claim.Want == job.WantJob && v.Policy.Target != nil:
		e.Reply(job.Turn{State: job.TurnError,
			Error: "the policy has a target, which runs all of its jobs"})
	case e.Claim.Want == job.WantJob:
		e.Reply(job.Turn{State: job.TurnWaiting})
	case p.fresh:
		e.Reply(job.Turn{State: job.TurnMoved}) // it is being opened
	default:
		p.Part.Hear(e.Claim, e.Reply, now)
	}
}

func (c *Core) Ponder(clock func() pace.Instant) { c.questions.Ponder(clock) }
