// Package permits makes calls of other systems at the pace of a policy: a caller waits until its
// call may begin, in order with the jobs of its bucket, and makes it itself.
//
//	permit, err := client.Acquire(ctx, permits.Request{Policy: "llm", Key: "openai"})
//	if err != nil {
//		return err // such as an *admission.RefusedError, with the time to retry
//	}
//	err = call(ctx) // at once
//	permit.Settle(permits.Result{Status: permits.Done})
//
// [Transport] does this for an [http.Client]. docs/workers-protocol.md, "Calls", has the protocol.
package permits

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

// Request asks for the start of a call.
type Request struct {
	Policy, Key string           // as for a job
	Cost        int64            // slots of the rate; default 1
	Costs       map[string]int64 // by name, for limits that count a named cost; default Cost
	Priority    int              // higher first; calls precede the bucket's jobs
	// Wait bounds the wait, at most [MaxWait]; 0: [DefaultWait]; negative: do not wait.
	Wait time.Duration
}

const (
	// of [Request.Wait]
	DefaultWait, MaxWait = 30 * time.Second, 10 * time.Minute
	// StartWithin bounds the time from a caller's last question to its start: a later owner of the
	// bucket may have started others instead.
	StartWithin = 50 * time.Millisecond

	heartbeat   = 2 * time.Second        // between questions while waiting
	patience    = time.Second            // for an answer
	pause       = 100 * time.Millisecond // if no process owns the partition
	settleTries = 5
)

// Client asks the owners of buckets over NATS. It is safe for concurrent use.
type Client struct {
	// Callable returns why calls of a policy may not wait any longer. It is called every two
	// seconds; may be nil.
	Callable func(policy string) error
	// Unanswered is called when no owner hears a question; may be nil.
	Unanswered func()

	nc    *nats.Conn
	names queue.Names
	inbox string
	sub   *nats.Subscription
	close chan struct{}
	once  sync.Once // closes it

	mu         sync.Mutex
	waiting    map[string]chan<- answer
	partitions map[string]int // of policies, if there are several
}

type answer struct {
	question int
	turn     job.Turn
	err      string
	nobody   bool
}

// New returns a client of the installation with these names.
func New(nc *nats.Conn, names queue.Names) (*Client, error) {
	c := &Client{nc: nc, names: names, inbox: nc.NewInbox() + ".", close: make(chan struct{}),
		waiting: map[string]chan<- answer{}, partitions: map[string]int{}}
	var err error
	if c.sub, err = nc.Subscribe(c.inbox+"*", c.hear); err != nil {
		return nil, fmt.Errorf("subscribe for permits: %w", err)
	}
	return c, nil
}

// Close also ends the wait for permits and their renewal. It may be repeated.
func (c *Client) Close() {
	c.once.Do(func() { close(c.close) })
	_ = c.sub.Unsubscribe() // the connection may be closed already
}

// The subject's last token is the id and the number of the question.
func (c *Client) hear(m *nats.Msg) {
	id, number, _ := strings.Cut(strings.TrimPrefix(m.Subject, c.inbox), "-")
	a := answer{nobody: len(m.Data) == 0 && m.Header.Get("Status") == "503"}
	a.question, _ = strconv.Atoi(number)
	if a.nobody && c.Unanswered != nil {
		c.Unanswered()
	}
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
	default:
	}
}

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

type call struct {
	*Client
	policy   string
	question job.Question
	first    time.Time
	answers  <-chan answer
	asked    int
	at       time.Time
}

// Acquire waits until a call may begin. The caller begins at once, and then calls Settle or Return.
// Errors: [*admission.RefusedError] if too many calls wait, the start comes after the wait, or the
// bucket is paused; [*admission.RequestError] for costs that can never pass;
// [admission.ErrUnknownPolicy] for what is no name of a policy;
// [admission.ErrNoDrainer] if no drainer answers within the wait; [admission.ErrUnavailable] if the
// client or its connection is closed; the context's.
func (c *Client) Acquire(ctx context.Context, r Request) (*Permit, error) {
	p, k, err := c.lend(ctx, r)
	if err != nil {
		return nil, err
	}
	key := k.question.Key
	p.tell = func(of job.Call) error {
		of.ID = cmp.Or(of.ID, p.ID)
		return c.Tell(r.Policy, key, of)
	}
	if p.Lease > 0 {
		k.answers = c.follow(p.ID)
		go p.hold(k)
	}
	return p, nil
}

