// Package permits lets callers wait for a start in a policy's buckets, in order with its jobs, and
// make their requests themselves: see docs/workers-protocol.md, "Calls".
package permits

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

// Request asks for a start.
type Request struct {
	// Policy and Key select the bucket, as those of a job do.
	Policy, Key string
	// Cost is the number of slots of the rate; default 1.
	Cost int64
	// Costs are the costs by name, for limits that count a named cost; default Cost.
	Costs map[string]int64
	// Priority orders the calls of a bucket, higher first. All of them precede its jobs.
	Priority int
	// Wait is how long to wait for the start, at most [MaxWait]; 0: [DefaultWait]; negative: not at
	// all.
	Wait time.Duration
}

// Status is how the target answered a call.
type Status string

// The statuses.
const (
	Done        Status = job.CallDone        // it answered
	Failed      Status = job.CallFailed      // it failed, perhaps by the call's own fault
	Unavailable Status = job.CallUnavailable // it is down: several in a row open a breaker
	Unreached   Status = job.CallUnreached   // likewise, and the call has used nothing
	Throttled   Status = job.CallThrottled   // it asked for a pause, which the whole bucket makes
)

// Result is how a call ended.
type Result struct {
	Status Status
	// RetryAfter is how long the target asked for no more requests. It pauses the bucket, whatever
	// the status; for Throttled, 0 means the policy's backoff.
	RetryAfter time.Duration
	// Used is what the call cost, by cost name, in place of the estimate.
	Used map[string]int64
	// Err is why the call failed.
	Err error
}

const (
	// DefaultWait is how long a call waits for its start; MaxWait bounds [Request.Wait].
	DefaultWait, MaxWait = 30 * time.Second, 10 * time.Minute
	// StartWithin is how long after its last question a caller may begin: a later owner of the
	// bucket may have started others in its place.
	StartWithin = 50 * time.Millisecond

	// heartbeat is how often a waiting caller asks whether its owner is still there; patience is
	// how long it waits for an answer, and pause the time between two questions to nobody.
	heartbeat = 2 * time.Second
	patience  = time.Second
	pause     = 100 * time.Millisecond
	// settleTries bounds the repetitions of a settlement that nobody confirms.
	settleTries = 5
)

// Client acquires permits from the owners of buckets over NATS. It is safe for concurrent use.
type Client struct {
	// Callable reports why calls of a policy may not wait any more; nil: they always may. A caller
	// that waits asks about every two seconds.
	Callable func(policy string) error

	nc    *nats.Conn
	names queue.Names
	inbox string // with its trailing dot
	sub   *nats.Subscription
	close chan struct{}

	mu         sync.Mutex
	waiting    map[string]chan<- answer // by id
	partitions map[string]int           // of policies, if there are several
}

type answer struct {
	question int // its number
	turn     job.Turn
	err      string
	nobody   bool // no process owns the partition
}

// New returns a client on a connection, for the installation of the names.
func New(nc *nats.Conn, names queue.Names) (*Client, error) {
	c := &Client{nc: nc, names: names, inbox: nc.NewInbox() + ".", close: make(chan struct{}),
		waiting: map[string]chan<- answer{}, partitions: map[string]int{}}
	var err error
	if c.sub, err = nc.Subscribe(c.inbox+"*", c.hear); err != nil {
		return nil, fmt.Errorf("subscribe for permits: %w", err)
	}
	return c, nil
}

// Close ends the client. Permits in flight are not renewed any more.
func (c *Client) Close() {
	close(c.close)
	_ = c.sub.Unsubscribe() // the connection may be closed already
}

