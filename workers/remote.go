package workers

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue"
)

// remote is the valves' side of work in other processes: offers, and the jobs that run there. All answers come to one
// inbox; a token at the end of the subject says what they answer.
type remote struct {
	inbox string // of all answers, with its last dot
	sub   *nats.Subscription

	// Of the loop alone.
	tokens uint64
	offers map[string]*offer
	others map[string]instant // by policy, when a worker of another process last answered

	mu       sync.Mutex
	followed uint64
	runs     map[string]chan *nats.Msg // by token, what workers say about the job that they run
}

// offer is one of the core's offers, on its way through the workers until one claims.
type offer struct {
	token   string
	policy  string
	turn    nextTurn
	at      instant
	tries   int  // that are left
	foreign bool // some worker of another process was asked
	timer   *time.Timer
}

const (
	// mostTries is how many workers are asked, one after the other, before an offer counts as declined by all.
	mostTries = 4
	// remembered is how long after its last answer a worker elsewhere counts as being there.
	remembered = 10 * time.Second
	// travel is how much longer than the attempt's time-out the valve waits for a message of the worker.
	travel = 500 * time.Millisecond
	// mostUnread is how many messages of one worker may wait to be looked at. Outcomes that find no place are repeated.
	mostUnread = 8
)

// listen begins to take answers of workers.
func (d *Drainer) listen() error {
	nc := d.broker.Conn()
	d.remote = &remote{
		inbox: nc.NewInbox() + ".", offers: map[string]*offer{}, others: map[string]instant{}, runs: map[string]chan *nats.Msg{},
	}
	var err error
	if d.remote.sub, err = nc.Subscribe(d.remote.inbox+"*", d.hear); err != nil {
		return fmt.Errorf("subscribe for workers' answers: %w", err)
	}
	return nil
}

// hear passes a worker's message on to whoever waits for it.
func (d *Drainer) hear(m *nats.Msg) {
	token := strings.TrimPrefix(m.Subject, d.remote.inbox)
	if strings.HasPrefix(token, "o") {
		d.post(func(now instant) { d.answered(token, m, now) })
		return
	}
	d.remote.mu.Lock()
	answers := d.remote.runs[token]
	d.remote.mu.Unlock()
	if answers == nil {
		d.say(m.Reply, statusGone)
		return
	}
	select {
	case answers <- m:
	default:
	}
}

// say sends a message without a body.
func (d *Drainer) say(to, status string) {
	if to == "" {
		return
	}
	if err := d.broker.Conn().PublishMsg(message(to, status)); err != nil {
		d.log.Debug("not told a worker", "status", status, "error", err)
	}
}

// offer asks for a worker elsewhere.
func (d *Drainer) offer(policy string, now instant) {
	d.propose(&offer{policy: policy, tries: mostTries}, now)
}

// propose sends an offer to one of the policy's workers, whichever the queue group picks.
func (d *Drainer) propose(o *offer, now instant) {
	rm := d.remote
	rm.tokens++
	o.token, o.at = "o"+strconv.FormatUint(rm.tokens, 36), now
	o.tries--
	rm.offers[o.token] = o
	token := o.token
	o.timer = time.AfterFunc(claimWindow, func() {
		d.post(func(now instant) {
			if o := rm.offers[token]; o != nil {
				d.declined(o, offerBusy, now)
			}
		})
	})
	o.turn = d.core.next(o.policy)
	m := offerMessage(d.workSubject(o.policy), o.policy, o.turn.key, rm.inbox+o.token)
	if err := d.broker.Conn().PublishMsg(m); err != nil {
		d.declined(o, offerBusy, now)
	}
}

// answered takes what a worker said to an offer.
func (d *Drainer) answered(token string, m *nats.Msg, now instant) {
	status := header(m.Header, headerStatus)
	o := d.remote.offers[token]
	switch {
	case o == nil:
		if status == statusClaim { // too late
			d.say(m.Reply, statusNo)
		}
	case noResponders(m):
		d.declined(o, offerNobody, now)
	case status != statusClaim:
		o.foreign = true
		d.remote.others[o.policy] = now
		if status == statusCrowded {
			d.core.refused(o.policy, o.turn.key)
		}
		d.again(o, now)
	default:
		d.remote.others[o.policy] = now
		d.ended(o)
		d.noWorker(o.policy, offerClaimed, now)
		if until := o.at.add(holdFor); now < until {
			d.core.claimed(o.policy, claimed{worker: m.Reply, turn: o.turn, until: until})
		} else {
			d.say(m.Reply, statusNo)
		}
		d.core.offered(o.policy, offerClaimed, now)
	}
}

// ownOffer takes that an offer came back to this very process.
func (d *Drainer) ownOffer(token string, now instant) {
	if o := d.remote.offers[token]; o != nil {
		d.again(o, now)
	}
}

