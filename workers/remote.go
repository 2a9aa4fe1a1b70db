package workers

import (
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

	mu       sync.Mutex
	followed uint64
	runs     map[string]chan *nats.Msg
}

// offer goes to one worker after another until one claims.
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
		return fmt.Errorf("subscribe for workers' answers: %w", err)
	}
	return nil
}

func (r *remote) hear(m *nats.Msg) {
	if m.Reply != "" && !r.catalog.names.IsReply(m.Reply) {
		return // a reply would use our permissions
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
	o.timer = time.AfterFunc(valve.ClaimWindow, func() {
		r.post(func(now pace.Instant) {
			if o := r.offers[reply]; o != nil {
				r.declined(o, valve.OfferBusy, now)
			}
		})
	})
	m := offerMessage(r.catalog.workSubject(o.policy), o.policy, "", o.reply)
	if err := r.nc.PublishMsg(m); err != nil {
		r.declined(o, valve.OfferBusy, now)
	}
}

func (r *remote) answered(m *nats.Msg, now pace.Instant) {
	status := job.HeaderValue(m.Header, headerStatus)
	o := r.offers[m.Subject]
	switch {
	case o == nil:
		if status == statusClaim {
			r.say(m.Reply, statusNo)
		}
	case noResponders(m):
		r.declined(o, valve.OfferNobody, now)
	case status != statusClaim || m.Reply == "":
		o.foreign = true
		r.others[o.policy] = now
		r.again(o, now)
	default:
		r.others[o.policy] = now
		r.ended(o)
		r.workerless.offered(o.policy, r.catalog.running[o.policy] != nil, valve.OfferClaimed, now)
		if until := o.at.Add(valve.HoldFor); now < until {
			claim := valve.Claim{Worker: m.Reply, Until: until}
			r.core.Handle(core.Claimed{Policy: o.policy, Claim: claim}, now)
		} else {
			r.say(m.Reply, statusNo)
		}
		r.core.Handle(core.Offered{Policy: o.policy, Result: valve.OfferClaimed}, now)
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

func (r *remote) start(run valve.Run) {
	timeout := r.catalog.timeout(run.Part.Policy, run.Header)
	go r.work(run, timeout, r.pool.born(run))
}

func (r *remote) work(run valve.Run, timeout time.Duration, born born) {
	reply, answers := r.follow(run.Part.Policy)
	defer r.unfollow(reply)
	job := newJob(&run, born)
	m := jobMessage(run.Worker, reply, job, timeout)
	var err error
	begin := func() { err = r.nc.PublishMsg(m) }
	if !r.pool.work(&run, job, born.owed, begin, func(j Job) record.Outcome {
		if err != nil {
			return record.Outcome{Seq: run.Seq, Kind: record.OutcomeUncounted}
		}
		return r.await(run, j, answers, timeout)
	}) {
		r.say(run.Worker, statusNo)
	}
}

func (r *remote) await(run valve.Run, j Job, answers <-chan *nats.Msg,
	timeout time.Duration) record.Outcome {
	patience := timeout + travel
	timer := time.NewTimer(patience)
	defer timer.Stop()
	interrupted := r.pool.jobs.Done()
	overdue := record.Outcome{Seq: run.Seq, Kind: record.OutcomeFailed,
		Error: fmt.Sprintf("the worker sent neither progress nor an outcome for %v", timeout)}
	var forwarded pace.Instant
	for {
		select {
		case m := <-answers:
			switch {
			case noResponders(m):
				return record.Outcome{Seq: run.Seq, Kind: record.OutcomeUncounted}
			case job.HeaderValue(m.Header, headerStatus) == statusProgress:
				if interrupted == nil {
					continue
				}
				timer.Reset(patience)
				j.settled.advance(string(m.Data))
				if now := r.now(); now.Since(forwarded) > timeout/4 {
					forwarded = now
					r.post(func(pace.Instant) { r.pool.progressed(run, "") })
				}
			default:
				o, err := readOutcome(run.Seq, m)
				if err != nil {
					r.seldom.Log("worker "+run.Part.Policy, slog.LevelWarn,
						"malformed message from a worker", "policy", run.Part.Policy, "job",
						job.ID(run.Part.Policy, run.Seq), "error", err)
					r.say(m.Reply, statusError)
					continue
				}
				r.say(m.Reply, statusOK)
				j.setReply(readReply(m))
				return o
			}
		case <-timer.C:
			if interrupted != nil {
				r.say(run.Worker, statusStop)
			}
			return overdue
		case <-interrupted:
			interrupted = nil
			overdue = record.Outcome{Seq: run.Seq, Kind: record.OutcomeUncounted}
			r.say(run.Worker, statusStop)
			timer.Reset(r.linger)
		case <-r.stopped:
			return overdue
		}
	}
}

// follow makes a subject for a worker's reports.
func (r *remote) follow(policy string) (reply string, answers chan *nats.Msg) {
	answers = make(chan *nats.Msg, mostUnread)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.followed++
	reply = r.catalog.names.ClaimsOf(policy, r.id, "r"+strconv.FormatUint(r.followed, 36))
	r.runs[reply] = answers
	return reply, answers
}

func (r *remote) unfollow(reply string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.runs, reply)
}
