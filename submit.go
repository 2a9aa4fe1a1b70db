package penstock

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/admission/permits"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
)

// Job is a job to submit.
type Job struct {
	// Policy paces the job. Key selects its bucket: a tenant, an account, an endpoint; UTF-8 of up
	// to [queue.MaxKeyBytes], or empty.
	Policy, Key string
	Body        []byte // at most [admission.MaxBody] bytes

	// IdempotencyKey identifies repeats within the policy's duplicate window. Without one, a job
	// may run twice if Submit failed and was repeated.
	IdempotencyKey string
	// Cost is in slots of the rate; default 1. Costs, by name, are for limits that count them;
	// default Cost.
	Cost  int64
	Costs map[string]int64
	// Priority orders the jobs of a bucket, higher first: -9 to 9, default 0. With priority_step,
	// waiting raises it.
	Priority  int
	NotBefore time.Time // zero: at once
	Deadline  time.Time // latest start, before it becomes a dead letter; zero: after max_age
	// MaxAttempts bounds failures, Timeout an attempt, Retention the time that the ended job is
	// kept. Each is at most the policy's value, the default.
	MaxAttempts        int
	Timeout, Retention time.Duration
	// Unique is a name that one waiting job of a bucket can have: meanwhile, Submit returns its
	// ticket, as a Duplicate, or with Replace cancels it for the new one.
	Unique  string
	Replace bool
	IP      string        // the client's address, for policies that count by address
	Wait    time.Duration // for the ticket's Result, at most [admission.MaxWait]
	// Header holds further headers, such as Content-Type, Penstock-Method and Penstock-Path
	// (docs/guide.md). The fields above override it.
	Header http.Header
}

// Codec encrypts or compresses payloads. Handlers and submitters see plain payloads; targets and
// operators see encoded ones, with the Content-Encoding [queue.Encoding]. A repeat of an encoded
// job with another Body is not noticed.
//
//	Encode, Decode func([]byte) ([]byte, error)
type Codec = queue.Codec

// Ticket is the outcome of a submission, and prints as a sentence; see [admission.Outcome].
//
//	Verdict         admission.Verdict // Allowed: it starts now; Queued, Rejected
//	Job             string            // id, such as stripe:42; of the first job if it is a Duplicate
//	Duplicate       bool
//	Delay           time.Duration // until the expected start, if DelayKnown
//	DelayKnown      bool
//	Position, Depth int         // jobs of the bucket that start earlier, and all; 0: unknown
//	Result          *queue.Result // of a job that ended within its Wait
//	NoResult        string      // why there is none
//	Progress        string      // of a job that runs
//	Quota           admission.Quota
//	Remaining       int64 // of the quota; -1: unknown
//	ResetAfter      time.Duration
//	RetryAfter      time.Duration // of a refusal, which Submit returns as a [*RefusedError]
//	Refused         error
//	Unreachable     time.Time // expected start, if it is after the deadline
type Ticket = admission.Outcome

// RefusedError says why a job was not accepted, and when to retry.
//
//	Policy     string
//	Reason     error // such as [ErrQueueFull]
//	RetryAfter time.Duration
type RefusedError = admission.RefusedError

// Errors of Submit and Acquire, for errors.Is. The first six are the reasons of a [*RefusedError].
var (
	ErrQueueFull           = admission.ErrQueueFull           // of the bucket or policy
	ErrRateLimited         = admission.ErrRateLimited         // by a door policy
	ErrDeadlineUnreachable = admission.ErrDeadlineUnreachable // the job would start after it
	ErrTooLate             = admission.ErrTooLate             // the call would start after its wait
	ErrPaused              = admission.ErrPaused              // the call's policy or bucket
	ErrTargetDown          = admission.ErrTargetDown          // another call is the breaker's probe
	// ErrUnavailable: NATS or a store of limits does not answer. The job may have been stored; with
	// an IdempotencyKey, repeat it.
	ErrUnavailable   = admission.ErrUnavailable
	ErrUnknownPolicy = admission.ErrUnknownPolicy
)

