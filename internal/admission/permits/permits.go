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
// [Transport] does this for an [http.Client]. docs/workers-protocol.md has the protocol.
package permits

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/base/answers"
	"github.com/penstock-mq/penstock/internal/queue/claims"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
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

	heartbeat = 2 * time.Second // between claims while waiting
	tellFor   = 5 * time.Second // until a report without an answer is given up
)

// Client asks the owners of buckets over NATS. It is safe for concurrent use.
type Client struct {
	// Callable returns why calls of a policy may not wait any longer. It is called every two
	// seconds; may be nil.
	Callable func(policy string) error
	// Unanswered is called when no owner hears a claim; may be nil.
	Unanswered func()
	// Refused is called when a call is refused; may be nil.
	Refused func(policy string)

	nc     *nats.Conn
	names  jet.Names
	claims *claims.Client

	mu         sync.Mutex
	partitions map[string]int // of policies, if there are several
}

// New returns a client of the installation with these names.
func New(nc *nats.Conn, names jet.Names) (*Client, error) {
	c := &Client{nc: nc, names: names, partitions: map[string]int{}}
	var err error
	c.claims, err = claims.New(nc)
	return c, err
}

// Close also ends the wait for permits and their renewal. It may be repeated.
func (c *Client) Close() { c.claims.Close() }

// Acquire waits until a call may begin. The caller begins at once, and then calls Settle or Return.
// Errors: [*admission.RefusedError] if too many calls wait, the start comes after the wait, or the
// bucket is paused; [*admission.RequestError] for costs that can never pass;
// [admission.ErrUnknownPolicy] for what is no name of a policy;
// [admission.ErrNoDrainer] if no drainer answers within the wait; [admission.ErrUnavailable] if the
// client or its connection is closed; the context's.
func (c *Client) Acquire(ctx context.Context, r Request) (*Permit, error) {
	k, p, err := c.acquire(ctx, r)
	if err != nil {
		return nil, err
	}
	if p.Lease == 0 {
		k.Close()
		p.tell = func(op string, s job.Settlement) error {
			return c.Tell(r.Policy, k.claim.Key, k.ID, op, s)
		}
		return p, nil
	}
	p.tell = k.tell
	go func() {
		defer k.Close()
		p.keep(k.Turns, c.claims.Closed())
	}()
	return p, nil
}

// Lend is Acquire for a remote caller, which renews and ends the lease by [Client.Tell].
func (c *Client) Lend(ctx context.Context, r Request) (*Permit, error) {
	k, p, err := c.acquire(ctx, r)
	if err != nil {
		return nil, err
	}
	k.Close()
	return p, nil
}

// Tell reports progress or the end of a lent permit, by its ID. Errors: [admission.ErrNotFound] if
// the lease has ended, [admission.ErrNoDrainer] without confirmation.
func (c *Client) Tell(policy string, key queue.Key, id, op string, s job.Settlement) error {
	k := c.call(policy, key, id)
	defer k.Close()
	k.Latest()
	return k.tell(op, s)
}

// call is one that waits, or runs.
type call struct {
	*claims.Claimant
	client *Client
	policy string
	claim  job.Claim
	first  time.Time
}

func (c *Client) call(policy string, key queue.Key, id string) *call {
	return &call{Claimant: c.claims.Open(id), client: c, policy: policy, first: time.Now(),
		claim: job.Claim{Want: job.WantPermit, Key: key}}
}

func (k *call) tell(op string, s job.Settlement) error {
	ctx, cancel := context.WithTimeout(context.Background(), tellFor)
	defer cancel()
	c := k.claim
	c.Op, c.Settlement = op, s
	switch t, err := k.Tell(ctx, k.subject, c, k.moved); {
	case err == nil && t.State == job.TurnSettled:
		return nil
	case err == nil && t.State == job.TurnGone, errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("%w: the lease of permit %.64q has expired", admission.ErrNotFound, k.ID)
	default:
		return fmt.Errorf("%w: settle a permit of %s: %s", admission.ErrNoDrainer, k.policy,
			cmp.Or(t.Error, "no answer"))
	}
}

// acquire returns a call that has begun, whose claimant is still open.
func (c *Client) acquire(ctx context.Context, r Request) (*call, *Permit, error) {
	key, err := queue.EncodeKey(r.Key)
	if err != nil {
		return nil, nil, admit.InvalidKey(err)
	}
	if !policy.IsName(r.Policy) {
		return nil, nil, admit.UnknownPolicy(r.Policy)
	}
	k := c.call(r.Policy, key, rand.Text())
	k.claim.Cost, k.claim.Costs, k.claim.Priority = r.Cost, r.Costs, r.Priority
	wait := max(0, min(cmp.Or(r.Wait, DefaultWait), MaxWait))
	if by, ok := ctx.Deadline(); ok {
		wait = min(wait, max(0, time.Until(by)))
	}
	p, err := k.wait(ctx, wait)
	if err != nil {
		k.Close()
	}
	if _, is := errors.AsType[*admission.RefusedError](err); is && c.Refused != nil {
		c.Refused(r.Policy)
	}
	return k, p, err
}

