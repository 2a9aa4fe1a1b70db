package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue"
)

// lender lends workers of this process to valves of others: it hears their offers, claims while there is room, and runs
// what it is given. Workers are shared with this drainer's own valve of the policy, if it has one. It belongs to the loop.
type lender struct {
	inbox    string // of what valves say to claims, with its last dot
	sub      *nats.Subscription
	lendings map[string]*lending // by policy
	claims   map[string]*claim   // by token
	tokens   uint64
	closing  bool
	pending  int // outcomes that no valve has confirmed yet
}

// lending is a policy whose jobs this process can run.
type lending struct {
	handle  Handler
	workers int
	busy    int               // of them, claimed or running
	keys    map[queue.Key]int // the same, by bucket
	sub     *nats.Subscription
}

// claim is a worker that was promised to a valve, and then the job that it runs.
type claim struct {
	token   string
	policy  string
	key     queue.Key // whose turn it was, then the job's
	at      instant
	jumps   uint64 // of the clock, by then
	lending *lending
	valve   *valve      // whose worker it is, if it is one of this drainer's valves
	timer   *time.Timer // ends the claim when no job comes
	stop    context.CancelFunc
}

// mostUnconfirmed is how many outcomes may wait for their valve's word while their workers go on.
const mostUnconfirmed = 256

// startLending begins to take jobs of other valves.
func (d *Drainer) startLending() error {
	nc := d.broker.Conn()
	d.lender = &lender{inbox: nc.NewInbox() + ".", lendings: map[string]*lending{}, claims: map[string]*claim{}}
	var err error
	d.lender.sub, err = nc.Subscribe(d.lender.inbox+"*", func(m *nats.Msg) {
		d.post(func(now instant) { d.told(m, now) })
	})
	if err != nil {
		return fmt.Errorf("subscribe for lent jobs: %w", err)
	}
	return nil
}

// lendTo sets the policies whose jobs this process can run, and with what.
func (d *Drainer) lendTo(handlers map[string]Handler) {
	l := d.lender
	for name, lent := range l.lendings {
		if handlers[name] == nil {
			d.unsubscribe(lent.sub)
			delete(l.lendings, name)
		}
	}
	if l.closing {
		return
	}
	for name, handle := range handlers {
		lent := l.lendings[name]
		if subject := d.workSubject(name); lent == nil || lent.sub.Subject != subject {
			sub, err := d.broker.Conn().QueueSubscribe(subject, queue.WorkGroup, d.offered(name))
			if err != nil {
				d.log.Warn("workers are not lent", "policy", name, "error", err)
				continue
			}
			if lent == nil {
				lent = &lending{keys: map[queue.Key]int{}}
				l.lendings[name] = lent
			} else {
				d.unsubscribe(lent.sub) // the policy got a target, or lost it
			}
			lent.sub = sub
		}
		lent.handle, lent.workers = handle, d.policies[name].Workers
	}
}

// workSubject is where the jobs of a policy are offered. Those of a policy with a target are offered to other drainers alone,
// which have that target as well.
func (d *Drainer) workSubject(name string) string {
	if d.policies[name].Target != nil {
		return d.broker.Names().WorkOfTarget(name)
	}
	return d.broker.Names().Work(name)
}

// crews counts this process's workers.
func (d *Drainer) crews() map[string]crewRecord {
	crews := map[string]crewRecord{}
	for name := range d.running {
		c := crewRecord{All: d.policies[name].Workers}
		if v := d.core.valves[name]; v != nil {
			c.Busy = v.busy + v.lent
		} else if lent := d.lender.lendings[name]; lent != nil {
			c.Busy = lent.busy
		}
		crews[name] = c
	}
	return crews
}

// stopLending takes no more jobs. What runs goes on.
func (d *Drainer) stopLending() {
	d.lender.closing = true
	d.lendTo(nil)
}

func (d *Drainer) unsubscribe(sub *nats.Subscription) {
	if err := sub.Unsubscribe(); err != nil {
		d.log.Debug("not unsubscribed", "subject", sub.Subject, "error", err)
	}
}

// idle reports whether nothing is lent and nothing has to be told any more.
func (l *lender) idle() bool { return len(l.claims) == 0 && l.pending == 0 }

// offered returns what hears the offers of a policy's valves.
func (d *Drainer) offered(name string) nats.MsgHandler {
	return func(m *nats.Msg) {
		switch {
		case d.remote != nil && strings.HasPrefix(m.Reply, d.remote.inbox):
			token := m.Reply[len(d.remote.inbox):]
			d.post(func(now instant) { d.ownOffer(token, now) })
		case header(m.Header, headerV) != protocolVersion:
			d.seldom.Log("offer "+name, slog.LevelWarn, "stood back from an offer of another version", "policy", name, "version", header(m.Header, headerV))
			d.say(m.Reply, statusBusy)
		default:
			key := queue.Key(header(m.Header, headerKey))
			d.post(func(instant) { d.claim(name, key, m.Reply) })
		}
	}
}

