package workers

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue/claims"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/crew"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// remote is the valves' side of work in other processes: it offers work (Offer), and gives jobs to
// claims (start). Offers belong to the loop; a remote run has a goroutine, and reports like a local
// one.
type remote struct {
	*calls
	pool       *pool
	catalog    *catalog
	workerless workerless
	linger     time.Duration // for interrupted runs when the drainer stops
	id         string
	sub        *nats.Subscription

	tokens uint64
	offers map[string]*offer       // by reply subject
	others map[string]pace.Instant // last answer of another process's worker, by policy

	followed atomic.Uint64
	runs     sync.Map // of chan *nats.Msg, by reply subject
}

// offer goes to one worker after another until the claim of one fits.
type offer struct {
	reply   string
	policy  string
	at      pace.Instant
	tries   int
	foreign bool // asked in another process
	timer   *time.Timer
}

const (
	// mostTries bounds the workers that get an offer.
	mostTries = 4
	// remembered is the time that a remote worker counts as present after a reply.
	remembered = 10 * time.Second
	// travel is added to the attempt's timeout.
	travel     = 500 * time.Millisecond
	mostUnread = 8
)

func (r *remote) listen() (err error) {
	r.id = rand.Text()
	all := r.catalog.names.ClaimsOf("*", r.id, "*")
	if r.sub, err = r.nc.Subscribe(all, r.hear); err != nil {
		return fmt.Errorf("subscribe for workers' claims: %w", err)
	}
	return nil
}

func (r *remote) hear(m *nats.Msg) {
	if m.Reply != "" && !r.catalog.names.IsReply(m.Reply) {
		return // a reply would use our permissions
	}
	_, token, _ := strings.Cut(m.Subject, "."+r.id+".")
	if strings.HasPrefix(token, "o") {
		c, err := job.ReadClaim(m.Data)
		if err != nil || c.Want != job.WantJob || m.Reply == "" {
			c.Slots = 0
		}
		nobody := noResponders(m)
		r.post(func(now pace.Instant) { r.answered(m.Subject, m.Reply, c, nobody, now) })
		return
	}
	reports, runs := r.runs.Load(m.Subject)
	if !runs {
		r.say(m.Reply, job.Turn{State: job.TurnGone})
		return
	}
	select {
	case reports.(chan *nats.Msg) <- m:
	default:
	}
}

func (r *remote) Offer(policy string) {
	r.propose(&offer{policy: policy, tries: mostTries}, r.now())
}

func (r *remote) propose(o *offer, now pace.Instant) {
	r.tokens++
	o.reply = r.catalog.names.ClaimsOf(o.policy, r.id, "o"+strconv.FormatUint(r.tokens, 36))
	o.at = now
	o.tries--
	r.offers[o.reply] = o
	reply := o.reply
	o.timer = time.AfterFunc(job.ClaimWindow, func() {
		r.post(func(now pace.Instant) {
			if o := r.offers[reply]; o != nil {
				r.end(o, crew.OfferBusy, now)
			}
		})
	})
	if err := r.nc.PublishRequest(r.catalog.workSubject(o.policy), o.reply,
		encoded(job.Turn{State: job.TurnOffer})); err != nil {
		r.end(o, crew.OfferBusy, now)
	}
}

// answered takes a worker's answer to an offer, a claim without slots if it is busy.
func (r *remote) answered(to, reply string, c job.Claim, nobody bool, now pace.Instant) {
	o := r.offers[to]
	if o == nil || nobody {
		if c.Slots > 0 {
			r.say(reply, job.Turn{State: job.TurnRefused})
		}
		if o != nil {
			r.end(o, crew.OfferNobody, now)
		}
		return
	}
	r.others[o.policy], o.foreign = now, true
	claim := crew.Claim{Worker: reply, Except: c.Except, Until: o.at.Add(crew.HoldFor)}
	switch {
	case c.Slots <= 0:
		r.again(o, now)
	case now >= claim.Until:
		r.say(reply, job.Turn{State: job.TurnRefused})
		r.end(o, crew.OfferClaimed, now)
	case !r.core.Fits(o.policy, claim.Except, now):
		r.say(reply, job.Turn{State: job.TurnRefused})
		r.again(o, now)
	default:
		r.core.Handle(core.Claimed{Policy: o.policy, Claim: claim}, now)
		r.end(o, crew.OfferClaimed, now)
	}
}

