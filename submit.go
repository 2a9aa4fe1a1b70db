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
	"github.com/penstock-mq/penstock/admission/permits"
	"github.com/penstock-mq/penstock/queue/job"
)

// Job is a job to submit.
type Job struct {
	// Policy paces the job. Key selects its bucket: a tenant, an account, an endpoint; any UTF-8 up
	// to [queue.MaxKeyBytes], also the empty key.
	Policy, Key string
	Body        []byte // at most [admission.MaxBody] bytes

	// IdempotencyKey identifies repeats of a job within the policy's duplicate window. Without one,
	// a job may run twice if Submit failed and was repeated.
	IdempotencyKey string
	// Cost is the slots of the rate that the job takes; default 1. Costs are further ones by name,
	// for limits that count them; default Cost.
	Cost  int64
	Costs map[string]int64
	// Priority orders the jobs of a bucket, higher first: -9 to 9, default 0. With priority_step,
	// waiting raises it.
	Priority  int
	NotBefore time.Time // the earliest start; zero: at once
	// Deadline makes a job that has not started a dead letter; zero: after the policy's max_age.
	Deadline time.Time
	// MaxAttempts bounds failures before the job is a dead letter, Timeout an attempt, Retention
	// how long the ended job is kept: by default, and at most, as in the policy.
	MaxAttempts        int
	Timeout, Retention time.Duration
	// Unique is a name under which one job of a bucket waits: while it does, Submit returns its
	// ticket, as a Duplicate. With Replace, the new job waits and the other one is cancelled.
	Unique  string
	Replace bool
	IP      string // the client's address, for policies that count by address
	// Wait is how long Submit waits for the ticket's Result, at most [admission.MaxWait]; 0: until
	// the job is stored.
	Wait time.Duration
	// Header holds further headers to store, such as Content-Type, Penstock-Method and
	// Penstock-Path (docs/guide.md). The fields above override it.
	Header http.Header
}

// Codec encodes payloads, to encrypt or compress them. Handlers and submitters see the plain ones;
// everything between, targets included, gets the encoded ones, with the Content-Encoding
// [job.Encoding]. A repeat of an encoded job with another Body is not noticed.
type Codec = job.Codec

// Ticket is the outcome of a submission.
type Ticket = admission.Outcome

// RefusedError says why a job was not accepted, and when to retry.
type RefusedError = admission.RefusedError

// Errors of Submit and Acquire, for errors.Is. The first six are the reasons of a [*RefusedError].
var (
	ErrQueueFull           = admission.ErrQueueFull           // of the bucket, or its policy
	ErrRateLimited         = admission.ErrRateLimited         // by a door policy
	ErrDeadlineUnreachable = admission.ErrDeadlineUnreachable // the job would start after it
	ErrTooLate             = admission.ErrTooLate             // the call would start after its wait
	ErrPaused              = admission.ErrPaused              // the call's policy or bucket
	ErrTargetDown          = admission.ErrTargetDown          // another call is the breaker's probe
	// ErrUnavailable: NATS or a store of limits does not answer. The job may have been stored; with
	// an IdempotencyKey it can be submitted again.
	ErrUnavailable   = admission.ErrUnavailable
	ErrUnknownPolicy = admission.ErrUnknownPolicy
)

// Submit puts a job into the queue of its policy. An accepted job is stored when Submit returns,
// even before Run, and reaches a final outcome. A refusal is a [*RefusedError]; other errors are
// those of [admission.Service.Submit].
func (p *Penstock) Submit(ctx context.Context, j Job) (Ticket, error) {
	key, err := job.EncodeKey(j.Key)
	if err != nil {
		return Ticket{}, admission.InvalidKey(err)
	}
	header, body, err := j.sealed(p.options.Codec)
	if err != nil {
		return Ticket{}, err
	}
	ticket, err := p.door.Service.Submit(ctx, admission.SubmitRequest{Policy: j.Policy, Key: key,
		Header: header, IP: admission.ClientIP(j.IP), Body: body, Wait: j.Wait,
		From: admission.Client{Operator: true}})
	if err == nil {
		err = cmp.Or(ticket.Err(), unseal(p.options.Codec, ticket.Result))
	}
	return ticket, err
}

