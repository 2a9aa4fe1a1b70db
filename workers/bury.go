package workers

import (
	"log/slog"

	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// Bury stores a dead letter, while the lease lasts: later another process may own the job and have
// run it.
func (p performer) Bury(u valve.Burial) {
	b := p.backlogs.all[u.Part]
	if b == nil {
		return
	}
	created := b.born(u.Stored)
	letter := queue.DeadLetter{
		Policy: u.Part.Policy, Key: u.Key, Seq: u.Seq, Partition: u.Part.Number,
		Stored: u.Stored, Reason: string(u.Reason), Error: u.Detail, Attempts: u.Attempts,
		Header: u.Header, Body: u.Body,
		IdempotencyKey: job.IdempotencyKey(u.Header, u.Part.Policy, created, u.Seq),
	}
	letter.Bodyless = !p.catalog.policies[letter.Policy].Dead.KeepsBodies()
	through := p.catalog.policies[letter.Policy].Callbacks
	end := job.Result{Job: job.ID(letter.Policy, u.Seq), End: job.EndDead, Reason: u.Reason,
		Error: u.Detail, Attempts: u.Attempts}
	// then the process that ran it queued the callback
	called := u.Reason == job.ReasonPermanent
	var discarded uint64
	p.persist(b.ctx, purpose{letter.Policy, "store dead letter"}, func() error {
		if fence, now := p.gate.check(); now >= fence {
			return errLeaseLost
		}
		if u.Lean && letter.Body == nil {
			found, err := p.backlogs.read(b, u.Seq)
			if err != nil {
				return err
			}
			letter.Body = found.Body
			if u.Headless {
				letter.Header = found.Header
				letter.IdempotencyKey = job.IdempotencyKey(found.Header, u.Part.Policy, created,
					u.Seq)
			}
		}
		if !called {
			owed := p.callbacks.of(through, letter.Policy, u.Key, letter.Header, created, u.Seq)
			if err := owed.queue(b.ctx, end); err != nil {
				return err
			}
			called = true
		}
		n, err := p.broker.Bury(b.ctx, letter)
		discarded += n
		return err
	}, func() core.Event {
		p.seldom.Log("letter "+letter.Policy, slog.LevelWarn, "dead letter", "policy",
			letter.Policy, "job", end.Job, "key", u.Key.Raw(), "reason", u.Reason, "error",
			u.Detail)
		if discarded > 0 {
			p.tell(queue.EventDiscarded, letter.Policy, int64(discarded))
			p.seldom.Log("discarded "+letter.Policy, slog.LevelWarn,
				"discarding the oldest dead letters: the policy's limit is reached", "policy",
				letter.Policy, "letters", discarded)
		}
		if u.Reason != job.ReasonPermanent { // then waiters have the reply
			p.broker.PublishResult(letter.Header, end)
		}
		p.sink.Take(queue.Event{Type: queue.EventDead, Policy: letter.Policy, Job: end.Job,
			Key: u.Key, Tags: job.Tags(letter.Header), Header: letter.Header,
			Attempt: letter.Attempts, Reason: letter.Reason, Error: u.Detail, Accepted: u.Stored})
		return core.Buried{Ref: u.Ref}
	})
}
