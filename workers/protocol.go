package workers

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue/claims"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// The messages between valves (remote.go) and workers elsewhere (lender.go), except outcomes, which
// are of package record; see docs/workers-protocol.md.

func encoded(t job.Turn) []byte {
	t.V = job.FormatVersion
	text, _ := json.Marshal(t)
	return text
}

// say sends a turn without a job.
func (c *calls) say(to string, t job.Turn) {
	if to == "" {
		return
	}
	if err := c.nc.Publish(to, encoded(t)); err != nil {
		c.log.Debug("a claimant gets no turn", "turn", t.State, "error", err)
	}
}

func (c *calls) unsubscribe(sub *nats.Subscription) {
	if err := sub.Unsubscribe(); err != nil {
		c.log.Debug("not unsubscribed", "subject", sub.Subject, "error", err)
	}
}

// jobMessage starts a job, whose worker reports to the reply subject within the lease.
func jobMessage(to, reply string, j Job, lease time.Duration) *nats.Msg {
	m := nats.NewMsg(to)
	m.Reply, m.Data = reply, j.Body
	for name, values := range j.Header {
		if !strings.EqualFold(name, job.HeaderTurn) {
			m.Header[name] = values
		}
	}
	turn := job.Turn{State: job.TurnGo, LeaseMS: lease.Milliseconds(),
		MaxDelayMS: j.settled.maxDelayMS(), Job: &job.Started{ID: j.ID, Policy: j.Policy,
			Key: j.Key, Attempt: j.Attempt, Accepted: j.Accepted.UTC(),
			IdempotencyKey: j.IdempotencyKey, Kept: j.Kept()}}
	m.Header[job.HeaderTurn] = []string{string(encoded(turn))}
	return m
}

func (s *settled) maxDelayMS() (ms int64) {
	s.with(func(s *settled) { ms = (s.maxDelay + time.Millisecond - 1).Milliseconds() })
	return ms
}

// readJob reverses jobMessage.
func readJob(t *claims.Turn) (j Job, lease time.Duration, err error) {
	if t.Job == nil || t.State != job.TurnGo {
		return j, 0, fmt.Errorf("turn %q without a job: %s", t.State, t.Error)
	}
	j = Job{ID: t.Job.ID, IdempotencyKey: t.Job.IdempotencyKey, Policy: t.Job.Policy,
		Key: t.Job.Key, Body: t.Body, Attempt: t.Job.Attempt, Accepted: t.Job.Accepted,
		settled: &settled{kept: t.Job.Kept,
			maxDelay: time.Duration(t.MaxDelayMS) * time.Millisecond}}
	for name, values := range t.Header {
		if !strings.EqualFold(name, job.HeaderTurn) {
			if j.Header == nil {
				j.Header = nats.Header{}
			}
			j.Header[name] = values
		}
	}
	if lease = time.Duration(t.LeaseMS) * time.Millisecond; lease <= 0 {
		err = fmt.Errorf("lease_ms %d: want milliseconds", t.LeaseMS)
	}
	return j, lease, err
}

// readReport decodes a worker's report of a job that runs, with the outcome of a settlement.
func readReport(m *nats.Msg, now time.Time) (c job.Claim, o record.Outcome, err error) {
	text, reply := job.Carried(m.Header, m.Data)
	c, err = job.ReadClaim(text)
	switch {
	case err != nil:
	case c.Op == job.OpClaim:
		err = fmt.Errorf("op %s about a job that runs", c.Op)
	case c.Op == job.OpSettle:
		if o, err = record.Settled(c.Settlement, now); o.Error == "" &&
			(o.Kind == record.OutcomeFailed || o.Kind == record.OutcomePermanent) {
			o.Error = "the worker gave no reason"
		}
		if len(reply) > 0 && c.Reply == nil {
			c.Reply = &job.Reply{}
		}
		if c.Reply != nil {
			c.Reply.Body = reply
		}
	}
	return c, o, err
}