// claim answers an offer.
func (d *Drainer) claim(name string, key queue.Key, reply string) {
	l := d.lender
	c, refusal := d.takeWorker(name, key)
	if c == nil {
		d.say(reply, refusal)
		return
	}
	l.tokens++
	c.token = strconv.FormatUint(l.tokens, 36)
	l.claims[c.token] = c
	m := message(reply, statusClaim)
	m.Reply = l.inbox + c.token
	c.at, c.jumps = d.now(), d.clock.jumps.Load()
	if err := d.broker.Conn().PublishMsg(m); err != nil {
		d.giveBack(c)
		return
	}
	c.timer = time.AfterFunc(claimWindow, func() {
		d.post(func(instant) {
			if c.stop == nil {
				d.giveBack(c)
			}
		})
	})
}

// takeWorker takes a worker for a bucket of another drainer, or says why there is none to spare. As among the jobs of one
// valve, no bucket gets more than three times as many as would stay free: see [valve.mayTakeWorker].
func (d *Drainer) takeWorker(name string, key queue.Key) (c *claim, refusal string) {
	lent := d.lender.lendings[name]
	if lent == nil {
		return nil, statusBusy
	}
	c = &claim{policy: name, key: key, lending: lent}
	free := lent.workers - lent.busy
	if d.core != nil {
		if c.valve = d.core.valves[name]; c.valve != nil {
			free = c.valve.free()
		}
	}
	switch {
	case free <= 0:
		return nil, statusBusy
	case lent.keys[key] > 3*(free-1):
		return nil, statusCrowded
	case c.valve != nil && !d.core.lend(name):
		return nil, statusBusy
	}
	lent.busy++
	lent.keys[key]++
	return c, ""
}

// giveBack ends a claim.
func (d *Drainer) giveBack(c *claim) {
	if d.lender.claims[c.token] != c {
		return
	}
	delete(d.lender.claims, c.token)
	c.lending.busy--
	c.lending.rename(c.key, "")
	if c.valve != nil && d.core.valves[c.policy] == c.valve {
		d.core.unlend(c.policy)
	}
}

// rename counts a job for another bucket, or for none.
func (l *lending) rename(from, to queue.Key) {
	if l.keys[from]--; l.keys[from] <= 0 {
		delete(l.keys, from)
	}
	if to != "" {
		l.keys[to]++
	}
}

// told takes what a valve says to a claim.
func (d *Drainer) told(m *nats.Msg, now instant) {
	c := d.lender.claims[strings.TrimPrefix(m.Subject, d.lender.inbox)]
	switch status := header(m.Header, headerStatus); {
	case status == statusGo && (c == nil || c.stop != nil):
		d.lender.pending++
		d.spawn(func() { d.confirm(message(m.Reply, statusLate), claimWindow) })
	case status == statusGo:
		c.timer.Stop()
		var ctx context.Context
		ctx, c.stop = context.WithCancel(d.jobs)
		key := queue.Key(header(m.Header, headerKey))
		if key != c.key {
			c.lending.rename(c.key, key)
			c.key = key
		}
		handle := c.lending.handle
		d.spawn(func() { d.lend(ctx, c, m, handle) })
	case c == nil:
	case status == statusStop && c.stop != nil:
		c.stop()
	case c.stop == nil: // no, or that nobody waits for the claim
		c.timer.Stop()
		d.giveBack(c)
	}
}

// lend runs a job of another drainer's valve.
func (d *Drainer) lend(ctx context.Context, c *claim, m *nats.Msg, handle Handler) {
	defer c.stop()
	job, timeout, err := readJob(m)
	var answer *nats.Msg
	now := d.now()
	switch {
	case err != nil:
		d.seldom.Log("job "+c.policy, slog.LevelWarn, "gave a job back that was not understood", "policy", c.policy, "job", job.ID, "error", err)
		answer = message(m.Reply, statusReturned)
		timeout = time.Second
	case now.since(c.at) > claimWindow, d.clock.jumps.Load() != c.jumps:
		answer = message(m.Reply, statusLate)
	default:
		job.Started = d.clock.date(now)
		answer = outcomeMessage(m.Reply, d.runLent(ctx, job, m.Reply, timeout, handle))
	}
	select {
	case d.unconfirmed <- struct{}{}:
	case <-d.stopped:
		return
	}
	d.post(func(instant) {
		d.lender.pending++
		d.giveBack(c)
	})
	d.confirm(answer, timeout)
	<-d.unconfirmed
}