func (k *call) wait(ctx context.Context, wait time.Duration) (*Permit, error) {
	end := time.NewTimer(max(wait, claims.Patience))
	defer end.Stop()
	again := time.NewTimer(claims.Patience)
	defer again.Stop()
	k.ask(wait)
	last := ""
	var late *job.Turn // the refusal if the wait ends now; nil: no owner answered
	for {
		select {
		case t := <-k.Turns:
			if t.Nobody && k.client.Unanswered != nil {
				k.client.Unanswered()
			}
			switch {
			case !k.Answers(t):
				continue
			case t.State == job.TurnGo:
				by := k.At.Add(job.ClaimWindow)
				if time.Now().Before(by) {
					p := newPermit(k.ID, by, time.Duration(t.LeaseMS)*time.Millisecond)
					p.MaxDelay = time.Duration(t.MaxDelayMS) * time.Millisecond
					return p, nil
				}
				k.ask(wait)
			case t.State == job.TurnOffer:
				k.ask(wait)
				again.Reset(claims.Patience)
			case t.State == job.TurnWaiting:
				late = &job.Turn{Reason: cmp.Or(t.Reason, job.RefusedLate),
					RetryMS: claims.Patience.Milliseconds()}
				if at := t.StartMS; at != nil {
					late.RetryMS = max(*at-wait.Milliseconds(), late.RetryMS)
				}
				again.Reset(heartbeat)
			case t.Reason == job.RefusedNever:
				return nil, &admission.RequestError{Field: "cost", Reason: t.Error}
			case t.State == job.TurnRefused:
				return nil, refused(k.policy, t.Turn)
			case t.State == job.TurnMoved && k.partitioned(t.Partitions):
				k.ask(wait)
				again.Reset(claims.Patience)
			default:
				last = t.Error
				again.Reset(claims.Pause)
			}
		case <-k.client.claims.Closed():
			k.withdraw()
			return nil, fmt.Errorf("%w: acquire a permit of %s: the client was closed",
				admission.ErrUnavailable, k.policy)
		case <-again.C:
			if k.client.nc.IsClosed() {
				return nil, fmt.Errorf("%w: acquire a permit of %s: %w",
					admission.ErrUnavailable, k.policy, nats.ErrConnectionClosed)
			}
			if callable := k.client.Callable; callable != nil {
				if err := callable(k.policy); err != nil {
					k.withdraw()
					return nil, err
				}
			}
			k.ask(wait)
			again.Reset(claims.Patience)
		case <-end.C:
			k.withdraw()
			if late != nil { // a pause began meanwhile, for example
				return nil, refused(k.policy, *late)
			}
			return nil, fmt.Errorf("%w: acquire a permit of %s: %s", admission.ErrNoDrainer,
				k.policy, cmp.Or(last, "no answer"))
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

// ask gives up the start of an earlier claim.
func (k *call) ask(wait time.Duration) {
	k.claim.Op, k.claim.AgeMS = job.OpClaim, time.Since(k.first).Milliseconds()
	k.claim.WaitMS = max(wait.Milliseconds()-k.claim.AgeMS, 0)
	k.claim.Partitions = k.client.partitionsOf(k.policy)
	_ = k.Send(k.subject(), k.claim) // the timer repeats it
}

func (k *call) withdraw() {
	k.claim.Op, k.claim.Status = job.OpSettle, job.SettledReturned
	_ = k.Send(k.subject(), k.claim) // its silence says the same
}

func (k *call) subject() string {
	names := k.client.names
	return names.Claims(k.policy, job.Partition(names.Jobs(k.policy, k.claim.Key),
		k.client.partitionsOf(k.policy)))
}

// moved returns when to ask a partition's next owner.
func (k *call) moved(t job.Turn) time.Duration {
	if k.partitioned(t.Partitions) {
		return 0
	}
	return claims.Pause
}

// partitioned reports whether the number of a policy's partitions has changed.
func (k *call) partitioned(n int) bool {
	c := k.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if n <= 0 || max(c.partitions[k.policy], 1) == n {
		return false
	}
	c.partitions[k.policy] = n
	return true
}

func (c *Client) partitionsOf(policy string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.partitions[policy], 1)
}

// begin returns what decides of an answer's body besides its status and header, read first, at most
// [answers.MostRead]. later: only its end decides, as reading it would hold up a stream: a success
// of unknown or larger size.
func (s Sender) begin(a *http.Response) (text []byte, later bool) {
	if !s.Rules.Reads(a.StatusCode) || a.Body == nil || a.StatusCode < http.StatusOK {
		return nil, false
	}
	kind, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	failed := a.StatusCode >= http.StatusMultipleChoices
	short := a.ContentLength >= 0 && a.ContentLength <= answers.MostRead
	isJSON := kind == "application/json" || strings.HasSuffix(kind, "+json")
	if kind != "text/event-stream" && (failed || short || s.Hold && isJSON) {
		return Peek(a), false
	}
	return nil, true
}

func (s Sender) judge(status int, header http.Header, text []byte) Verdict {
	if coding := header.Get("Content-Encoding"); s.Decode != nil && len(text) > 0 {
		if plain, err := s.Decode(bytes.NewReader(text), coding); err == nil {
			text, _ = io.ReadAll(io.LimitReader(plain, answers.MostRead)) // a part matches no rule
		}
	}
	return s.Rules.Judge(status, header, text, time.Now())
}

// Peek returns the begin of a body, at most [answers.MostRead], which stays readable.
func Peek(a *http.Response) []byte {
	text, _ := io.ReadAll(io.LimitReader(a.Body, answers.MostRead)) // a later read tells the error
	a.Body = readCloser{io.MultiReader(bytes.NewReader(text), a.Body), a.Body}
	return text
}

type readCloser struct {
	io.Reader
	io.Closer
}
