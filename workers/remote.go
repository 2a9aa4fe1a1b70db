package workers

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/claims"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/crew"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// remote is the valves' side of work in other processes: it offers work (Offer), and gives jobs to
// claims (start). It belongs to the loop; see elsewhere for the runs.
type remote struct {
	*calls
	pool       *pool
	catalog    *catalog
	workerless workerless
	patient    time.Duration // with interrupted runs when the drainer stops
	id         string
	sub        *nats.Subscription

	tokens uint64
	offers map[string]*offer       // by reply subject
	others map[string]pace.Instant // last answer of another process's worker, by policy

	runs sync.Map // of *elsewhere, by reply subject
}

// offer goes to one worker after another until the claim of one fits.
type offer struct {
	reply  string
	policy string
	at     pace.Instant
	tries  int
	timer  *time.Timer
}

const (
	// mostTries bounds the workers that get an offer.
	mostTries = 4
	// remembered is the time that a remote worker counts as present after a reply.
	remembered = 10 * time.Second
	// travel is added to the attempt's timeout.
	travel = 500 * time.Millisecond
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
	} else if e, runs := r.runs.Load(m.Subject); runs {
		e.(*elsewhere).hear(m)
	} else {
		r.say(m.Reply, job.Turn{State: job.TurnGone})
	}
}

// subject returns the reply subject of an offer ("o") or a run ("r").
func (r *remote) subject(policy, of string) string {
	r.tokens++
	return r.catalog.names.ClaimsOf(policy, r.id, of+strconv.FormatUint(r.tokens, 36))
}

func (r *remote) Offer(policy string) {
	r.propose(&offer{policy: policy, tries: mostTries}, r.now())
}

func (r *remote) propose(o *offer, now pace.Instant) {
	o.reply = r.subject(o.policy, "o")
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
	r.others[o.policy] = now
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
	case !known || now.Since(last) > remembered:
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
	e := &elsewhere{attempt: r.pool.attempt(run), remote: r,
		reports: r.subject(run.Part.Policy, "r")}
	go e.start()
}

// elsewhere is a job that another process runs, and reports to a subject of its own. It ends with
// the worker's settlement or silence.
type elsewhere struct {
	*attempt
	remote  *remote
	reports string

	mu          sync.Mutex
	over        bool
	interrupted bool
	until       pace.Instant // the worker may be silent
	silence     *time.Timer
	listen      func() bool // ends its interruption by the drainer's stop
	forwarded   pace.Instant
}

// start holds the lock until the run can take reports.
func (e *elsewhere) start() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.remote.runs.Store(e.reports, e)
	m := jobMessage(e.run.Worker, e.reports, e.job, e.timeout)
	var err error
	if !e.begin(func() { err = e.nc.PublishMsg(m) }) {
		e.remote.runs.Delete(e.reports)
		e.say(e.run.Worker, job.Turn{State: job.TurnRefused})
		return
	}
	e.silence = time.AfterFunc(e.timeout+travel, e.silent)
	e.listen = context.AfterFunc(e.jobs, e.interrupt)
	if err != nil {
		e.unsent()
	}
}

// close ends the run. The rest may wait, as for a callback.
func (e *elsewhere) close(o record.Outcome) {
	e.over = true
	e.silence.Stop()
	e.listen()
	e.remote.runs.Delete(e.reports)
	o.Seq, o.Answer = e.run.Seq, e.job.settled.close(o.Answer)
	go e.end(o)
}

// unsent closes a run that no worker got.
func (e *elsewhere) unsent() {
	e.close(record.Outcome{Kind: record.OutcomeUncounted, Answer: record.AnswerUnsent})
}

func (e *elsewhere) hear(m *nats.Msg) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if noResponders(m) {
		if !e.over {
			e.unsent()
		}
		return
	}
	c, o, err := readReport(m, e.clock.Date(e.now()))
	switch {
	case err != nil:
		e.seldom.Log("worker "+e.job.Policy, slog.LevelWarn, "malformed message from a worker",
			"policy", e.job.Policy, "job", e.job.ID, "error", err)
		e.say(m.Reply, job.Turn{State: job.TurnError, Error: err.Error()})
	case e.over:
		e.say(m.Reply, job.Turn{State: job.TurnGone})
	case c.Op == job.OpSettle:
		e.say(m.Reply, job.Turn{State: job.TurnSettled})
		e.job.setReply(c.Reply)
		e.close(o)
	default:
		if c.Op == job.OpAnswered {
			e.job.Answered()
		}
		if e.interrupted {
			e.say(m.Reply, job.Turn{State: job.TurnStop})
			return
		}
		e.wait(e.timeout + travel)
		e.say(m.Reply, job.Turn{State: job.TurnSettled})
		e.job.settled.advance(c.Progress)
		if now := e.now(); now.Since(e.forwarded) > e.timeout/4 {
			e.forwarded = now
			e.post(func(pace.Instant) { e.goesOn("") })
		}
	}
}

// interrupt gives the worker a moment to end the job.
func (e *elsewhere) interrupt() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.over {
		e.interrupted = true
		e.say(e.run.Worker, job.Turn{State: job.TurnStop})
		e.wait(e.remote.patient)
	}
}

func (e *elsewhere) wait(most time.Duration) {
	e.until = e.now().Add(most)
	e.silence.Reset(most)
}

func (e *elsewhere) silent() {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := record.Outcome{Kind: record.OutcomeUncounted, Answer: record.AnswerNone}
	switch {
	case e.over, e.now() < e.until: // a report came just in time
		return
	case !e.interrupted:
		e.say(e.run.Worker, job.Turn{State: job.TurnStop})
		o.Kind = record.OutcomeFailed
		o.Error = fmt.Sprintf("the worker sent neither progress nor an outcome for %v", e.timeout)
	}
	e.close(o)
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
			c.Reply = &queue.Reply{}
		}
		if c.Reply != nil {
			c.Reply.Body = reply
		}
	}
	return c, o, err
}