// Submit stores a job in the queue of its policy, also before Run. A refusal is a [*RefusedError];
// other errors are an [*admission.RequestError], [ErrUnknownPolicy], [admission.ErrConflict] (the
// policy has no queue), [admission.ErrTooLarge], [ErrUnavailable] (the job may be stored), and of a
// repeat an [*admission.EndedError] or [admission.ErrOtherPayload].
func (p *Penstock) Submit(ctx context.Context, j Job) (Ticket, error) {
	key, err := queue.EncodeKey(j.Key)
	if err != nil {
		return Ticket{}, admit.InvalidKey(err)
	}
	header, body, err := j.sealed(p.options.Codec)
	if err != nil {
		return Ticket{}, err
	}
	if err := p.usable(); err != nil {
		return Ticket{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	ticket, err := p.door.Service.Submit(ctx, admit.SubmitRequest{Policy: j.Policy, Key: key,
		Header: header, IP: admit.ClientIP(j.IP), Body: body, Wait: j.Wait,
		From: admit.Client{Operator: true}})
	if err == nil {
		err = cmp.Or(ticket.Err(), unseal(p.options.Codec, ticket.Result))
	}
	return ticket, err
}

func (j Job) sealed(c Codec) (http.Header, []byte, error) { return job.Seal(c, j.header(), j.Body) }

func unseal(c Codec, r *queue.Result) (err error) {
	if r != nil && r.Reply != nil {
		if r.Reply.Body, err = job.Open(c, r.Reply.Header, r.Reply.Body); err != nil {
			err = fmt.Errorf("the reply of %s: %w", r.Job, err)
		}
	}
	return err
}

func (j Job) header() http.Header {
	header := http.Header{}
	maps.Copy(header, j.Header)
	if j.Replace {
		j.Unique += "; replace"
	}
	set := func(name string, given bool, text string) {
		if given {
			header.Set(name, text)
		}
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	date := func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
	set(job.HeaderIdempotencyKey, j.IdempotencyKey != "", j.IdempotencyKey)
	set(job.HeaderUnique, j.Unique != "", j.Unique)
	set(job.HeaderCost, j.Cost != 0, number(j.Cost))
	for name, n := range j.Costs {
		set(job.CostHeader(name), true, number(n))
	}
	set(job.HeaderPriority, j.Priority != 0, strconv.Itoa(j.Priority))
	set(job.HeaderMaxAttempts, j.MaxAttempts != 0, strconv.Itoa(j.MaxAttempts))
	set(job.HeaderNotBefore, !j.NotBefore.IsZero(), date(j.NotBefore))
	set(job.HeaderDeadline, !j.Deadline.IsZero(), date(j.Deadline))
	set(job.HeaderTimeout, j.Timeout != 0, j.Timeout.String())
	set(job.HeaderRetention, j.Retention != 0, j.Retention.String())
	return header
}

// Request is a check by a door policy or a meter.
type Request struct {
	Policy, Key string // as in [Job]
	Cost        int64  // units to take; default 1
	IP          string // the client's address, for policies that count by address
}

// Check takes units of a limit. A refusal is no error: it is not Allowed, and has a RetryAfter.
// Errors: [*admission.RequestError], also for a cost that can never pass; [ErrUnknownPolicy];
// [admission.ErrConflict] if the policy has a queue; and [ErrUnavailable].
func (p *Penstock) Check(ctx context.Context, r Request) (admission.Checked, error) {
	return r.ask(ctx, p.door.Service.Check)
}

// Peek is [Penstock.Check] without taking.
func (p *Penstock) Peek(ctx context.Context, r Request) (admission.Checked, error) {
	return r.ask(ctx, p.door.Service.Peek)
}

// Refund returns unused units of a Check.
func (p *Penstock) Refund(ctx context.Context, r Request) error {
	_, err := r.ask(ctx, func(ctx context.Context, of admit.CheckRequest) (
		admission.Checked, error) {

		return admission.Checked{}, p.door.Service.Refund(ctx, of)
	})
	return err
}

func (r Request) ask(ctx context.Context, to func(context.Context, admit.CheckRequest) (
	admission.Checked, error)) (admission.Checked, error) {

	key, err := queue.EncodeKey(r.Key)
	if err != nil {
		return admission.Checked{}, admit.InvalidKey(err)
	}
	return to(ctx, admit.CheckRequest{Policy: r.Policy, Key: key, Cost: cmp.Or(r.Cost, 1),
		IP: admit.ClientIP(r.IP)})
}

// Call is a request for a start; see [Penstock.Acquire].
//
//	Policy, Key string           // as for a job
//	Cost        int64            // slots of the rate; default 1
//	Costs       map[string]int64 // by name, for limits that count them; default Cost
//	Priority    int              // higher first; calls precede the bucket's jobs
//	Wait        time.Duration    // at most 10 minutes; 0: 30 s; negative: do not wait
type Call = permits.Request

// Permit allows one call, which must begin by StartBy or be returned; see [Penstock.Acquire].
//
//	StartBy time.Time
//	ID      string
//	Lease   time.Duration // its life without renewal; 0: none
//	// the longest delay of a request without an answer; 0: no limit counts from the answer
//	MaxDelay time.Duration
//
//	Answered()           // the answer has begun
//	Settle(CallResult)   // how the call ended
//	Pause(time.Duration) // pauses the bucket during the call
//	Return()             // the call did not begin
type Permit = permits.Permit

// CallResult says how a call ended.
//
//	Status     CallStatus
//	RetryAfter time.Duration    // pauses the bucket; 0: no pause, or the policy's backoff if throttled
//	Used       map[string]int64 // actual costs, by name; omitted ones stay as estimated
//	Err        error
//	// the target gave no answer, or one that a gateway may have made, so that it may still count the
//	// request; without effect after Answered
//	Unanswered bool
type CallResult = permits.Result

// CallStatus is how a call ended; any other is CallFailed.
type CallStatus = permits.Status

const (
	CallDone        = permits.Done        // the target answered
	CallFailed      = permits.Failed      // it failed, perhaps because of the call
	CallUnavailable = permits.Unavailable // it is down: several in a row open a breaker
	CallUnreached   = permits.Unreached   // it is down, and the call used no units
	CallThrottled   = permits.Throttled   // it asked for a pause of the bucket
)

// Acquirer acquires permits, as [*Penstock] and [*Client] do.
//
//	Acquire(context.Context, Call) (*Permit, error)
type Acquirer = permits.Acquirer

// Transport is an [http.RoundTripper] whose requests wait for their start.
//
//	Permits Acquirer                 // such as a [*Penstock] or a [*Client]
//	Policy  string                   // whose pace the requests keep
//	Call    func(*http.Request) Call // key, costs, wait; nil: the key is the host
//	Used    func(*http.Response) map[string]int64 // actual costs; nil: as estimated
//	Like    string              // the API whose answers are read as its; empty: by host
//	Answers []policy.AnswerRule // say what answers mean
//	Base    http.RoundTripper   // nil: [http.DefaultTransport]
type Transport = permits.Transport

// Acquire waits until a call may begin, in the bucket of the jobs of its policy and key. The caller
// begins at once, and then calls Settle, or Return if it did not begin. The policy must be a
// drained leaking bucket with a queue. Errors: a [*RefusedError] if too many calls wait, the start
// comes after the wait, or the bucket is paused; an [*admission.RequestError] for costs that can
// never pass; [ErrUnknownPolicy]; [admission.ErrNoDrainer] if no drainer answers within the wait;
// [ErrUnavailable]; and the context's.
func (p *Penstock) Acquire(ctx context.Context, c Call) (permit *Permit, err error) {
	client, err := p.door.Callers(c.Policy)
	if err == nil {
		permit, err = client.Acquire(ctx, c)
	}
	if err != nil {
		err = cmp.Or(p.usable(), err)
	}
	return permit, err
}