func (r *remote) cameBack(reply string, now pace.Instant) {
	if o := r.offers[reply]; o != nil {
		r.again(o, now)
	}
}

func (r *remote) again(o *offer, now pace.Instant) {
	last, known := r.others[o.policy]
	switch {
	case o.tries > 0:
		r.forget(o)
		r.propose(o, now)
	case !o.foreign && (!known || now.Since(last) > remembered):
		r.end(o, crew.OfferNobody, now)
	default:
		r.end(o, crew.OfferBusy, now)
	}
}

func (r *remote) end(o *offer, result crew.Offered, now pace.Instant) {
	r.forget(o)
	r.workerless.offered(o.policy, r.catalog.running[o.policy] != nil, result, now)
	r.core.Handle(core.Offered{Policy: o.policy, Result: result}, now)
}

func (r *remote) forget(o *offer) {
	o.timer.Stop()
	delete(r.offers, o.reply)
}

func noResponders(m *nats.Msg) bool { return len(m.Data) == 0 && m.Header.Get("Status") == "503" }

func (r *remote) start(run valve.Run) {
	timeout := r.catalog.timeout(run.Part.Policy, run.Header)
	go r.work(run, timeout, r.pool.born(run))
}

func (r *remote) work(run valve.Run, timeout time.Duration, born born) {
	reports := make(chan *nats.Msg, mostUnread)
	to := r.catalog.names.ClaimsOf(run.Part.Policy, r.id,
		"r"+strconv.FormatUint(r.followed.Add(1), 36))
	r.runs.Store(to, reports)
	defer r.runs.Delete(to)
	j := newJob(&run, born)
	m := jobMessage(run.Worker, to, j, timeout)
	var err error
	begin := func() { err = r.nc.PublishMsg(m) }
	if !r.pool.work(&run, j, born.owed, begin, func(j Job) record.Outcome {
		if err != nil {
			return unsent(run)
		}
		o := r.await(run, j, reports, timeout)
		o.Answer = j.settled.close(o.Answer)
		return o
	}) {
		r.say(run.Worker, job.Turn{State: job.TurnRefused})
	}
}

// unsent is the outcome of a run that no worker got.
func unsent(run valve.Run) record.Outcome {
	return record.Outcome{Seq: run.Seq, Kind: record.OutcomeUncounted,
		Answer: record.AnswerUnsent}
}

// await follows a worker's reports of a job.
func (r *remote) await(run valve.Run, j Job, reports <-chan *nats.Msg,
	timeout time.Duration) record.Outcome {
	patience := timeout + travel
	timer := time.NewTimer(patience)
	defer timer.Stop()
	stop := job.Turn{State: job.TurnStop}
	interrupted := r.pool.jobs.Done()
	overdue := record.Outcome{Seq: run.Seq, Kind: record.OutcomeFailed, Answer: record.AnswerNone,
		Error: fmt.Sprintf("the worker sent neither progress nor an outcome for %v", timeout)}
	var forwarded pace.Instant
	for {
		select {
		case m := <-reports:
			if noResponders(m) {
				return unsent(run)
			}
			c, o, err := readReport(m, r.clock.Date(r.now()))
			if err == nil && c.Op == job.OpAnswered {
				j.Answered()
			}
			switch {
			case err != nil:
				r.seldom.Log("worker "+run.Part.Policy, slog.LevelWarn,
					"malformed message from a worker", "policy", run.Part.Policy, "job", j.ID,
					"error", err)
				r.say(m.Reply, job.Turn{State: job.TurnError, Error: err.Error()})
			case c.Op == job.OpSettle:
				r.say(m.Reply, job.Turn{State: job.TurnSettled})
				o.Seq = run.Seq
				j.setReply(c.Reply)
				return o
			case interrupted == nil:
				r.say(m.Reply, stop)
			default:
				timer.Reset(patience)
				r.say(m.Reply, job.Turn{State: job.TurnSettled})
				j.settled.advance(c.Progress)
				if now := r.now(); now.Since(forwarded) > timeout/4 {
					forwarded = now
					r.post(func(pace.Instant) { r.pool.progressed(run, "") })
				}
			}
		case <-timer.C:
			if interrupted != nil {
				r.say(run.Worker, stop)
			}
			return overdue
		case <-interrupted:
			interrupted = nil
			overdue.Kind, overdue.Error = record.OutcomeUncounted, ""
			r.say(run.Worker, stop)
			timer.Reset(r.linger)
		case <-r.stopped:
			return overdue
		}
	}
}

