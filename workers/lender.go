package workers

import (
	"context"
	"crypto/rand"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/claims"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// lender runs jobs of other drainers' valves: it reserves a worker for an offer, claims, and runs
// the job. This drainer's own valve uses the same workers. It belongs to the loop; run and its
// callees have goroutines.
type lender struct {
	*calls
	broker  *jet.Broker
	catalog *catalog
	jobs    context.Context
	own     *remote // this drainer's own offers return here too
	claims  *claims.Client

	crews   map[string]*workforce // by policy
	apart   map[string]bool       // policies for count even if they rest
	loans   int                   // open claims, runs and settlements
	closing bool
	untold  chan struct{} // limits the settlements whose workers continue
}

// workforce has a policy's lent workers. It outlives a policy whose jobs run: that may come back.
type workforce struct {
	handle Handler
	keys   map[queue.Key]int // by bucket, open claims at ""

	subject string // of offers; empty: it takes none
	stop    func() // ends these
}

// loan is a worker for another drainer's valve.
type loan struct {
	*claims.Claimant
	policy string
	crew   *workforce
	handle Handler
	key    queue.Key // of the job; the loop's
	at     pace.Instant
	jumps  uint64
}

const (
	// mostUntold bounds the settlements without an answer whose workers continue.
	mostUntold = 256
	// mostExcept bounds the buckets that a claim excludes.
	mostExcept = 256
)

func (l *lender) listen() (err error) {
	l.claims, err = claims.New(l.nc)
	return err
}

func (l *lender) serve(changed iter.Seq[string]) {
	for name := range changed {
		crew, handle := l.crews[name], l.catalog.running[name]
		if handle == nil || l.closing {
			if crew != nil && crew.subject != "" {
				crew.stop()
				crew.subject = ""
			}
			l.forget(name)
			continue
		}
		if subject := l.catalog.workSubject(name); crew == nil || crew.subject != subject {
			stop, err := l.broker.ServeWork(subject, l.offered(name))
			if err != nil {
				l.log.Warn("workers are not lent", "policy", name, "error", err)
				continue
			}
			if crew == nil {
				crew = &workforce{keys: map[queue.Key]int{}}
				l.crews[name] = crew
			} else if crew.subject != "" {
				crew.stop()
			}
			crew.subject, crew.stop = subject, stop
		}
		crew.handle = handle
	}
}

// forget drops a workforce that neither takes offers nor runs jobs.
func (l *lender) forget(name string) {
	if crew := l.crews[name]; crew != nil && crew.subject == "" && len(crew.keys) == 0 {
		delete(l.crews, name)
	}
}

func (l *lender) close() {
	l.closing = true
	l.serve(maps.Keys(l.crews))
}

func (l *lender) idle() bool { return l.loans == 0 }

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
		workers := l.core.Workers(name)
		c.Busy = workers.Busy + workers.Reserved
		if told := l.core.MayOwn(name) && p.Target != nil; told &&
			c != (record.Crew{All: p.Workers}) ||
			!told && c.All > 0 {
			crews[name] = c
		}
	}
	return crews
}

func (l *lender) offered(name string) nats.MsgHandler {
	return func(m *nats.Msg) {
		if strings.Contains(m.Reply, "."+l.own.id+".") {
			l.post(func(now pace.Instant) { l.own.cameBack(m.Reply, now) })
			return
		}
		_, err := job.ReadTurn(m.Data)
		if err != nil {
			l.seldom.Log("offer "+name, slog.LevelWarn, "refused an offer", "policy", name,
				"error", err)
		}
		l.post(func(pace.Instant) { l.claim(name, m.Reply, err == nil) })
	}
}

// claim answers an offer, by a claim without slots if there is no worker for it.
func (l *lender) claim(name, to string, understood bool) {
	c := job.Claim{Op: job.OpClaim, Want: job.WantJob}
	k := &loan{Claimant: l.claims.Open(rand.Text()), policy: name, crew: l.crews[name]}
	if understood && k.crew != nil && k.crew.subject != "" {
		workers := l.core.Workers(name)
		c.Slots, c.Except = k.crew.room(workers.Free(), workers.Reserved)
	}
	reserved := c.Slots > 0 && l.core.Reserve(name)
	if !reserved {
		c.Slots, c.Except = 0, nil
	}
	k.at, k.jumps = l.now(), l.clock.Jumps()
	err := k.Send(to, c)
	switch {
	case !reserved:
		k.Close()
	case err != nil:
		k.Close()
		l.core.Release(name)
	default:
		k.handle = k.crew.handle
		k.crew.count("", 1)
		l.loans++
		l.spawn(func() { l.run(k) })
	}
}

