package workers

import (
	"errors"
	"log/slog"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

// letters tells operators of dead letters: a policy whose target refuses everything makes as many as it starts jobs, so
// there is a line per policy and pause, with their number and the last one's reason. It belongs to the loop.
type letters struct {
	log      *slog.Logger
	policies map[string]*tally // with letters that are not told, or told less than lettersEvery ago
}

type tally struct {
	untold    int
	discarded uint64 // older ones, to make room
	last      queue.DeadLetter
	toldAt    instant // 0: never
}

// lettersEvery is the least time between two lines about one policy.
const lettersEvery = 5 * time.Second

func (l *letters) add(letter queue.DeadLetter, discarded uint64) {
	if l.policies == nil {
		l.policies = map[string]*tally{}
	}
	t := l.policies[letter.Policy]
	if t == nil {
		t = &tally{}
		l.policies[letter.Policy] = t
	}
	t.untold++
	t.discarded += discarded
	t.last = letter
	t.last.Header, t.last.Body = nil, nil
}

// tell writes what is due, and at the end of a drainer everything.
func (l *letters) tell(now instant, end bool) {
	for name, t := range l.policies {
		if t.toldAt != 0 && now.since(t.toldAt) < lettersEvery && !end {
			continue
		}
		if t.untold == 0 {
			delete(l.policies, name)
			continue
		}
		l.log.Warn("dead letters", "policy", name, "letters", t.untold,
			"last_job", jobID(name, t.last.Seq), "last_key", t.last.Key, "last_reason", t.last.Reason, "last_error", t.last.Error)
		if t.discarded > 0 {
			l.log.Warn("the oldest dead letters were discarded: they take what the policy's may", "policy", name,
				"letters", t.discarded)
		}
		t.untold, t.discarded, t.toldAt = 0, 0, now
	}
}

// bury stores a dead letter, until which the job waits. It does so while the lease lasts: a process
// that was cut off or stood still may not have heard yet that another owns the job, and has run it.
func (d *Drainer) bury(b *backlog, u burial) {
	letter := queue.DeadLetter{
		Policy: u.bucket.part.policy, Key: u.Key, Seq: u.Seq, Partition: u.bucket.part.number, Stored: u.Stored,
		Reason: string(u.reason), Error: u.detail, Attempts: u.attempts, Header: u.Header, Body: u.Body,
		Idempotency: idempotency(u.bucket.part.policy, u.Arrived, b.created),
	}
	letter.Bodyless = !d.policies[letter.Policy].Dead.KeepsBodies()
	lean := u.Lean
	var discarded uint64
	d.persist(b.ctx, purpose{letter.Policy, "store dead letter"}, func() error {
		if fence, now := d.gate(); now >= fence {
			return errLeaseLost
		}
		if lean && letter.Body == nil {
			open, err := d.current(b)
			if err != nil {
				return err
			}
			found, err := open.Body(b.ctx, u.Seq)
			if err != nil && !errors.Is(err, queue.ErrNotFound) {
				return err
			}
			letter.Body = found.Body
		}
		n, err := d.broker.Bury(b.ctx, letter)
		discarded += n
		return err
	}, func(now instant) {
		if discarded > 0 {
			d.options.Observer.Discarded(letter.Policy, discarded)
		}
		d.log.Debug("dead letter", "policy", letter.Policy, "job", jobID(letter.Policy, u.Seq), "key", u.Key, "reason", u.reason, "error", u.detail)
		d.letters.add(letter, discarded)
		d.options.Observer.Ended(letter.Policy, "dead")
		d.broker.Tell(letter.Policy, queue.Event{
			Type: queue.EventDead, Job: jobID(letter.Policy, u.Seq), Key: u.Key, Attempt: letter.Attempts, Reason: letter.Reason, Error: u.detail,
		})
		d.valveOf(u.bucket.part, func(v *valve) { v.buried(u.job) })
	})
}
