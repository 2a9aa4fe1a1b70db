package workers

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/internal/base/notice"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/kv"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/crew"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

func (p performer) TellAccepted(j valve.Seen) { p.tellJob(queue.EventAccepted, j) }

func (p performer) TellCancelled(j valve.Seen) {
	p.tellJob(queue.EventCancelled, j)
	if j.Reason != "" {
		p.broker.PublishResult(j.Header, queue.Result{Job: job.ID(j.Part.Policy, j.Seq),
			End: queue.EndCancelled, Error: j.Reason})
	}
}

func (p performer) tellJob(event string, j valve.Seen) {
	name := j.Part.Policy
	p.sink.Take(queue.Event{Type: event, Policy: name, Job: job.ID(name, j.Seq), Key: j.Key,
		Tags: job.Tags(j.Header), Header: j.Header, Accepted: time.Unix(0, j.Stamp),
		Error: j.Reason})
}

func (p performer) TellBreaker(b valve.Turned) {
	name := b.Part.Policy
	e := queue.Event{Type: queue.EventBreakerClosed, Policy: name, Job: job.ID(name, b.Seq),
		Key: b.Key, All: b.All}
	if b.Open {
		e.Type, e.Error = queue.EventBreakerOpened, b.Error
		last := p.outages.of(name)
		last.key, last.err = b.Key, b.Error
	}
	p.sink.Take(e)
}

func (p performer) TellAdapted(a valve.Adapted) {
	name := a.Part.Policy
	p.sink.Take(queue.Event{Type: queue.EventAdapted, Policy: name, Job: job.ID(name, a.Seq),
		Key: a.Key, Outflow: a.PerSecond})
}

func (p performer) TellTakeover(of handle.Partition) {
	p.log.Info("took over a partition: its owner is gone", "policy", of.Policy, "partition",
		of.Number)
}

func (p performer) TellVanished(jobs int) {
	p.seldom.Log("vanished", slog.LevelWarn, "jobs were removed from the stream by others",
		"jobs", jobs)
}

func (p performer) TellLost() {
	p.log.Warn("this process was declared dead and starts over", "id", p.core.Lease.Id)
}

// outages reports targets that go down and recover, with a log line per policy and outagesEvery.
type outages struct {
	*loop
	policies map[string]*outage
}

const outagesEvery = 5 * time.Second

var targetDown = notice.Kind{Level: slog.LevelWarn, Of: "policy",
	Begin: "target is down: single jobs probe it, and attempts do not count",
	End:   "target is back"}

type outage struct {
	valve.Breakers
	since  pace.Instant
	key    queue.Key
	err    string
	toldAt pace.Instant
}

func (o *outages) of(policy string) *outage {
	p := o.policies[policy]
	if p == nil {
		p = &outage{}
		o.policies[policy] = p
	}
	return p
}

func (o *outages) changed(policy string, b valve.Breakers, now pace.Instant) {
	p := o.of(policy)
	if p.Open() == 0 {
		p.since = now
	}
	p.Breakers = b
	o.loop.tell(jet.EventBreakers, policy, int64(b.Open()))
}

func (o *outages) look(now pace.Instant) {
	for name, p := range o.policies {
		if p.toldAt != 0 && now.Since(p.toldAt) < outagesEvery {
			continue
		}
		down, args := p.Open() > 0, []any{"after", now.Since(p.since)}
		if down {
			args = []any{"buckets", p.Buckets, "all", p.All, "key", p.key.Raw(), "error", p.err}
		}
		if o.notices.Tell(&targetDown, name, notice.If(down), args...) {
			p.toldAt = now
		} else if !down {
			delete(o.policies, name)
		}
	}
}

// forget drops a policy of another drainer, whose state is unknown.
func (o *outages) forget(policy string) {
	delete(o.policies, policy)
	o.notices.Forget(&targetDown, func(name string) bool { return name != policy })
}

// unreadable reports unreadable records. Damaged ones are set aside and replaced. Newer ones block
// their partitions, because only the version that wrote them can read them.
type unreadable struct {
	in    *loop
	table *kv.Table

	mu      sync.Mutex
	newer   []string
	damaged []string
}

const (
	// asidePrefix begins the keys of damaged records, and of no partition's.
	asidePrefix = "damaged."
	// asideFor and mostAside bound the age and number of damaged records.
	asideFor    = 14 * 24 * time.Hour
	mostAside   = 1000
	damagedTold = 10
)

func (u *unreadable) setAside(ctx context.Context, from *kv.Table, key string, bytes []byte) error {
	kept, err := u.table.Count(ctx, asidePrefix+">")
	if err != nil {
		return err
	}
	name := asidePrefix + from.Bucket() + "." + key
	if kept < mostAside {
		if err := u.table.Set(ctx, name, bytes, asideFor); err != nil {
			return err
		}
	}
	u.in.log.Error("rebuilding a damaged record", "bucket", from.Bucket(), "key", key,
		"kept_in", u.table.Bucket(), "kept_as", name)
	u.in.sink.Take(queue.Event{Type: jet.EventRecordDamaged, Name: from.Bucket()})
	note := fmt.Sprintf("%s was damaged and is being rebuilt; its bytes are kept as %s in KV %s",
		recordName(from, key), name, u.table.Bucket())
	u.mu.Lock()
	defer u.mu.Unlock()
	u.damaged = append(u.damaged, note)
	u.damaged = u.damaged[max(0, len(u.damaged)-damagedTold):]
	return nil
}

func (u *unreadable) look(newer []string) {
	u.mu.Lock()
	u.newer = newer
	u.mu.Unlock()
	if u.in.notices.Tell(&newerRecords, "", strings.Join(newer, ", "), "records", newer) {
		u.in.tell(jet.EventRecordsNewer, "", int64(len(newer)))
	}
}

var newerRecords = notice.Kind{Level: slog.LevelWarn, Begin: "records of a newer format block " +
	"their subjects: run that version, or delete them"}

func (u *unreadable) notes() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	notes := slices.Clone(u.damaged)
	for _, name := range u.newer {
		notes = append(notes, name+" has a newer format and blocks its subject")
	}
	return notes
}

func recordName(t *kv.Table, key string) string {
	return fmt.Sprintf("the record %s in KV %s", key, t.Bucket())
}

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
func (l *loop) note(k *notice.Kind, name string, entry *inforce.Entry) {
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
		w.tell(jet.EventWithoutWorkers, policy, jet.Whether(is))
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
