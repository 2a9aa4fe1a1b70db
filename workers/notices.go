package workers

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue"
)

// notices tell operators of conditions under which nothing happens and nobody would say why: a line when one begins and a line
// when it ends, never one per look. They belong to the loop.
type notices struct {
	log  *slog.Logger
	open map[notice]string // how those that hold were told
}

// notice is a condition of a policy.
type notice struct{ policy, about string }

const (
	// noticeEvery is how often conditions are looked at that nothing else tells of.
	noticeEvery = time.Second
	// ownerEvery is how often a process that only lends its workers asks whether their policy has a drainer.
	ownerEvery = 3 * time.Second
	// workerless is how long nobody takes the jobs that are due before it is worth a line.
	workerless = 3 * time.Second
)

// tell takes how a condition stands: text says what is wrong, empty nothing, and ended that it is over.
func (n *notices) tell(key notice, level slog.Level, text, ended string, args ...any) {
	before := n.open[key]
	if before == text {
		return
	}
	args = append([]any{"policy", key.policy}, args...)
	if text == "" {
		delete(n.open, key)
		n.log.Info(ended, args...)
		return
	}
	n.open[key] = text
	n.log.Log(context.Background(), level, text, args...)
}

// noticeHandlers looks at whether every registered handler has a policy whose jobs it can run.
func (d *Drainer) noticeHandlers(set queue.PolicySet) {
	for name := range d.handlers {
		entry, found := set[name]
		level, text := slog.LevelWarn, ""
		switch {
		case !found:
			text = "a handler waits: there is no policy of its name"
		case !entry.Policy.HasQueue():
			text = "a handler waits: its policy has no queue, so that there are no jobs"
		case entry.Policy.Target != nil:
			level, text = slog.LevelError, "a handler is refused: its policy has a target, which runs all of its jobs"
		}
		d.notices.tell(notice{name, "handler"}, level, text, "the handler has a policy now, and runs its jobs")
	}
}

// noticeNames looks at whether every policy whose valves this drainer is told to own exists.
func (d *Drainer) noticeNames(set queue.PolicySet) {
	for _, name := range d.options.Policies {
		text := ""
		if entry, found := set[name]; !found {
			text = "there is no policy of a name that this drainer is to own"
		} else if !entry.Policy.HasQueue() {
			text = "a policy that this drainer is to own has no queue"
		}
		d.notices.tell(notice{name, "name"}, slog.LevelWarn, text, "there is a policy now that this drainer is to own")
	}
}

// noticeOwners asks whether somebody decides when the jobs start that this process only lends its workers to.
func (d *Drainer) noticeOwners(ctx context.Context) {
	var lent []string
	for name := range d.lender.lendings {
		if d.core == nil || d.core.valves[name] == nil {
			lent = append(lent, name)
		}
	}
	for _, name := range lent {
		d.call(ctx, purpose{name, "look for an owner"}, func() error {
			_, err := d.broker.AskValve(ctx, name, 0, queue.ValveQuestion{Op: queue.OpWorker})
			nobody := errors.Is(err, nats.ErrNoResponders)
			if !nobody && errors.Is(err, queue.ErrUnavailable) {
				return err // a drainer that is slow, or NATS is away
			}
			d.post(func(instant) {
				text := ""
				if nobody && d.lender.lendings[name] != nil {
					text = "workers wait: no drainer owns the policy, so that none of its jobs start"
				}
				d.notices.tell(notice{name, "owner"}, slog.LevelWarn, text, "a drainer owns the policy now")
			})
			return nil
		})
	}
	for key := range d.notices.open {
		if key.about == "owner" && !slices.Contains(lent, key.policy) {
			delete(d.notices.open, key)
		}
	}
}

// missing is a policy whose jobs are due while no worker takes them.
type missing struct {
	since, last instant // offers that found nobody
	told        bool
}

// noWorker takes how an offer ended.
func (d *Drainer) noWorker(policy string, result offerResult, now instant) {
	m := d.missing[policy]
	switch {
	case result != offerNobody || d.running[policy] != nil: // whose workers are busy
		d.workersFound(policy, "the policy has workers again")
	case m == nil:
		d.missing[policy] = &missing{since: now, last: now}
	default:
		m.last = now
		if !m.told && now.since(m.since) >= workerless {
			m.told = true
			d.options.Observer.Workerless(policy, true)
			d.log.Warn("jobs wait: no worker runs the policy's jobs, neither here nor elsewhere", "policy", policy)
		}
	}
}

func (d *Drainer) workersFound(policy, text string) {
	if m := d.missing[policy]; m != nil && m.told {
		d.options.Observer.Workerless(policy, false)
		d.log.Info(text, "policy", policy)
	}
	delete(d.missing, policy)
}

// look is called every noticeEvery.
func (d *Drainer) look(ctx context.Context, now instant) {
	for name, m := range d.missing {
		if now.since(m.last) > 2*noticeEvery { // nobody is asked any more
			d.workersFound(name, "no job waits for a worker any more")
		}
	}
	if now >= d.ownersAt && d.broker.Conn().IsConnected() {
		d.ownersAt = now.add(ownerEvery)
		d.noticeOwners(ctx)
	}
}

// lookNowAndThen has the loop look at what nothing tells it of, until the context ends.
func (d *Drainer) lookNowAndThen(ctx context.Context) {
	d.spawn(func() {
		ticker := time.NewTicker(noticeEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				d.post(func(now instant) { d.look(ctx, now) })
			case <-ctx.Done():
				return
			}
		}
	})
}
