package workers

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/core"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// remote is the valves' side of work in other processes: it asks their workers on behalf of the
// core (Offer), and gives the job to the one that claimed (StartElsewhere). Everything comes back
// to the subjects of one id, each the answer to one offer or run. Offers belong to the loop; a run
// elsewhere has a goroutine of its own, as one in the pool has, and tells the same of itself.
type remote struct {
	*calls
	*wire
	pool       *pool
	catalog    *catalog
	core       *core.Core
	workerless workerless
	linger     time.Duration // how long runs that are told to stop may take at the drainer's end
	id         string        // in the subjects of all answers
	sub        *nats.Subscription

	// Of the loop alone.
	tokens uint64
	offers map[string]*offer       // by the subject of the answer
	others map[string]pace.Instant // by policy, when a worker of another process last answered

	mu       sync.Mutex
	followed uint64
	runs     map[string]chan *nats.Msg // by subject, what workers say about the job that they run
}

// offer is one of the core's offers, on its way through the workers until one claims.
type offer struct {
	reply   string // the subject of the answer
	policy  string
	turn    valve.NextTurn
	at      pace.Instant
	tries   int  // that are left
	foreign bool // some worker of another process was asked
	timer   *time.Timer
}

const (
	// mostTries is how many workers are asked, one after the other, before an offer counts as
	// declined by all.
	mostTries = 4
	// remembered is how long after its last answer a worker elsewhere counts as being there.
	remembered = 10 * time.Second
	// travel is how much longer than the attempt's time-out the valve waits for a message of the
	// worker.
	travel = 500 * time.Millisecond
	// mostUnread is how many messages of one worker may wait to be looked at. Outcomes that find no
	// place are repeated.
	mostUnread = 8
)

// listen begins to take answers of workers.
func (r *remote) listen() (err error) {
	r.id = rand.Text()
	all := r.catalog.names.Answers("*", r.id, "*")
	if r.sub, err = r.nc.Subscribe(all, r.hear); err != nil {
		return fmt.Errorf("subscribe for workers' answers: %w", err)
	}
	return nil
}

// hear passes a worker's message on to whoever waits for it.
func (r *remote) hear(m *nats.Msg) {
	if m.Reply != "" && !r.catalog.names.IsReply(m.Reply) {
		return // what we say there would be said with our rights
	}
	_, token, _ := strings.Cut(m.Subject, "."+r.id+".")
	if strings.HasPrefix(token, "o") {
		r.post(func(now pace.Instant) { r.answered(m, now) })
		return
	}
	r.mu.Lock()
	answers := r.runs[m.Subject]
	r.mu.Unlock()
	if answers == nil {
		r.say(m.Reply, statusGone)
		return
	}
	select {
	case answers <- m:
	default:
	}
}

// Offer asks for a worker elsewhere.
func (r *remote) Offer(policy string) {
	r.propose(&offer{policy: policy, tries: mostTries}, r.now())
}

// propose sends an offer to one of the policy's workers, whichever the queue group picks.
func (r *remote) propose(o *offer, now pace.Instant) {
	r.tokens++
	o.reply = r.catalog.names.Answers(o.policy, r.id, "o"+strconv.FormatUint(r.tokens, 36))
	o.at = now
	o.tries--
	r.offers[o.reply] = o
	reply := o.reply
	o.timer = time.AfterFunc(valve.ClaimWindow, func() {
		r.post(func(now pace.Instant) {
			if o := r.offers[reply]; o != nil {
				r.declined(o, valve.OfferBusy, now)
			}
		})
	})
	o.turn = r.core.Next(o.policy)
	m := offerMessage(r.catalog.workSubject(o.policy), o.policy, o.turn.Key, o.reply)
	if err := r.nc.PublishMsg(m); err != nil {
		r.declined(o, valve.OfferBusy, now)
	}
}

// answered takes what a worker said to an offer.
func (r *remote) answered(m *nats.Msg, now pace.Instant) {
	status := job.HeaderValue(m.Header, headerStatus)
	o := r.offers[m.Subject]
	switch {
	case o == nil:
		if status == statusClaim { // too late
			r.say(m.Reply, statusNo)
		}
	case noResponders(m):
		r.declined(o, valve.OfferNobody, now)
	case status != statusClaim:
		o.foreign = true
		r.others[o.policy] = now
		if status == statusCrowded {
			r.core.Handle(core.Refused{Policy: o.policy, Key: o.turn.Key}, now)
		}
		r.again(o, now)
	default:
		r.others[o.policy] = now
		r.ended(o)
		r.workerless.offered(o.policy, r.catalog.running[o.policy] != nil, valve.OfferClaimed, now)
		if until := o.at.Add(valve.HoldFor); now < until {
			claim := valve.Claim{Worker: m.Reply, Turn: o.turn, Until: until}
			r.core.Handle(core.Claimed{Policy: o.policy, Claim: claim}, now)
		} else {
			r.say(m.Reply, statusNo)
		}
		r.core.Handle(core.Offered{Policy: o.policy, Result: valve.OfferClaimed}, now)
	}
}

// cameBack takes that an offer came back to this very process.
func (r *remote) cameBack(reply string, now pace.Instant) {
	if o := r.offers[reply]; o != nil {
		r.again(o, now)
	}
}