// The messages between valves (remote.go) and workers elsewhere (lender.go), except outcomes, which
// are of package record; see docs/workers-protocol.md.

func encoded(t job.Turn) []byte {
	t.V = job.FormatVersion
	text, _ := json.Marshal(t)
	return text
}

// say sends a turn without a job.
func (c *calls) say(to string, t job.Turn) {
	if to == "" {
		return
	}
	if err := c.nc.Publish(to, encoded(t)); err != nil {
		c.log.Debug("a claimant gets no turn", "turn", t.State, "error", err)
	}
}

func (c *calls) unsubscribe(sub *nats.Subscription) {
	if err := sub.Unsubscribe(); err != nil {
		c.log.Debug("not unsubscribed", "subject", sub.Subject, "error", err)
	}
}

// jobMessage starts a job, whose worker reports to the reply subject within the lease.
func jobMessage(to, reply string, j Job, lease time.Duration) *nats.Msg {
	m := nats.NewMsg(to)
	m.Reply, m.Data = reply, j.Body
	for name, values := range j.Header {
		if !strings.EqualFold(name, job.HeaderTurn) {
			m.Header[name] = values
		}
	}
	turn := job.Turn{State: job.TurnGo, LeaseMS: lease.Milliseconds(),
		MaxDelayMS: j.settled.maxDelayMS(), Job: &job.Started{ID: j.ID, Policy: j.Policy,
			Key: j.Key, Attempt: j.Attempt, Accepted: j.Accepted.UTC(),
			IdempotencyKey: j.IdempotencyKey, Kept: j.Kept()}}
	m.Header[job.HeaderTurn] = []string{string(encoded(turn))}
	return m
}

func (s *settled) maxDelayMS() (ms int64) {
	s.with(func(s *settled) { ms = (s.maxDelay + time.Millisecond - 1).Milliseconds() })
	return ms
}

// readJob reverses jobMessage.
func readJob(t *claims.Turn) (j Job, lease time.Duration, err error) {
	if t.Job == nil || t.State != job.TurnGo {
		return j, 0, fmt.Errorf("turn %q without a job: %s", t.State, t.Error)
	}
	j = Job{ID: t.Job.ID, IdempotencyKey: t.Job.IdempotencyKey, Policy: t.Job.Policy,
		Key: t.Job.Key, Body: t.Body, Attempt: t.Job.Attempt, Accepted: t.Job.Accepted,
		settled: &settled{kept: t.Job.Kept,
			maxDelay: time.Duration(t.MaxDelayMS) * time.Millisecond}}
	for name, values := range t.Header {
		if !strings.EqualFold(name, job.HeaderTurn) {
			if j.Header == nil {
				j.Header = nats.Header{}
			}
			j.Header[name] = values
		}
	}
	if lease = time.Duration(t.LeaseMS) * time.Millisecond; lease <= 0 {
		err = fmt.Errorf("lease_ms %d: want milliseconds", t.LeaseMS)
	}
	return j, lease, err
}

// readReport decodes a worker's report of a job that runs, with the outcome of a settlement.
func readReport(m *nats.Msg, now time.Time) (c job.Claim, o record.Outcome, err error) {
	text, reply := job.Carried(m.Header, m.Data)
	c, err = job.ReadClaim(text)
	switch {
	case err != nil:
	case c.Op == job.OpClaim:
		err = fmt.Errorf("op %s about a job that runs", c.Op)
	case c.Op == job.OpSettle:
		if o, err = record.Settled(c.Settlement, now); o.Error == "" &&
			(o.Kind == record.OutcomeFailed || o.Kind == record.OutcomePermanent) {
			o.Error = "the worker gave no reason"
		}
		if len(reply) > 0 && c.Reply == nil {
			c.Reply = &job.Reply{}
		}
		if c.Reply != nil {
			c.Reply.Body = reply
		}
	}
	return c, o, err
}