// runLent runs the handler and says meanwhile that the job goes on.
func (d *Drainer) runLent(ctx context.Context, job Job, valve string, timeout time.Duration, handle Handler) outcome {
	began := d.now()
	d.log.Debug("start for another drainer", "policy", job.Policy, "job", job.ID, "key", job.Key, "attempt", job.Attempt)
	attempt, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	returned := make(chan struct{})
	d.spawn(func() {
		ticker := time.NewTicker(max(timeout/3, time.Millisecond))
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				d.say(valve, statusProgress)
			case <-returned:
				return
			}
		}
	})
	err := call(attempt, handle, job)
	close(returned)
	o := outcomeOf(0, err)
	if o.Kind == outcomeFailed && ctx.Err() != nil {
		o.Kind = outcomeUncounted // this process or the valve's ends: no attempt
	}
	d.logEnd(job, o, d.now().since(began))
	return o
}

// confirm tells a valve an outcome until it answers, for at most the attempt's time-out. Afterwards nobody waits for it.
func (d *Drainer) confirm(m *nats.Msg, timeout time.Duration) {
	const patience = time.Second
	end := time.Now().Add(max(timeout, 2*patience))
	pause := 10 * time.Millisecond
	for tries := 1; ; tries++ {
		_, err := d.broker.Conn().RequestMsg(m, patience)
		if err == nil {
			break
		}
		if time.Now().After(end) || tries > 2 && d.jobs.Err() != nil {
			d.seldom.Log("confirm", slog.LevelInfo, "a valve did not hear how a lent job ended", "outcome", header(m.Header, headerStatus), "error", err)
			break
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-d.stopped:
			timer.Stop()
			return
		}
		pause = min(2*pause, patience)
	}
	d.post(func(instant) { d.lender.pending-- })
}

// runLending is Run of a drainer that only lends.
func (d *Drainer) runLending(ctx, background context.Context, interrupt func()) error {
	if err := d.startLending(); err != nil {
		return err
	}
	defer d.unsubscribe(d.lender.sub)
	ready := false
	d.spawn(func() {
		d.forever(background, "watch policies", func() error {
			return d.broker.WatchPolicies(background, func(set queue.PolicySet) {
				d.post(func(instant) {
					d.lendPolicies(set)
					if !ready {
						ready = true
						d.spawn(func() { d.flushed(background) })
					}
				})
			})
		})
	})
	d.lookNowAndThen(background)
	closed := d.broker.Conn().StatusChanged(nats.CLOSED)
	done := ctx.Done()
	var grace, end <-chan time.Time
	for {
		select {
		case event := <-d.events:
			event(d.now())
		case <-done:
			done = nil
			d.stopLending()
			grace = time.After(d.options.Grace)
		case <-grace:
			interrupt()
			end = time.After(d.options.Lease)
		case <-closed:
			interrupt()
			return errors.New("the connection to NATS was closed")
		case <-end:
			return errors.New("stopped before every outcome was heard: some jobs may run twice")
		}
		if d.lender.closing && d.lender.idle() {
			return nil
		}
	}
}

// flushed says that this process is ready once the server knows what it subscribes to.
func (d *Drainer) flushed(ctx context.Context) {
	if d.retry(ctx, "subscribe to offers", func() error { return d.broker.Conn().FlushTimeout(time.Second) }) {
		d.options.Ready()
	}
}

// lendPolicies takes the set of policies, as it is now.
func (d *Drainer) lendPolicies(set queue.PolicySet) {
	handlers := map[string]Handler{}
	for name, entry := range set {
		if !entry.Policy.HasQueue() {
			continue
		}
		d.policies[name] = entry.Policy
		if handle := d.handlerOf(entry); handle != nil {
			handlers[name] = handle
		}
	}
	d.noticeHandlers(set)
	d.lendTo(handlers)
}

// handlerOf returns what runs a policy's jobs in this process, nil when nothing does.
func (d *Drainer) handlerOf(entry queue.PolicyEntry) Handler {
	if handle := d.handlers[entry.Policy.Name]; handle != nil && entry.Policy.Target == nil {
		return handle
	}
	if d.options.Target == nil {
		return nil
	}
	handle, err := d.options.Target(entry)
	if err != nil {
		d.log.Warn("the policy's target cannot be used", "policy", entry.Policy.Name, "error", err)
		return nil
	}
	return handle
}
