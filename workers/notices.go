package workers

import (
	"log/slog"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/internal/files"
	"github.com/penstock-mq/penstock/internal/notice"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// noticeEvery is the interval of checks of conditions that cause no event.
const noticeEvery = time.Second

// newerEvery is the interval of checks for records of a newer format, among all records.
const newerEvery = 5 * time.Second

var (
	handlerUnknown = notice.Kind{Level: slog.LevelWarn, Of: "policy",
		Begin: "handler waiting: its policy does not exist",
		End:   "handler running: its policy exists now"}
	handlerQueueless = notice.Kind{Level: slog.LevelWarn, Of: "policy",
		Begin: "handler waiting: its policy has no queue",
		End:   handlerUnknown.End}
	handlerRefused = notice.Kind{Level: slog.LevelError, Of: "policy",
		Begin: "handler refused: its policy has a target, which runs all its jobs",
		End:   handlerUnknown.End}
	nameUnknown = notice.Kind{Level: slog.LevelWarn, Of: "policy",
		Begin: "policy to drain does not exist",
		End:   "policy to drain exists now"}
	nameQueueless = notice.Kind{Level: slog.LevelWarn, Of: "policy",
		Begin: "policy to drain has no queue", End: nameUnknown.End}
	lentUnowned = notice.Kind{Level: slog.LevelWarn, Of: "policy",
		Begin: "workers waiting: no drainer owns the policy, so its jobs do not start",
		End:   "a drainer owns the policy again"}
	fewFiles = notice.Kind{Level: slog.LevelWarn,
		Begin: "the policies have more workers than this process may open files, and jobs will " +
			"wait for them: " + files.Advice,
		End: "the process may open enough files for its policies' workers"}
	noWorkers = notice.Kind{Level: slog.LevelWarn, Of: "policy",
		Begin: "jobs waiting: the policy has no worker, neither here nor elsewhere",
		End:   "the policy has workers again, or its jobs no longer wait"}
)

func (l *loop) noteHandlers(registered map[string]Handler, set policy.Entries) {
	for name := range registered {
		if strings.ContainsAny(name, `*?[\`) {
			continue
		}
		entry := set[name]
		queue := entry.HasQueue()
		l.notices.Tell(&handlerUnknown, name, notice.If(entry == nil))
		l.notices.Tell(&handlerQueueless, name, notice.If(entry != nil && !queue))
		l.notices.Tell(&handlerRefused, name, notice.If(queue && entry.Policy.Target != nil))
	}
}

func (l *loop) noteNames(options []string, set policy.Entries) {
	for _, name := range options {
		entry := set[name]
		l.notices.Tell(&nameUnknown, name, notice.If(entry == nil))
		l.notices.Tell(&nameQueueless, name, notice.If(entry != nil && !entry.HasQueue()))
	}
}

// workerless reports policies with due jobs and no workers anywhere, by the results of offers.
type workerless struct {
	*loop
	policies map[string]*missing
}

type missing struct{ since, last pace.Instant } // offers without response

// missingFor is the time until missing workers are logged.
const missingFor = 3 * time.Second

// offered handles an offer's result. local: there are workers here, all busy.
func (w *workerless) offered(policy string, local bool, result valve.OfferResult,
	now pace.Instant) {
	m := w.policies[policy]
	switch {
	case result != valve.OfferNobody || local:
		w.over(policy)
	case m == nil:
		w.policies[policy] = &missing{since: now, last: now}
	default:
		m.last = now
		if now.Since(m.since) >= missingFor {
			w.set(policy, true)
		}
	}
}

func (w *workerless) set(policy string, is bool) {
	if w.notices.Tell(&noWorkers, policy, notice.If(is)) {
		w.tell(queue.EventWithoutWorkers, policy, queue.Whether(is))
	}
}

func (w *workerless) over(policy string) {
	if w.policies[policy] != nil {
		w.set(policy, false)
		delete(w.policies, policy)
	}
}

func (w *workerless) look(now pace.Instant) {
	for name, m := range w.policies {
		if now.Since(m.last) > 2*noticeEvery {
			w.over(name)
		}
	}
}
