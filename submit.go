package penstock

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/queue/job"
)

// Job is a job to be submitted.
type Job struct {
	// Policy says how the job is paced, Key which of its buckets the job waits in: a tenant, an
	// account, an endpoint. Keys are any UTF-8 up to [queue.MaxKeyBytes]; empty is a bucket, too.
	Policy, Key string
	// Body is what the handler or the target gets, at most [admission.MaxBody] bytes.
	Body []byte

	// IdempotencyKey makes a repeat of an accepted job, within the policy's duplicate window, one
	// job with the first. Without one, a job whose Submit failed and was repeated may run twice.
	IdempotencyKey string
	// Cost is how many slots of the rate the job takes; default 1.
	Cost int64
	// Costs are what the job takes of limits that count a cost of their own, by its name; those
	// that are not named take Cost.
	Costs map[string]int64
	// Priority puts the job before those of its bucket with a lower one: -9 to 9, default 0. Where
	// the policy has a priority_step, those that have waited for long go before it all the same.
	Priority int
	// NotBefore is when the job may start at the earliest; zero: at once.
	NotBefore time.Time
	// Deadline is when the job becomes a dead letter if it has not started; zero: after the
	// policy's max_age.
	Deadline time.Time
	// IP is the client's address, for policies that count by it.
	IP string
	// Wait is for how long Submit waits for the job's end, which then is the ticket's Told; at most
	// [admission.MaxWait]. 0: Submit returns when the job is stored.
	Wait time.Duration
	// Header holds what else is stored with a job: Content-Type, traceparent, and for an HTTP
	// target Penstock-Method, Penstock-Path and Penstock-Forward-<Name>; see docs/publish.md. The
	// fields above go before it.
	Header http.Header
}

// Ticket is what became of a submitted job: the verdict on it, its id, when it starts, or when to
// come back.
type Ticket = admission.Outcome

// Submit puts a job into the queue of its policy. A refusal is a ticket with the verdict
// [admission.Rejected] and the time to come back, and never an error. An accepted job is stored
// when Submit returns, whether Run is called or not, and comes to a final outcome. Errors are those
// of [admission.Service.Submit].
func (p *Penstock) Submit(ctx context.Context, j Job) (Ticket, error) {
	key, err := job.EncodeKey(j.Key)
	if err != nil {
		return Ticket{}, admission.InvalidKey(err)
	}
	return p.service.Submit(ctx, admission.SubmitRequest{Policy: j.Policy, Key: key,
		Header: j.header(), IP: admission.ClientIP(j.IP), Body: j.Body, Wait: j.Wait,
		From: admission.Client{Operator: true}})
}

// header returns the job's header with its fields in it; nil when there is none.
func (j Job) header() http.Header {
	var header http.Header
	set := func(name, value string) {
		if header == nil {
			header = http.Header{}
			maps.Copy(header, j.Header)
		}
		header.Set(name, value)
	}
	if j.IdempotencyKey != "" {
		set(job.HeaderIdempotencyKey, j.IdempotencyKey)
	}
	if j.Cost != 0 {
		set(job.HeaderCost, strconv.FormatInt(j.Cost, 10))
	}
	for name, n := range j.Costs {
		set(job.CostHeader(name), strconv.FormatInt(n, 10))
	}
	if j.Priority != 0 {
		set(job.HeaderPriority, strconv.Itoa(j.Priority))
	}
	if !j.NotBefore.IsZero() {
		set(job.HeaderNotBefore, j.NotBefore.UTC().Format(time.RFC3339Nano))
	}
	if !j.Deadline.IsZero() {
		set(job.HeaderDeadline, j.Deadline.UTC().Format(time.RFC3339Nano))
	}
	if header == nil {
		return j.Header
	}
	return header
}

// Request is a question to a policy that decides at the door, or to a meter.
type Request struct {
	// Policy says which limits count, and Key for whom; see [Job].
	Policy, Key string
	// Cost is how many units the request takes; default 1.
	Cost int64
	// IP is the client's address, for policies that count by it.
	IP string
}

// Check takes units of a limit, or says when to come back: a refusal is an answer that is not
// Allowed, with its RetryAfter, and never an error. Errors are those of [admission.Service.Check].
func (p *Penstock) Check(ctx context.Context, r Request) (admission.Checked, error) {
	request, err := r.encoded()
	if err != nil {
		return admission.Checked{}, err
	}
	return p.service.Check(ctx, request)
}

// Peek returns what [Penstock.Check] would answer, and takes nothing.
func (p *Penstock) Peek(ctx context.Context, r Request) (admission.Checked, error) {
	request, err := r.encoded()
	if err != nil {
		return admission.Checked{}, err
	}
	return p.service.Peek(ctx, request)
}

// Refund gives units back that a Check took and that were not used.
func (p *Penstock) Refund(ctx context.Context, r Request) error {
	request, err := r.encoded()
	if err != nil {
		return err
	}
	return p.service.Refund(ctx, request)
}

func (r Request) encoded() (admission.CheckRequest, error) {
	key, err := job.EncodeKey(r.Key)
	if err != nil {
		return admission.CheckRequest{}, admission.InvalidKey(err)
	}
	return admission.CheckRequest{Policy: r.Policy, Key: key, Cost: cmp.Or(r.Cost, 1),
		IP: admission.ClientIP(r.IP)}, nil
}
