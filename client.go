package penstock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/admission/answer"
	"github.com/penstock-mq/penstock/internal/admission/permits"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
)

// Client submits jobs to other processes, over HTTP or NATS. Its methods behave like [Penstock]'s,
// or return [ErrUnavailable] if no admitter answers within the context's time or 30 s after the
// call's Wait. It is safe for concurrent use.
type Client struct {
	// Codec encodes jobs and decodes results. Set it before the first call.
	Codec Codec

	ask     answer.Asker
	permits func() (*permits.Client, error) // nil: over HTTP
}

// NewHTTPClient returns a client of the admitters at a URL such as https://penstock:8080, with a
// token of http.tokens, or empty. A nil hc means [http.DefaultClient].
func NewHTTPClient(server, token string, hc *http.Client) (*Client, error) {
	ask, err := answer.OverHTTP(server, token, hc)
	if err != nil {
		return nil, fmt.Errorf("penstock: %w", err)
	}
	return &Client{ask: ask}, nil
}

// NewNATSClient returns a client over NATS; an empty prefix means penstock. Admitters answer it, as
// do programs with [Options.ServeNATS].
func NewNATSClient(nc *nats.Conn, prefix string) (*Client, error) {
	names, err := jet.NewNames(prefix)
	if err == nil && nc == nil {
		err = errors.New("penstock: no connection to NATS")
	}
	if err != nil {
		return nil, err
	}
	return &Client{ask: answer.OverNATS(nc, names),
		permits: sync.OnceValues(func() (*permits.Client, error) {
			return permits.New(nc, names)
		})}, nil
}

// Acquire is [Penstock.Acquire]. Over NATS, an unknown policy is an [admission.ErrNoDrainer]. Over
// HTTP, the wait is at most [admission.MaxWait], and StartBy ignores the answer's time in transit.
func (c *Client) Acquire(ctx context.Context, of Call) (*Permit, error) {
	if c.permits != nil {
		client, err := c.permits()
		if err != nil {
			return nil, err
		}
		return client.Acquire(ctx, of)
	}
	return answer.Acquire(ctx, c.ask, of,
		Job{Cost: of.Cost, Costs: of.Costs, Priority: of.Priority}.header())
}

// Submit is [Penstock.Submit]. It does not send Job.IP.
func (c *Client) Submit(ctx context.Context, j Job) (Ticket, error) {
	if _, err := queue.EncodeKey(j.Key); err != nil {
		return Ticket{}, admit.InvalidKey(err)
	}
	header, body, err := j.sealed(c.Codec)
	if err != nil {
		return Ticket{}, err
	}
	wait := min(max(j.Wait, 0), admission.MaxWait)
	if wait > 0 {
		header.Set(admit.WaitHeader, wait.String())
	}
	body, err = c.ask(ctx, answer.Request{Endpoint: "submit", Policy: j.Policy, Key: j.Key,
		Wait: wait, Header: header, Body: body})
	if err != nil {
		return Ticket{}, err
	}
	ticket, err := answer.ReadSubmitted(body)
	if err != nil {
		return ticket, err
	}
	return ticket, unseal(c.Codec, ticket.Result)
}

// Cancel is [Penstock.Cancel].
func (c *Client) Cancel(ctx context.Context, id string) error {
	policy, seq, err := parseID(id)
	if err == nil {
		_, err = c.ask(ctx, answer.Request{Endpoint: "cancel", Policy: policy, Seq: seq})
	}
	return err
}

// Wait is [Penstock.Wait].
func (c *Client) Wait(ctx context.Context, id string) (Ended, error) {
	policy, seq, err := parseID(id)
	if err != nil {
		return Ended{}, err
	}
	return answer.UntilEnded(ctx, func() (any, error) {
		body, err := c.ask(ctx, answer.Request{Endpoint: "job", Policy: policy, Seq: seq})
		return json.RawMessage(body), err
	})
}

// Ended says how a job ended.
//
//	End    queue.End // queue.EndDone, EndDead, EndCancelled, EndPurged or EndReplayed
//	Reason string  // of a dead job
//	Error  string  // of its last attempt
type Ended = answer.Ended

// Cancel drops a job that has not started. Errors: [admission.ErrConflict] if it runs,
// [admission.ErrNotFound] if it has ended, and [admission.ErrNoDrainer], to be repeated, if its
// drainer has not received it yet.
func (p *Penstock) Cancel(ctx context.Context, id string) error {
	policy, seq, err := parseID(id)
	if err = cmp.Or(err, p.usable()); err == nil {
		_, err = p.door.Manage.Cancel(ctx, policy, seq)
	}
	return err
}

// Wait polls, at least every second, until a job has ended, and returns how. Without an
// IdempotencyKey or result_retention, a job that is done is an [admission.ErrNotFound]; with a key
// alone too, if a single NATS server has restarted: the ends of such jobs are in its memory. For
// the reply, and no polling, set [Job.Wait].
func (p *Penstock) Wait(ctx context.Context, id string) (Ended, error) {
	policy, seq, err := parseID(id)
	if err != nil {
		return Ended{}, err
	}
	return answer.UntilEnded(ctx, func() (any, error) {
		document, err := p.door.Manage.JobOrEnd(ctx, policy, seq)
		return document, cmp.Or(p.usable(), err)
	})
}

func parseID(id string) (policy string, seq uint64, err error) {
	policy, seq, ok := job.ParseID(id)
	if !ok {
		err = &admission.RequestError{Field: "job", Reason: "want an id such as stripe:42"}
	}
	return policy, seq, err
}