// hear passes an answer to its question: the subject's last token is the id and the number.
func (c *Client) hear(m *nats.Msg) {
	id, number, _ := strings.Cut(strings.TrimPrefix(m.Subject, c.inbox), "-")
	a := answer{nobody: len(m.Data) == 0 && m.Header.Get("Status") == "503"}
	a.question, _ = strconv.Atoi(number)
	if !a.nobody {
		var from job.Answer
		switch err := json.Unmarshal(m.Data, &from); {
		case err != nil:
			a.err = err.Error()
		case from.Turn != nil:
			a.err, a.turn = from.Error, *from.Turn
		default:
			a.err = from.Error
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case c.waiting[id] <- a:
	default: // an answer to an older question, or nobody asks any more
	}
}

// follow has answers about a call sent to a channel, until unfollow.
func (c *Client) follow(id string) <-chan answer {
	answers := make(chan answer, 8)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting[id] = answers
	return answers
}

func (c *Client) unfollow(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

// Permit allows one call, which must begin by StartBy or be returned.
type Permit struct {
	// StartBy is the instant by which the call must begin.
	StartBy time.Time

	// ID names the permit. Lease is how long it lasts without a word from the caller; 0: how the
	// call ends matters only if it pauses the bucket.
	ID    string
	Lease time.Duration

	call  *call                // of a caller over NATS
	tell  func(job.Call) error // of one elsewhere
	once  sync.Once
	ended chan job.Call // how it ended, for hold or keep
}

// Lent returns a permit from elsewhere, as by [Client.Lend]. tell says there how its call goes on.
func Lent(id string, startBy time.Time, lease time.Duration, tell func(job.Call) error) *Permit {
	p := &Permit{ID: id, StartBy: startBy, Lease: lease, tell: tell, ended: make(chan job.Call, 1)}
	if lease > 0 {
		go p.keep()
	}
	return p
}

// call is a caller's side of one call.
type call struct {
	*Client
	policy   string
	question job.Question // its Call changes
	first    time.Time
	answers  <-chan answer
	asked    int       // number of questions so far
	at       time.Time // of the last one
}

// Acquire waits until a call may begin. It returns an [*admission.RefusedError] if too many calls
// wait, if the start would come after the wait or has not come, or if an operator has paused the
// bucket; an [*admission.RequestError] if a limit never lets its costs pass; an
// [admission.ErrNoDrainer] if no drainer answers within the wait; or the context's error. The
// caller must begin at once, and call Settle or Return afterwards.
func (c *Client) Acquire(ctx context.Context, r Request) (*Permit, error) {
	p, err := c.Lend(ctx, r)
	switch {
	case err != nil:
		return nil, err
	case p.Lease > 0:
		p.call.answers = c.follow(p.ID)
		go p.hold()
	}
	return p, nil
}

// Lend is Acquire for a caller elsewhere, which keeps its lease and ends it by [Client.Tell].
func (c *Client) Lend(ctx context.Context, r Request) (*Permit, error) {
	key, err := job.EncodeKey(r.Key)
	if err != nil {
		return nil, admission.InvalidKey(err)
	}
	k := c.call(r.Policy, key, rand.Text())
	k.question.Cost, k.question.Costs, k.question.Priority = r.Cost, r.Costs, r.Priority
	defer k.unfollow(k.question.Call.ID)
	wait := max(0, min(cmp.Or(r.Wait, DefaultWait), MaxWait))
	if by, ok := ctx.Deadline(); ok {
		wait = min(wait, max(0, time.Until(by)))
	}
	return k.acquire(ctx, wait)
}

// call returns a call, which listens to answers.
func (c *Client) call(policy string, key job.Key, id string) *call {
	return &call{Client: c, policy: policy, first: time.Now(), answers: c.follow(id),
		question: job.Question{V: job.FormatVersion, Key: key, Call: &job.Call{ID: id}}}
}

// mostAsked is above the number of any question, so that Tell, which does not know it, is the
// caller's last word.
const mostAsked = 1 << 30

// Tell passes on how a lent permit goes on or ended: the [job.Call] has its ID and a status. It
// returns an [admission.ErrNotFound] if the lease has ended before, and an [admission.ErrNoDrainer]
// if nobody confirmed it.
func (c *Client) Tell(policy string, key job.Key, of job.Call) error {
	k := c.call(policy, key, of.ID)
	k.asked = mostAsked
	defer k.unfollow(of.ID)
	k.question.Op, k.question.Call = job.OpSettle, &of
	for range settleTries {
		switch k.tell() {
		case job.TurnSettled:
			return nil
		case job.TurnGone:
			return fmt.Errorf("%w: the lease of permit %.64q has ended", admission.ErrNotFound,
				of.ID)
		}
	}
	return fmt.Errorf("%w: settle a permit of %s", admission.ErrNoDrainer, policy)
}

func (k *call) acquire(ctx context.Context, wait time.Duration) (*Permit, error) {
	end := time.NewTimer(max(wait, patience))
	defer end.Stop()
	again := time.NewTimer(patience)
	defer again.Stop()
	k.ask(wait)
	last := ""
	var late *job.Turn // what a wait that ends now is refused with; nil: no owner answered
	for {
		select {
		case a := <-k.answers:
			if a.question != k.asked {
				continue // the later question has given that up
			}
			switch {
			case a.turn.State == job.TurnGo:
				by := k.at.Add(StartWithin)
				if time.Now().Before(by) {
					return &Permit{StartBy: by, call: k, ended: make(chan job.Call, 1),
						ID:    k.question.Call.ID,
						Lease: time.Duration(a.turn.LeaseMS) * time.Millisecond}, nil
				}
				k.ask(wait) // too late, which this question says
			case a.turn.State == job.TurnOffer:
				k.ask(wait)
				again.Reset(patience)
			case a.turn.State == job.TurnWaiting:
				late = &job.Turn{Reason: cmp.Or(a.turn.Reason, job.RefusedLate),
					RetryMS: patience.Milliseconds()}
				if at := a.turn.StartMS; at != nil {
					late.RetryMS = max(*at-wait.Milliseconds(), late.RetryMS)
				}
				again.Reset(heartbeat)
			case a.turn.Reason == job.RefusedNever:
				return nil, &admission.RequestError{Field: "cost", Reason: a.err}
			case a.turn.State == job.TurnRefused:
				return nil, refused(k.policy, a.turn)
			case a.turn.State == job.TurnMoved && k.partitioned(a.turn.Partitions):
				k.ask(wait)
				again.Reset(patience)
			default:
				last = a.err
				again.Reset(pause)
			}
		case <-again.C:
			if k.Callable != nil {
				if err := k.Callable(k.policy); err != nil {
					k.withdraw()
					return nil, err
				}
			}
			k.ask(wait)
			again.Reset(patience)
		case <-end.C:
			k.withdraw()
			if late != nil { // a pause began meanwhile, for example
				return nil, refused(k.policy, *late)
			}
			if last == "" {
				last = "none answered"
			}
			return nil, fmt.Errorf("%w: acquire a permit of %s: %s", admission.ErrNoDrainer,
				k.policy, last)
		case <-ctx.Done():
			k.withdraw()
			return nil, ctx.Err()
		}
	}
}

// refused is the error of a refusal.
func refused(policy string, t job.Turn) error {
	e := &admission.RefusedError{Policy: policy,
		RetryAfter: time.Duration(max(t.RetryMS, 1)) * time.Millisecond}
	switch t.Reason {
	case job.RefusedPaused:
		e.Reason = admission.ErrPaused
	case job.RefusedDown:
		e.Reason = admission.ErrTargetDown
	case job.RefusedLate:
		e.Reason = admission.ErrTooLate
	default:
		e.Reason = admission.ErrQueueFull
	}
	return e
}

// ask asks whether the call may begin now. It withdraws what an earlier question got.
func (k *call) ask(wait time.Duration) {
	k.at = time.Now()
	k.asked++
	c := k.question.Call
	c.AgeMS = k.at.Sub(k.first).Milliseconds()
	c.WaitMS = max(wait.Milliseconds()-c.AgeMS, 0)
	k.question.Op = job.OpCall
	k.send()
}

func (k *call) withdraw() {
	k.question.Op, k.question.Call.Status = job.OpSettle, job.CallWithdrawn
	k.asked++
	k.send()
}

// partitioned takes note of the number of a policy's partitions, and reports whether it is news.
func (k *call) partitioned(n int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n <= 0 || max(k.Client.partitions[k.policy], 1) == n {
		return false
	}
	k.Client.partitions[k.policy] = n
	return true
}

// send sends the question to the owner of the call's partition.
func (k *call) send() {
	q := k.question
	k.mu.Lock()
	n := max(k.Client.partitions[k.policy], 1)
	k.mu.Unlock()
	of := *q.Call
	of.Partitions, of.N = n, k.asked
	q.Call = &of
	body, err := json.Marshal(q)
	if err != nil {
		panic(fmt.Sprintf("permits: encode a question: %v", err)) // strings and numbers only
	}
	subject := k.names.Calls(k.policy, job.Partition(k.names.Jobs(k.policy, q.Key), n))
	// An error means that the connection is closed or its buffer is full: the timer repeats it.
	_ = k.nc.PublishRequest(subject, k.inbox+of.ID+"-"+strconv.Itoa(k.asked), body)
}

// Settle says how the call ended. Only the first Settle or Return counts.
func (p *Permit) Settle(r Result) {
	p.settle(job.Call{Status: string(r.Status), RetryAfterMS: ceil(r.RetryAfter), Used: r.Used,
		Error: text(r.Err)}, r.Status == Done && r.RetryAfter <= 0)
}

// Pause says that the target wants no more requests for a time, although the call goes on: the
// bucket pauses at once, and not when the call has ended.
func (p *Permit) Pause(d time.Duration) {
	c := job.Call{ID: rand.Text(), Status: job.CallPause, RetryAfterMS: ceil(d)}
	if p.tell != nil {
		go p.repeat(c)
	} else {
		go func() { _ = p.call.Tell(p.call.policy, p.call.question.Key, c) }() // it has repeated it
	}
}

// Return gives the permit back: the call has not begun, and will not.
func (p *Permit) Return() { p.settle(job.Call{Status: job.CallReturned}, false) }

func ceil(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() }

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// settle ends the permit. Without a lease, and if it is idle news, nobody need know.
func (p *Permit) settle(c job.Call, idle bool) {
	p.once.Do(func() {
		switch {
		case p.Lease > 0:
			p.ended <- c
		case idle:
		case p.tell != nil:
			go p.repeat(c)
		default:
			p.call.answers = p.call.follow(p.call.question.Call.ID)
			go p.call.finish(c)
		}
	})
}

// keep is hold for a permit from elsewhere.
func (p *Permit) keep() {
	renew := time.NewTicker(max(p.Lease/3, time.Millisecond))
	defer renew.Stop()
	for {
		select {
		case c := <-p.ended:
			p.repeat(c)
			return
		case <-renew.C:
			_ = p.tell(job.Call{Status: job.CallProgress}) // the next one repeats it
		}
	}
}

// repeat tells how a call from elsewhere goes on until that is known.
func (p *Permit) repeat(c job.Call) {
	for range settleTries {
		if err := p.tell(c); !errors.Is(err, admission.ErrUnavailable) &&
			!errors.Is(err, admission.ErrNoDrainer) {
			return
		}
		time.Sleep(pause)
	}
}

// finish tells the owner how the call ended.
func (k *call) finish(c job.Call) {
	c.ID = k.question.Call.ID
	defer k.unfollow(c.ID)
	k.question.Op, k.question.Call = job.OpSettle, &c
	for range settleTries {
		if k.tell() != "" {
			return
		}
	}
}

// tell sends the question and returns the state in the answer; empty: there was none in time.
func (k *call) tell() string {
	k.asked++
	k.send()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case a := <-k.answers:
			switch {
			case a.question != k.asked:
			case a.turn.State == job.TurnMoved && k.partitioned(a.turn.Partitions):
				return ""
			case a.nobody, a.err != "", a.turn.State == job.TurnMoved:
				timer.Reset(pause)
			default:
				return a.turn.State
			}
		case <-timer.C:
			return ""
		case <-k.close:
			return job.TurnGone
		}
	}
}

// hold keeps the lease: it sends progress at a third of it, and soon after the owner has changed,
// until the call has ended.
func (p *Permit) hold() {
	k := p.call
	k.question.Op = job.OpSettle
	k.question.Call = &job.Call{ID: k.question.Call.ID, Status: job.CallProgress}
	every := max(p.Lease/3, time.Millisecond)
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case c := <-p.ended:
			k.finish(c)
			return
		case <-k.close:
			return
		case a := <-k.answers:
			switch {
			case a.turn.State == job.TurnMoved: // before others ask the next owner
				k.partitioned(a.turn.Partitions)
				timer.Reset(min(pause/10, every))
			case a.nobody, a.err != "":
				timer.Reset(min(pause, every))
			}
		case <-timer.C:
			k.asked++
			k.send()
			timer.Reset(every)
		}
	}
}
