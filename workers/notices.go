package workers

import (
	"context"
	"log/slog"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// notices tells operators about conditions that silently prevent progress, with one log line when a
// condition begins and one when it ends. It belongs to the loop.
type notices struct {
	log  *slog.Logger
	open map[notice]string // the logged text of current conditions
}

type notice struct{ policy, about string }

// noticeEvery is how often to check conditions that cause no event.
const noticeEvery = time.Second

// tell updates a condition: text describes the problem, or is empty if there is none; ended is
// logged when it is over.
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

// handlers checks that every registered handler has a policy whose jobs it can run.
func (n *notices) handlers(registered map[string]Handler, set policy.Entries) {
	for name := range registered {
		entry, found := set[name]
		level, text := slog.LevelWarn, ""
		switch {
		case !found:
			text = "a handler waits: there is no policy of its name"
		case !entry.Policy.HasQueue():
			text = "a handler waits: its policy has no queue, so that there are no jobs"
		case entry.Policy.Target != nil:
			level, text = slog.LevelError,
				"a handler is refused: its policy has a target, which runs all of its jobs"
		}
		n.tell(notice{name, "handler"}, level, text,
			"the handler has a policy now, and runs its jobs")
	}
}

// names checks that the policies in Options.Policies exist.
func (n *notices) names(options []string, set policy.Entries) {
	for _, name := range options {
		text := ""
		if entry, found := set[name]; !found {
			text = "there is no policy of a name that this drainer is to own"
		} else if !entry.Policy.HasQueue() {
			text = "a policy that this drainer is to own has no queue"
		}
		n.tell(notice{name, "name"}, slog.LevelWarn, text,
			"there is a policy now that this drainer is to own")
	}
}

// workerless tells operators about policies with due jobs but no workers anywhere, as seen from the
// results of offers. It belongs to the loop.
type workerless struct {
	log      *slog.Logger
	observe  func(policy string, workerless bool)
	policies map[string]*missing
}

// missing is a policy without workers for its due jobs.
type missing struct {
	since, last pace.Instant // of offers without response
	told        bool
}

// missingFor is how long due jobs must lack workers before it is logged.
const missingFor = 3 * time.Second

// offered handles the result of an offer. local: the policy has workers here, all busy.
func (w *workerless) offered(policy string, local bool, result valve.OfferResult,
	now pace.Instant) {
	m := w.policies[policy]
	switch {
	case result != valve.OfferNobody || local:
		w.over(policy, "the policy has workers again")
	case m == nil:
		w.policies[policy] = &missing{since: now, last: now}
	default:
		m.last = now
		if !m.told && now.Since(m.since) >= missingFor {
			m.told = true
			w.observe(policy, true)
			w.log.Warn("jobs wait: no worker runs the policy's jobs, neither here nor elsewhere",
				"policy", policy)
		}
	}
}

func (w *workerless) over(policy, text string) {
	if m := w.policies[policy]; m != nil && m.told {
		w.observe(policy, false)
		w.log.Info(text, "policy", policy)
	}
	delete(w.policies, policy)
}

// look is called every noticeEvery.
func (w *workerless) look(now pace.Instant) {
	for name, m := range w.policies {
		if now.Since(m.last) > 2*noticeEvery { // no more offers
			w.over(name, "no job waits for a worker any more")
		}
	}
}