// Lend is Acquire for a remote caller, which renews and ends the lease by [Client.Tell].
func (c *Client) Lend(ctx context.Context, r Request) (*Permit, error) {
	p, _, err := c.lend(ctx, r)
	return p, err
}

func (c *Client) lend(ctx context.Context, r Request) (*Permit, *call, error) {
	key, err := job.EncodeKey(r.Key)
	if err != nil {
		return nil, nil, admission.InvalidKey(err)
	}
	if !policy.IsName(r.Policy) {
		return nil, nil, admission.UnknownPolicy(r.Policy)
	}
	k := c.call(r.Policy, key, rand.Text())
	k.question.Cost, k.question.Costs, k.question.Priority = r.Cost, r.Costs, r.Priority
	defer k.unfollow(k.question.Call.ID)
	wait := max(0, min(cmp.Or(r.Wait, DefaultWait), MaxWait))
	if by, ok := ctx.Deadline(); ok {
		wait = min(wait, max(0, time.Until(by)))
	}
	p, err := k.acquire(ctx, wait)
	return p, k, err
}

func (c *Client) call(policy string, key job.Key, id string) *call {
	return &call{Client: c, policy: policy, first: time.Now(), answers: c.follow(id),
		question: job.Question{V: job.FormatVersion, Key: key, Call: &job.Call{ID: id}}}
}

// mostAsked exceeds the number of any question: owners must take Tell's message as the latest.
const mostAsked = 1 << 30

// Tell reports progress or the end of a lent permit, by its ID and a status. Errors:
// [admission.ErrNotFound] if the lease has ended, [admission.ErrNoDrainer] without confirmation.
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
			return fmt.Errorf("%w: the lease of permit %.64q has expired", admission.ErrNotFound,
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
	var late *job.Turn // the refusal if the wait ends now; nil: no owner answered
	for {
		select {
		case a := <-k.answers:
			if a.question != k.asked {
				continue // a later question withdrew that one
			}
			switch {
			case a.turn.State == job.TurnGo:
				by := k.at.Add(StartWithin)
				if time.Now().Before(by) {
					return &Permit{StartBy: by, ended: make(chan job.Call, 1),
						ID:    k.question.Call.ID,
						Lease: time.Duration(a.turn.LeaseMS) * time.Millisecond}, nil
				}
				k.ask(wait)
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
		case <-k.close:
			k.withdraw()
			return nil, fmt.Errorf("%w: acquire a permit of %s: the client was closed",
				admission.ErrUnavailable, k.policy)
		case <-again.C:
			if k.nc.IsClosed() {
				return nil, fmt.Errorf("%w: acquire a permit of %s: %w", admission.ErrUnavailable,
					k.policy, nats.ErrConnectionClosed)
			}
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
				last = "no answer"
			}
			return nil, fmt.Errorf("%w: acquire a permit of %s: %s", admission.ErrNoDrainer,
				k.policy, last)
		case <-ctx.Done():
			k.withdraw()
			return nil, ctx.Err()
		}
	}
}

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

// ask gives up the start of an earlier question.
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

// partitioned reports whether the number of a policy's partitions has changed.
func (k *call) partitioned(n int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n <= 0 || max(k.Client.partitions[k.policy], 1) == n {
		return false
	}
	k.Client.partitions[k.policy] = n
	return true
}

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
		panic(fmt.Sprintf("permits: encode a question: %v", err))
	}
	subject := k.names.Calls(k.policy, job.Partition(k.names.Jobs(k.policy, q.Key), n))
	// An error means that the connection is closed or its buffer is full: the timer repeats it.
	_ = k.nc.PublishRequest(subject, k.inbox+of.ID+"-"+strconv.Itoa(k.asked), body)
}

// tell returns the state in the answer; empty: ask again.
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
