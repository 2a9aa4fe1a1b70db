package workers

import (
	"log/slog"
	"time"

	"github.com/penstock-mq/penstock/internal/base/notice"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/crew"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// noticeEvery is the interval of checks of conditions that cause no event.
const noticeEvery = time.Second

// newerEvery is the interval of checks for records of a newer format, among all records.
const newerEvery = 5 * time.Second

var (
	handlerIdle = notice.Kind{Level: slog.LevelWarn, Of: "policy", Begin: "handler waiting",
		End: "handler running: its policy exists now"}
	nameIdle = notice.Kind{Level: slog.LevelWarn, Of: "policy",
		Begin: "policy to drain cannot be drained", End: "policy to drain exists now"}
	noWorkers = notice.Kind{Level: slog.LevelWarn, Of: "policy",
		Begin: "jobs waiting: the policy has no worker, neither here nor elsewhere",
		End:   "the policy has workers again, or its jobs no longer wait"}
)

// note reports why a handler, or a name in [Options.Policies], has no effect.
func (l *loop) note(k *notice.Kind, name string, entry *policy.Entry) {
	why := ""
	switch {
	case entry == nil:
		why = "the policy does not exist"
	case !entry.HasQueue():
		why = "the policy has no queue"
	case k == &handlerIdle && entry.Policy.Target != nil:
		why = "the policy has a target, which runs all its jobs"
	default:
		l.notices.Tell(k, name, "")
		return
	}
	l.notices.Tell(k, name, why, "reason", why)
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
func (w *workerless) offered(policy string, local bool, result crew.Offered,
	now pace.Instant) {
	m := w.policies[policy]
	switch {
	case result != crew.OfferNobody || local:
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