// again offers to another worker.
func (r *remote) again(o *offer, now pace.Instant) {
	last, known := r.others[o.policy]
	switch {
	case o.tries > 0:
		r.ended(o)
		r.propose(o, now)
	case !o.foreign && (!known || now.Since(last) > remembered):
		r.declined(o, valve.OfferNobody, now)
	default:
		r.declined(o, valve.OfferBusy, now)
	}
}

func (r *remote) declined(o *offer, result valve.OfferResult, now pace.Instant) {
	r.ended(o)
	r.workerless.offered(o.policy, r.catalog.running[o.policy] != nil, result, now)
	r.core.Handle(core.Offered{Policy: o.policy, Result: result}, now)
}

func (r *remote) ended(o *offer) {
	o.timer.Stop()
	delete(r.offers, o.reply)
}

func noResponders(m *nats.Msg) bool { return len(m.Data) == 0 && m.Header.Get("Status") == "503" }

// Refuse tells a worker that claimed that there is no job for it.
func (r *remote) Refuse(worker string) { r.say(worker, statusNo) }

// StartElsewhere gives a job to the worker that claimed it. The core counts it, as those of the
// pool.
func (r *remote) StartElsewhere(run valve.Run, worker string) {
	timeout := r.catalog.timeout(run.Part.Policy)
	go r.work(run, worker, timeout, r.pool.born(run))
}

// work is what [pool.work] is for local workers: it makes the last check, sends the job, and
// reports what becomes of it.
func (r *remote) work(run valve.Run, worker string, timeout time.Duration, born born) {
	reply, answers := r.follow(run.Part.Policy)
	defer r.unfollow(reply)
	job := newJob(run, born.created)
	m := jobMessage(worker, reply, job, timeout)
	var err error
	now, passed := run.Decide(r.pool.gate.check, func() { err = r.nc.PublishMsg(m) })
	if !passed {
		r.say(worker, statusNo)
		r.pool.observer.Returned(run.Part.Policy, string(run.Returned()))
		r.pool.report(run, record.Outcome{Seq: run.Seq, Kind: record.OutcomeReturned})
		return
	}
	job.Started = r.clock.Date(now)
	r.pool.tellStart(run, job, now)
	o := record.Outcome{Seq: run.Seq, Kind: record.OutcomeUncounted}
	if err == nil {
		o = r.await(run, worker, answers, timeout)
	}
	o = r.pool.end(job, o, born.owed, r.now().Since(now))
	r.pool.report(run, o)
}

// await waits for the outcome of a job that another process runs.
func (r *remote) await(run valve.Run, worker string, answers <-chan *nats.Msg,
	timeout time.Duration) record.Outcome {
	patience := timeout + travel
	timer := time.NewTimer(patience)
	defer timer.Stop()
	interrupted := r.pool.jobs.Done()
	overdue := record.Outcome{
		Seq: run.Seq, Kind: record.OutcomeFailed,
		Error: fmt.Sprintf("the worker sent neither progress nor an outcome for %v", timeout),
	}
	var forwarded pace.Instant
	for {
		select {
		case m := <-answers:
			switch {
			case noResponders(m):
				// the worker left between its claim and the job, which so cannot have begun
				return record.Outcome{Seq: run.Seq, Kind: record.OutcomeUncounted}
			case job.HeaderValue(m.Header, headerStatus) == statusProgress:
				if interrupted == nil {
					continue
				}
				timer.Reset(patience)
				if now := r.now(); now.Since(forwarded) > timeout/4 {
					forwarded = now
					r.post(func(pace.Instant) { r.progressed(run) })
				}
			default:
				o, err := readOutcome(run.Seq, m)
				if err != nil {
					r.seldom.Log("worker "+run.Part.Policy, slog.LevelWarn,
						"a worker's message was not understood",
						"policy", run.Part.Policy, "job", job.ID(run.Part.Policy, run.Seq),
						"error", err)
					r.say(m.Reply, statusError)
					continue
				}
				r.say(m.Reply, statusOK)
				return o
			}
		case <-timer.C:
			if interrupted != nil {
				r.say(worker, statusStop) // nobody waits for it any more
			}
			return overdue
		case <-interrupted: // this drainer's own end: no attempt
			interrupted = nil
			overdue = record.Outcome{Seq: run.Seq, Kind: record.OutcomeUncounted}
			r.say(worker, statusStop)
			timer.Reset(r.linger)
		case <-r.stopped:
			return overdue
		}
	}
}

// progressed tells the new owner of a partition that a job which this drainer still watches over
// goes on.
func (r *remote) progressed(run valve.Run) {
	report, handedOver := r.core.Progress(run)
	if !handedOver {
		return
	}
	question := encodeOutcome(report.Outcome)
	r.call(r.pool.jobs, purpose{run.Part.Policy, "pass progress on"}, func() error {
		ctx, cancel := context.WithTimeout(r.pool.jobs, r.patience)
		defer cancel()
		_, err := r.pool.broker.AskValve(ctx, run.Part.Policy, run.Part.Number, question)
		if err != nil {
			r.log.Debug("progress not passed on", "job", job.ID(run.Part.Policy, run.Seq),
				"error", err)
		}
		return err
	})
}

// follow makes a subject on which a worker reports on a job.
func (r *remote) follow(policy string) (reply string, answers chan *nats.Msg) {
	answers = make(chan *nats.Msg, mostUnread)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.followed++
	reply = r.catalog.names.Answers(policy, r.id, "r"+strconv.FormatUint(r.followed, 36))
	r.runs[reply] = answers
	return reply, answers
}

func (r *remote) unfollow(reply string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.runs, reply)
}