// sealed returns the header and the encoded body to submit.
func (j Job) sealed(c Codec) (http.Header, []byte, error) { return c.Seal(j.header(), j.Body) }

// unseal decodes the reply of a job that has ended.
func unseal(c Codec, r *job.Result) (err error) {
	if r != nil && r.Reply != nil {
		if r.Reply.Body, err = c.Open(r.Reply.Header, r.Reply.Body); err != nil {
			err = fmt.Errorf("the reply of %s: %w", r.Job, err)
		}
	}
	return err
}

// header returns the job's header with the fields that are set.
func (j Job) header() http.Header {
	header := http.Header{}
	maps.Copy(header, j.Header)
	if j.Replace {
		j.Unique += "; replace"
	}
	for name, text := range map[string]string{job.HeaderIdempotencyKey: j.IdempotencyKey,
		job.HeaderUnique: j.Unique} {
		if text != "" {
			header.Set(name, text)
		}
	}
	for name, n := range map[string]int64{job.HeaderCost: j.Cost,
		job.HeaderPriority: int64(j.Priority), job.HeaderMaxAttempts: int64(j.MaxAttempts)} {
		if n != 0 {
			header.Set(name, strconv.FormatInt(n, 10))
		}
	}
	for name, n := range j.Costs {
		header.Set(job.CostHeader(name), strconv.FormatInt(n, 10))
	}
	for name, t := range map[string]time.Time{job.HeaderNotBefore: j.NotBefore,
		job.HeaderDeadline: j.Deadline} {
		if !t.IsZero() {
			header.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	for name, d := range map[string]time.Duration{job.HeaderTimeout: j.Timeout,
		job.HeaderRetention: j.Retention} {
		if d != 0 {
			header.Set(name, d.String())
		}
	}
	return header
}

// Request is a check by a door policy or a meter.
type Request struct {
	Policy, Key string // as in [Job]
	Cost        int64  // units to take; default 1
	IP          string // the client's address, for policies that count by address
}

// Check takes units of a limit. A refusal is not an error: it is not Allowed, and has a RetryAfter.
// Errors are those of [admission.Service.Check].
func (p *Penstock) Check(ctx context.Context, r Request) (admission.Checked, error) {
	request, err := r.encoded()
	if err != nil {
		return admission.Checked{}, err
	}
	return p.door.Service.Check(ctx, request)
}

// Peek is [Penstock.Check] without taking.
func (p *Penstock) Peek(ctx context.Context, r Request) (admission.Checked, error) {
	request, err := r.encoded()
	if err != nil {
		return admission.Checked{}, err
	}
	return p.door.Service.Peek(ctx, request)
}

// Refund returns unused units of a Check.
func (p *Penstock) Refund(ctx context.Context, r Request) error {
	request, err := r.encoded()
	if err != nil {
		return err
	}
	return p.door.Service.Refund(ctx, request)
}

func (r Request) encoded() (admission.CheckRequest, error) {
	key, err := job.EncodeKey(r.Key)
	if err != nil {
		return admission.CheckRequest{}, admission.InvalidKey(err)
	}
	return admission.CheckRequest{Policy: r.Policy, Key: key, Cost: cmp.Or(r.Cost, 1),
		IP: admission.ClientIP(r.IP)}, nil
}

// Call is a request for a start: see [Penstock.Acquire].
type Call = permits.Request

// Permit allows one call: see [Penstock.Acquire].
type Permit = permits.Permit

// Acquirer acquires permits, as [*Penstock], [*Client] and [*permits.Client] do.
type Acquirer = permits.Acquirer

// Transport is an [http.RoundTripper] whose requests wait for their start.
type Transport = permits.Transport

// Acquire waits until a call may begin, in the bucket in which the jobs of its policy and key wait.
// The caller makes the call at once, and then calls Settle, or Return if it has not begun. The
// policy must be a drained leaking bucket with a queue. A refusal is a [*RefusedError]; other
// errors are those of [permits.Client.Acquire], and [ErrUnknownPolicy].
func (p *Penstock) Acquire(ctx context.Context, c Call) (*Permit, error) {
	client, err := p.door.Callers(c.Policy)
	if err != nil {
		return nil, err
	}
	return client.Acquire(ctx, c)
}