// again offers to another worker.
func (d *Drainer) again(o *offer, now instant) {
	last, known := d.remote.others[o.policy]
	switch {
	case o.tries > 0:
		d.ended(o)
		d.propose(o, now)
	case !o.foreign && (!known || now.since(last) > remembered):
		d.declined(o, offerNobody, now)
	default:
		d.declined(o, offerBusy, now)
	}
}

func (d *Drainer) declined(o *offer, result offerResult, now instant) {
	d.ended(o)
	d.noWorker(o.policy, result, now)
	d.core.offered(o.policy, result, now)
}

func (d *Drainer) ended(o *offer) {
	o.timer.Stop()
	delete(d.remote.offers, o.token)
}

func noResponders(m *nats.Msg) bool { return len(m.Data) == 0 && m.Header.Get("Status") == "503" }

// workElsewhere is what work is for local workers: it makes the last check, sends the job, and reports what becomes of it.
func (d *Drainer) workElsewhere(r run, worker string, timeout time.Duration, created time.Time) {
	token, answers := d.remote.follow()
	defer d.remote.unfollow(token)
	job := newJob(r, created)
	m := jobMessage(worker, d.remote.inbox+token, job, timeout)
	var err error
	now, passed := r.decide(d.gate, func() { err = d.broker.Conn().PublishMsg(m) })
	if !passed {
		d.say(worker, statusNo)
		d.report(result{r, outcome{Seq: r.Seq, Kind: outcomeReturned}})
		return
	}
	job.Started = d.clock.date(now)
	d.tellStart(r, job, now)
	o := outcome{Seq: r.Seq, Kind: outcomeUncounted}
	if err == nil {
		o = d.await(r, worker, answers, timeout)
	}
	d.tellEnd(job, o, d.now().since(now))
	d.report(result{r, o})
}

// await waits for the outcome of a job that another process runs.
func (d *Drainer) await(r run, worker string, answers <-chan *nats.Msg, timeout time.Duration) outcome {
	patience := timeout + travel
	timer := time.NewTimer(patience)
	defer timer.Stop()
	interrupted := d.jobs.Done()
	overdue := outcome{
		Seq: r.Seq, Kind: outcomeFailed, Error: fmt.Sprintf("the worker sent neither progress nor an outcome for %v", timeout),
	}
	var forwarded instant
	for {
		select {
		case m := <-answers:
			switch {
			case noResponders(m): // the worker left between its claim and the job, which so cannot have begun
				return outcome{Seq: r.Seq, Kind: outcomeUncounted}
			case header(m.Header, headerStatus) == statusProgress:
				if interrupted == nil {
					continue
				}
				timer.Reset(patience)
				if now := d.now(); now.since(forwarded) > timeout/4 {
					forwarded = now
					d.post(func(instant) { d.progressed(r) })
				}
			default:
				o, err := readOutcome(r.Seq, m)
				if err != nil {
					d.seldom.Log("worker "+r.part.policy, slog.LevelWarn, "a worker's message was not understood",
						"policy", r.part.policy, "job", jobID(r.part.policy, r.Seq), "error", err)
					d.say(m.Reply, statusError)
					continue
				}
				d.say(m.Reply, statusOK)
				return o
			}
		case <-timer.C:
			if interrupted != nil {
				d.say(worker, statusStop) // nobody waits for it any more
			}
			return overdue
		case <-interrupted: // this drainer's own end: no attempt
			interrupted = nil
			overdue = outcome{Seq: r.Seq, Kind: outcomeUncounted}
			d.say(worker, statusStop)
			timer.Reset(d.options.Lease / 2)
		case <-d.stopped:
			return overdue
		}
	}
}

// progressed tells the new owner of a partition that a job which this drainer still watches over goes on.
func (d *Drainer) progressed(r run) {
	if r.part.state != partitionSurrendered || r.stage == stageGone {
		return
	}
	data, err := json.Marshal(outcome{Seq: r.Seq, Kind: outcomeProgress, Stream: r.part.stream()})
	if err != nil {
		panic(fmt.Sprintf("workers: encode outcome: %v", err)) // strings and numbers only: cannot fail
	}
	d.call(d.jobs, purpose{r.part.policy, "pass progress on"}, func() error {
		ctx, cancel := context.WithTimeout(d.jobs, d.patience())
		defer cancel()
		question := queue.ValveQuestion{Op: queue.OpOutcome, Outcome: data}
		_, err := d.broker.AskValve(ctx, r.part.policy, r.part.number, question)
		if err != nil {
			d.log.Debug("progress not passed on", "job", jobID(r.part.policy, r.Seq), "error", err)
		}
		return err
	})
}

// follow makes a token under which a worker reports on a job.
func (rm *remote) follow() (token string, answers chan *nats.Msg) {
	answers = make(chan *nats.Msg, mostUnread)
	rm.mu.Lock()
	defer rm.mu.Unlock()
	rm.followed++
	token = "r" + strconv.FormatUint(rm.followed, 36)
	rm.runs[token] = answers
	return token, answers
}

func (rm *remote) unfollow(token string) {
	rm.mu.Lock()
	defer rm.mu.Unlock()
	delete(rm.runs, token)
}
