package workers

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/notice"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// lender runs jobs of other drainers' valves: it reserves a worker for an offer, claims, and runs
// the job. This drainer's own valve uses the same workers. It belongs to the loop; run and its
// callees have goroutines.
type lender struct {
	*calls
	broker  *queue.Broker
	catalog *catalog
	jobs    context.Context
	own     *remote // this drainer's own offers return here too

	inbox        string
	sub          *nats.Subscription
	crews        map[string]*workforce   // by policy
	apart        map[string]bool         // policies for count even if they rest
	reservations map[string]*reservation // by token
	tokens       uint64
	closing      bool
	pending      int // outcomes not confirmed by a valve
	ownersAt     pace.Instant
	unconfirmed  chan struct{} // limits the goroutines that wait for confirmation
}

type workforce struct {
	handle Handler
	all    int
	busy   int             // for other drainers' valves
	keys   map[job.Key]int // the same by bucket

	subject string
	stop    func()
}

type reservation struct {
	token  string
	policy string
	key    job.Key
	at     pace.Instant
	jumps  uint64
	crew   *workforce
	worker core.Reservation
	timer  *time.Timer // ends it if no job arrives
	stop   context.CancelFunc
}

const (
	// mostUnconfirmed bounds unconfirmed outcomes whose workers continue.
	mostUnconfirmed = 256
	// ownerEvery is the interval of checks whether policies with lent workers have a drainer.
	ownerEvery = 3 * time.Second
)

func (l *lender) listen() (err error) {
	l.inbox = l.nc.NewInbox() + "."
	l.sub, err = l.nc.Subscribe(l.inbox+"*", func(m *nats.Msg) {
		l.post(func(pace.Instant) { l.told(m) })
	})
	if err != nil {
		return fmt.Errorf("subscribe for lent jobs: %w", err)
	}
	return nil
}

func (l *lender) serve(changed iter.Seq[string]) {
	for name := range changed {
		crew, handle := l.crews[name], l.catalog.running[name]
		if handle == nil || l.closing {
			if crew != nil {
				crew.stop()
				delete(l.crews, name)
			}
			continue
		}
		if subject := l.catalog.workSubject(name); crew == nil || crew.subject != subject {
			stop, err := l.broker.ServeWork(subject, l.offered(name))
			if err != nil {
				l.log.Warn("workers are not lent", "policy", name, "error", err)
				continue
			}
			if crew == nil {
				crew = &workforce{keys: map[job.Key]int{}}
				l.crews[name] = crew
			} else {
				crew.stop()
			}
			crew.subject, crew.stop = subject, stop
		}
		crew.handle, crew.all = handle, l.catalog.policies[name].Workers
	}
}

func (l *lender) close() {
	l.closing = true
	l.serve(maps.Keys(l.crews))
}

func (l *lender) idle() bool { return len(l.reservations) == 0 && l.pending == 0 }

// count counts workers by policy, except idle ones of a policy with a target that this drainer may
// own, which readers assume.
func (l *lender) count() map[string]record.Crew {
	crews := map[string]record.Crew{}
	for name := range l.core.Awake(maps.Keys(l.apart)) {
		p := l.catalog.policies[name]
		var c record.Crew
		if l.catalog.running[name] != nil {
			c.All = p.Workers
		}
		busy, _, own := l.core.Workers(name)
		if c.Busy = busy; !own && l.crews[name] != nil {
			c.Busy = l.crews[name].busy
		}
		if told := own && p.Target != nil; told && c != (record.Crew{All: p.Workers}) ||
			!told && c.All > 0 {
			crews[name] = c
		}
	}
	return crews
}

func (l *lender) offered(name string) nats.MsgHandler {
	return func(m *nats.Msg) {
		switch {
		case strings.Contains(m.Reply, "."+l.own.id+"."):
			l.post(func(now pace.Instant) { l.own.cameBack(m.Reply, now) })
		case job.HeaderValue(m.Header, headerV) != protocolVersion:
			l.seldom.Log("offer "+name, slog.LevelWarn,
				"ignored an offer of another version", "policy", name, "version",
				job.HeaderValue(m.Header, headerV))
			l.say(m.Reply, statusBusy)
		default:
			key := job.Key(job.HeaderValue(m.Header, headerKey))
			l.post(func(pace.Instant) { l.claim(name, key, m.Reply) })
		}
	}
}

func (l *lender) claim(name string, key job.Key, reply string) {
	r, refusal := l.reserve(name, key)
	if r == nil {
		l.say(reply, refusal)
		return
	}
	l.tokens++
	r.token = strconv.FormatUint(l.tokens, 36)
	l.reservations[r.token] = r
	m := message(reply, statusClaim)
	m.Reply = l.inbox + r.token
	r.at, r.jumps = l.now(), l.clock.Jumps()
	if err := l.nc.PublishMsg(m); err != nil {
		l.release(r)
		return
	}
	r.timer = time.AfterFunc(valve.ClaimWindow, func() {
		l.post(func(pace.Instant) {
			if r.stop == nil {
				l.release(r)
			}
		})
	})
}

// reserve takes a worker for another drainer's bucket, or returns why not; see mayTakeWorker of the
// valve.
func (l *lender) reserve(name string, key job.Key) (r *reservation, refusal string) {
	crew := l.crews[name]
	if crew == nil {
		return nil, statusBusy
	}
	r = &reservation{policy: name, key: key, crew: crew}
	_, free, shared := l.core.Workers(name)
	if !shared {
		free = min(free, crew.all-crew.busy)
	}
	switch {
	case free <= 0:
		return nil, statusBusy
	case crew.keys[key] > 3*(free-1):
		return nil, statusCrowded
	}
	var ok bool
	if r.worker, ok = l.core.Reserve(name); !ok {
		return nil, statusBusy
	}
	crew.busy++
	crew.keys[key]++
	return r, ""
}

