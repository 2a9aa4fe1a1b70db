// Package natstarget runs jobs as NATS requests to the subject of the policy's target, a NATS micro
// service or any other responder. A micro service's error (Nats-Service-Error,
// Nats-Service-Error-Code) means the same as that status over HTTP; any other reply means done; see
// docs/guide.md, "Targets".
//
// A reply may also be JetStream's, to a subject that a stream captures. Policies can therefore be
// chained: with the subject penstock.jobs.<policy>.<key> a job ends when it is accepted as a job of
// that bucket, with its forwarded headers. While that is full, the bucket of the job pauses for a
// second, and no attempt counts. A message that is too large becomes a dead letter; any other
// refusal is a failed attempt. All attempts of a job and of its replay have one Nats-Msg-Id, and
// are stored once within the duplicate window.
package natstarget

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/penstock-mq/penstock/internal/base/answers"
	"github.com/penstock-mq/penstock/internal/base/redact"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
)

const (
	// absent is the pause of a bucket without a listener, or while the next bucket is full.
	absent = time.Second
	// mostDetail bounds the part of a payload that an error quotes.
	mostDetail = 256
)

// New returns a function for [workers.Options.Target]: the handlers of policies with a NATS target.
// A subject under the installation's prefix is an error, except the subjects of jobs.
func New(nc *nats.Conn, prefix string) func(inforce.Entry) (workers.Handler, error) {
	return func(entry inforce.Entry) (workers.Handler, error) {
		p := entry.Policy
		if p.Target == nil || p.Target.NATS == nil {
			return nil, nil
		}
		if err := policy.Invalid(p.CheckPrefix(prefix)); err != nil {
			return nil, fmt.Errorf("target of policy %s: %w", p.Name, err)
		}
		t := &target{nc: nc, policy: p.Target, subject: p.Target.NATS.Subject}
		return t.handle, nil
	}
}

type target struct {
	nc      *nats.Conn
	policy  *policy.Target
	subject string
}

func (t *target) handle(ctx context.Context, j workers.Job) error {
	if err := job.CheckTarget(t.policy, j.Header); err != nil {
		j.Unsent()
		return workers.Permanent(err)
	}
	reply, err := t.nc.RequestMsgWithContext(ctx, t.request(j))
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		j.Unsent()
		return workers.RetryAfter(absent, fmt.Errorf("nobody listens on %s", t.subject))
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadSubject):
		j.Unsent()
		return workers.Permanent(fmt.Errorf("request %s: %w", t.subject, err))
	case err != nil:
		return workers.Unavailable(fmt.Errorf("request %s: %w", t.subject, err))
	}
	j.Answered() // a message cannot be recalled without one: servers, and a reconnection, hold it
	for cost, used := range job.ReadUsed(reply.Header) {
		j.Settle(cost, used)
	}
	return judge(reply, redact.Values(job.Forwarded(j.Header))...)
}

// request makes a job's message. Services ignore method and path.
func (t *target) request(j workers.Job) *nats.Msg {
	m := nats.NewMsg(t.subject)
	m.Data = j.Body
	for name, values := range j.Header {
		if job.BelongsToBody(name) {
			m.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	maps.Copy(m.Header, job.Forwarded(j.Header))
	m.Header.Set(job.HeaderJob, j.ID)
	m.Header.Set(job.HeaderPolicy, j.Policy)
	m.Header.Set(job.HeaderKey, string(j.Key))
	m.Header.Set(job.HeaderAttempt, strconv.Itoa(j.Attempt))
	if tags := j.Tags(); tags != nil {
		m.Header[job.HeaderTag] = tags
	}
	m.Header.Set("Idempotency-Key", j.IdempotencyKey)
	m.Header.Set(nats.MsgIdHdr, jet.ChainedID(j.Policy, j.Key, j.IdempotencyKey))
	return m
}

// judge returns an attempt's result, without hidden texts; see docs/guide.md, "Targets".
func judge(reply *nats.Msg, hidden ...string) error {
	if again := workers.ReadAgain(reply.Header, time.Now()); again != nil {
		return again
	}
	text := job.HeaderValue(reply.Header, micro.ErrorHeader)
	code := strings.TrimSpace(job.HeaderValue(reply.Header, micro.ErrorCodeHeader))
	if text == "" && code == "" {
		return judgeStored(reply.Data)
	}
	// Hide before truncation, which could leave parts.
	text, data := redact.Text(text, hidden), redact.Text(string(reply.Data), hidden)
	answer := fmt.Errorf("service answered %s", detail(code, text, data))
	status, err := strconv.Atoi(code)
	if err != nil {
		return answer
	}
	wait := http.Header{"Retry-After": {job.HeaderValue(reply.Header, "Retry-After")}}
	means := answers.Set{Silent: true}.Judge(status, wait, nil, time.Now())
	switch {
	case status < 400 || status >= 600:
	case means.Means == answers.Throttled && means.Doubtful:
		return workers.Doubtful(workers.RetryAfter(means.Wait, answer))
	case means.Means == answers.Throttled:
		return workers.RetryAfter(means.Wait, answer)
	case means.Means == answers.Permanent:
		return workers.Permanent(answer)
	case status >= http.StatusInternalServerError:
		return workers.Unavailable(answer)
	}
	return answer
}

// judgeStored returns the result of a reply that may come from a stream.
func judgeStored(reply []byte) error {
	refusal := jet.PublishRefusal(reply)
	switch {
	case errors.Is(refusal, jet.ErrFull), errors.Is(refusal, jet.ErrStreamFull),
		errors.Is(refusal, jet.ErrStorage):
		return workers.RetryAfter(absent, refusal)
	case errors.Is(refusal, jet.ErrTooLarge):
		return workers.Permanent(refusal)
	}
	return refusal
}

// detail joins a service's texts in one line.
func detail(parts ...string) string {
	var words []string
	for _, part := range parts {
		part = strings.ToValidUTF8(part[:min(len(part), mostDetail)], "�")
		words = append(words, strings.Fields(part)...)
	}
	return strings.Join(words, " ")
}