// room returns the free workers for other drainers' jobs, and the buckets that have too many of
// the lent ones for another one: see [crew.Workers.MayTake]. Any bucket may get the open claims.
func (c *workforce) room(free, lent int) (slots int, except []queue.Key) {
	open := c.keys[""]
	most := 3*(free-1) - open
	if free <= 0 || most < 0 {
		return 0, nil
	}
	if lent-open <= most {
		return free, nil
	}
	for key, n := range c.keys {
		if n > most && key != "" {
			except = append(except, key)
		}
	}
	if len(except) > mostExcept {
		slices.SortFunc(except, func(a, b queue.Key) int { return c.keys[b] - c.keys[a] })
	}
	return free, except[:min(len(except), mostExcept)]
}

func (c *workforce) count(key queue.Key, n int) {
	if c.keys[key] += n; c.keys[key] == 0 {
		delete(c.keys, key)
	}
}

func (l *lender) release(k *loan) {
	k.crew.count(k.key, -1)
	l.forget(k.policy)
	l.core.Release(k.policy)
}

// run waits for the valve's answer to a claim, and runs the job.
func (l *lender) run(k *loan) {
	var t *claims.Turn
	select {
	case t = <-k.Turns:
	case <-time.After(job.ClaimWindow):
	case <-l.stopped:
	}
	if t == nil || t.To == "" {
		k.Close()
		l.post(func(pace.Instant) {
			l.release(k)
			l.loans--
		})
		return
	}
	defer k.Close()
	j, lease, err := readJob(t)
	s := job.Settlement{Status: job.SettledReturned}
	now := l.now()
	switch {
	case err != nil:
		l.seldom.Log("job "+k.policy, slog.LevelWarn, "returned a malformed job", "policy",
			k.policy, "job", j.ID, "error", err)
	case now.Since(k.at) > job.ClaimWindow, l.clock.Jumps() != k.jumps:
		// another owner may have started others instead
	default:
		l.post(func(pace.Instant) {
			k.crew.count("", -1)
			k.crew.count(j.Key, 1)
			k.key = j.Key
		})
		j.Started = l.clock.Date(now)
		s = l.attempt(k, j, t.To, lease)
	}
	l.settle(k, t.To, s, lease)
}

// attempt runs a job, and reports its progress at a third of the lease.
func (l *lender) attempt(k *loan, j Job, to string, lease time.Duration) job.Settlement {
	began := l.now()
	ctx, stop := context.WithCancel(l.jobs)
	defer stop()
	j.settled.pass = func(text string) {
		_ = k.Send(to, job.Claim{Op: job.OpProgress,
			Settlement: job.Settlement{Progress: text}}) // the next one may get through
	}
	if j.settled.maxDelay > 0 {
		j.settled.answer = func() pace.Instant {
			_ = k.Send(to, job.Claim{Op: job.OpAnswered}) // the end says it, too
			return l.now()
		}
	}
	l.log.Debug("start for another drainer", "policy", j.Policy, "job", j.ID, "key", j.Key.Raw(),
		"attempt", j.Attempt)
	o, returned := exited(0), make(chan struct{})
	l.spawn(func() {
		defer close(returned)
		o = call(ctx, l.seldom, lease, k.handle, 0, j)
	})
	ticker := time.NewTicker(max(lease/3, time.Millisecond))
	defer ticker.Stop()
	for running := true; running; {
		select {
		case <-ticker.C:
			j.settled.report()
		case t := <-k.Turns:
			if t.State == job.TurnStop || t.State == job.TurnGone {
				stop()
			}
		case <-returned:
			running = false
		}
	}
	o = unlessInterrupted(ctx, o)
	attempts{l.log}.Take(j.ended(o, l.now().Since(began)))
	s := o.Settlement()
	j.settled.with(func(settled *settled) {
		if settled.pass = nil; settled.reply != nil {
			reply := job.Within(*settled.reply, l.nc.MaxPayload())
			s.Reply = &reply
		}
	})
	return s
}

// settle sends a settlement until the valve answers, for at most the lease, or for a moment after
// jobs were interrupted.
func (l *lender) settle(k *loan, to string, s job.Settlement, lease time.Duration) {
	select {
	case l.untold <- struct{}{}:
	case <-l.stopped:
		return
	}
	l.post(func(pace.Instant) { l.release(k) })
	const least = 2 * claims.Patience
	ctx, cancel := context.WithTimeout(l.life, max(lease, least))
	defer cancel()
	defer context.AfterFunc(l.jobs, func() { time.AfterFunc(least, cancel) })()
	t, err := k.Tell(ctx, func() string { return to },
		job.Claim{Op: job.OpSettle, Settlement: s},
		func(job.Turn) time.Duration { return claims.Pause })
	if t.State == job.TurnError {
		err = errors.New(t.Error)
	}
	if err != nil {
		l.seldom.Log("settle", slog.LevelInfo, "outcome of a remote job not delivered", "outcome",
			s.Status, "error", err)
	}
	<-l.untold
	l.post(func(pace.Instant) { l.loans-- })
}