func (l *lender) release(r *reservation) {
	if l.reservations[r.token] != r {
		return
	}
	delete(l.reservations, r.token)
	r.crew.busy--
	r.crew.rename(r.key, "")
	l.core.Release(r.worker)
}

// rename counts a job for another bucket, or stops counting it.
func (c *workforce) rename(from, to job.Key) {
	if c.keys[from]--; c.keys[from] <= 0 {
		delete(c.keys, from)
	}
	if to != "" {
		c.keys[to]++
	}
}

func (l *lender) told(m *nats.Msg) {
	r := l.reservations[strings.TrimPrefix(m.Subject, l.inbox)]
	switch status := job.HeaderValue(m.Header, headerStatus); {
	case status == statusGo && (r == nil || r.stop != nil):
		l.pending++
		l.spawn(func() { l.confirm(message(m.Reply, statusLate), valve.ClaimWindow) })
	case status == statusGo:
		r.timer.Stop()
		var ctx context.Context
		ctx, r.stop = context.WithCancel(l.jobs)
		key := job.Key(job.HeaderValue(m.Header, headerKey))
		if key != r.key {
			r.crew.rename(r.key, key)
			r.key = key
		}
		handle := r.crew.handle
		l.spawn(func() { l.run(ctx, r, m, handle) })
	case r == nil:
	case status == statusStop && r.stop != nil:
		r.stop()
	case r.stop == nil:
		r.timer.Stop()
		l.release(r)
	}
}

func (l *lender) run(ctx context.Context, r *reservation, m *nats.Msg, handle Handler) {
	defer r.stop()
	job, timeout, err := readJob(m)
	var answer *nats.Msg
	now := l.now()
	switch {
	case err != nil:
		l.seldom.Log("job "+r.policy, slog.LevelWarn, "returned a malformed job",
			"policy", r.policy, "job", job.ID, "error", err)
		answer = message(m.Reply, statusReturned)
		timeout = time.Second
	case now.Since(r.at) > valve.ClaimWindow, l.clock.Jumps() != r.jumps:
		answer = message(m.Reply, statusLate)
	default:
		job.Started = l.clock.Date(now)
		o := l.attempt(ctx, job, m.Reply, timeout, handle)
		answer = l.addReply(outcomeMessage(m.Reply, o), job.settled.said())
	}
	select {
	case l.unconfirmed <- struct{}{}:
	case <-l.stopped:
		return
	}
	l.post(func(pace.Instant) {
		l.pending++
		l.release(r)
	})
	l.confirm(answer, timeout)
	<-l.unconfirmed
}

func (l *lender) attempt(ctx context.Context, job Job, valve string, timeout time.Duration,
	handle Handler) record.Outcome {
	began := l.now()
	job.settled.pass = func(progress string) { l.say(valve, statusProgress, []byte(progress)...) }
	l.log.Debug("start for another drainer", "policy", job.Policy, "job", job.ID, "key",
		job.Key.Raw(), "attempt", job.Attempt)
	o, returned := exited(0), make(chan struct{})
	l.spawn(func() {
		defer close(returned)
		o = call(ctx, l.seldom, timeout, handle, 0, job)
	})
	ticker := time.NewTicker(max(timeout/3, time.Millisecond))
	defer ticker.Stop()
	for running := true; running; {
		select {
		case <-ticker.C:
			job.settled.report()
		case <-returned:
			running = false
		}
	}
	if o.Kind == record.OutcomeFailed && ctx.Err() != nil {
		o.Kind = record.OutcomeUncounted
	}
	attempts{l.log}.Take(job.ended(o, l.now().Since(began)))
	return o
}

// confirm sends an outcome until the valve confirms it, for at most the timeout.
func (l *lender) confirm(m *nats.Msg, timeout time.Duration) {
	const patience = time.Second
	ctx, cancel := context.WithTimeout(l.life, max(timeout, 2*patience))
	defer cancel()
	var err error
	tries := 0
	l.retry(ctx, "", func() error {
		_, err = l.nc.RequestMsg(m, patience)
		if tries++; tries > 2 && l.jobs.Err() != nil {
			return nil
		}
		return err
	})
	if err != nil {
		l.seldom.Log("confirm", slog.LevelInfo, "outcome of a remote job not delivered",
			"outcome", job.HeaderValue(m.Header, headerStatus), "error", err)
	}
	l.post(func(pace.Instant) { l.pending-- })
}

// look checks whether policies with lent workers have an owner.
func (l *lender) look(now pace.Instant) {
	if now < l.ownersAt || !l.nc.IsConnected() {
		return
	}
	l.ownersAt = now.Add(ownerEvery)
	var lent []string
	for name := range l.crews {
		if _, _, known := l.core.Workers(name); !known {
			lent = append(lent, name)
		}
	}
	for _, name := range lent {
		l.call(l.life, purpose{name, "look for an owner"}, func() error {
			owned, err := l.broker.Owned(l.life, name, 0)
			if err != nil {
				return err
			}
			l.post(func(pace.Instant) {
				l.notices.Tell(&lentUnowned, name, notice.If(!owned && l.crews[name] != nil))
			})
			return nil
		})
	}
	l.notices.Forget(&lentUnowned, func(name string) bool { return slices.Contains(lent, name) })
}
