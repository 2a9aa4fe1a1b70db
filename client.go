package penstock

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/answer"
	"github.com/penstock-mq/penstock/admission/permits"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

// Client submits jobs to an installation in other processes, whose admitters it asks over HTTP or
// NATS. Its methods return what those of [Penstock] do; an admitter that does not answer is an
// [ErrUnavailable]. Each call takes as long as its context allows. A Client is safe for concurrent
// use.
type Client struct {
	send func(ctx context.Context, r request) (status int, retryAfter string, body []byte,
		err error)
	permits func() (*permits.Client, error) // nil: over HTTP
}

// request is a request to an admitter.
type request struct {
	endpoint, policy string
	key              string // of submit
	seq              uint64 // of the other endpoints
	header           http.Header
	body             []byte
}

// mostAnswer bounds the bytes of an answer: a job's reply, as base64, and what is said about it.
const mostAnswer = 2 * job.MaxReply

var methods = map[string]string{"job": http.MethodGet, "cancel": http.MethodDelete}

// NewHTTPClient returns a client of the admitters at a URL such as https://penstock:8080. The
// token is the one of a client in http.tokens, or empty. A nil hc means [http.DefaultClient].
func NewHTTPClient(server, token string, hc *http.Client) (*Client, error) {
	base, err := url.Parse(server)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("penstock: server %q: want a URL such as https://penstock:8080",
			server)
	}
	if hc == nil {
		hc = http.DefaultClient
	}
	prefix := strings.TrimSuffix(base.String(), "/") + "/v1/jobs/"
	send := func(ctx context.Context, r request) (int, string, []byte, error) {
		method, path := http.MethodPost, url.PathEscape(r.policy)+"/"+url.PathEscape(r.key)
		if r.endpoint != "submit" {
			path = url.PathEscape(job.ID(r.policy, r.seq))
			method = methods[r.endpoint]
		}
		asked, err := http.NewRequestWithContext(ctx, method, prefix+path, bytes.NewReader(r.body))
		if err != nil {
			return 0, "", nil, err
		}
		maps.Copy(asked.Header, r.header)
		if token != "" {
			asked.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := hc.Do(asked)
		if err != nil {
			return 0, "", nil, err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer))
		return response.StatusCode, response.Header.Get("Retry-After"), body, err
	}
	return &Client{send: send}, nil
}

// NewNATSClient returns a client that asks over a connection to NATS. The prefix is the one of the
// installation; empty: penstock.
func NewNATSClient(nc *nats.Conn, prefix string) (*Client, error) {
	if prefix == "" {
		prefix = queue.DefaultPrefix
	}
	names, err := queue.NewNames(prefix)
	if err != nil {
		return nil, err
	}
	send := func(ctx context.Context, r request) (int, string, []byte, error) {
		token := strconv.FormatUint(r.seq, 10)
		if r.endpoint == "submit" {
			key, err := job.EncodeKey(r.key)
			if err != nil {
				return 0, "", nil, err
			}
			token = string(key)
		}
		m := nats.NewMsg(names.Request(r.endpoint, r.policy, token))
		m.Header, m.Data = nats.Header(r.header), r.body
		a, err := nc.RequestMsgWithContext(ctx, m)
		if err != nil {
			return 0, "", nil, err
		}
		status, err := strconv.Atoi(a.Header.Get(job.HeaderStatus))
		return status, a.Header.Get("Retry-After"), a.Data, err
	}
	return &Client{send, sync.OnceValues(func() (*permits.Client, error) {
		return permits.New(nc, names)
	})}, nil
}

// ask sends a request and returns the body of an answer of success.
func (c *Client) ask(ctx context.Context, r request) ([]byte, error) {
	status, retryAfter, body, err := c.send(ctx, r)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	case status >= http.StatusMultipleChoices:
		return nil, answer.ReadError(status, retryAfter, body)
	}
	return body, nil
}

// Acquire is [Penstock.Acquire], over NATS only. A policy that does not exist is an
// [admission.ErrNoDrainer].
func (c *Client) Acquire(ctx context.Context, of Call) (*Permit, error) {
	if c.permits == nil {
		return nil, errors.New("penstock: a client over HTTP acquires no permits: see /v1/permits")
	}
	client, err := c.permits()
	if err != nil {
		return nil, err
	}
	return client.Acquire(ctx, of)
}

// Submit is [Penstock.Submit]. Job.IP is not sent: an admitter knows its clients' addresses.
func (c *Client) Submit(ctx context.Context, j Job) (Ticket, error) {
	if _, err := job.EncodeKey(j.Key); err != nil {
		return Ticket{}, admission.InvalidKey(err)
	}
	header := maps.Clone(j.header())
	if j.Wait > 0 {
		if header == nil {
			header = http.Header{}
		}
		header.Set(admission.WaitHeader, j.Wait.String())
	}
	body, err := c.ask(ctx, request{endpoint: "submit", policy: j.Policy, key: j.Key,
		header: header, body: j.Body})
	if err != nil {
		return Ticket{}, err
	}
	return answer.ReadSubmitted(body)
}

// Cancel is [Penstock.Cancel].
func (c *Client) Cancel(ctx context.Context, id string) error {
	policy, seq, err := parseID(id)
	if err == nil {
		_, err = c.ask(ctx, request{endpoint: "cancel", policy: policy, seq: seq})
	}
	return err
}

// Wait is [Penstock.Wait].
func (c *Client) Wait(ctx context.Context, id string) (Ended, error) {
	return waitFor(ctx, id, func(policy string, seq uint64) (any, error) {
		body, err := c.ask(ctx, request{endpoint: "job", policy: policy, seq: seq})
		return json.RawMessage(body), err
	})
}

// Ended is how a job ended.
type Ended struct {
	// End is one of the ends of package job, such as [job.EndDone] and [job.EndDead].
	End job.End `json:"state"`
	// Reason and Error are why a job is dead.
	Reason string `json:"reason"`
	Error  string `json:"last_error"`
}

// Cancel drops a job that has not started. A job that runs is an [admission.ErrConflict], one that
// has ended an [admission.ErrNotFound]; if its drainer has not received it yet, as right after
// Submit, the error is an [admission.ErrNoDrainer], and Cancel may be repeated.
func (p *Penstock) Cancel(ctx context.Context, id string) error {
	policy, seq, err := parseID(id)
	if err == nil {
		_, err = p.manage.Cancel(ctx, policy, seq)
	}
	return err
}

// Wait waits until a job has ended, and returns how. It needs a job with an IdempotencyKey or a
// policy with a history (result_retention), or else a job that ends as a dead letter: how others
// ended is not recorded, and an [admission.ErrNotFound]. Wait polls the job, at most once a second;
// for the end at once, and the reply, set [Job.Wait].
func (p *Penstock) Wait(ctx context.Context, id string) (Ended, error) {
	return waitFor(ctx, id, func(policy string, seq uint64) (any, error) {
		return p.jobOrEnd(ctx, policy, seq)
	})
}

const (
	// Between two looks at a job that is waited for lies the time until it starts, within these.
	leastPause, mostPause = 50 * time.Millisecond, time.Second
)

// waitFor looks at a job until it has ended. look returns its document.
func waitFor(ctx context.Context, id string,
	look func(policy string, seq uint64) (any, error)) (Ended, error) {
	policy, seq, err := parseID(id)
	if err != nil {
		return Ended{}, err
	}
	for {
		var state struct {
			Ended
			ETAMS int64 `json:"eta_ms"`
		}
		document, err := look(policy, seq)
		if err == nil {
			var body []byte
			if body, err = json.Marshal(document); err == nil {
				err = json.Unmarshal(body, &state)
			}
		}
		if err != nil && (!errors.Is(err, ErrUnavailable) || ctx.Err() != nil) {
			return Ended{}, err
		}
		switch state.End {
		case job.EndDone, job.EndDead, job.EndCancelled, job.EndPurged, job.EndReplayed:
			return state.Ended, nil
		}
		pause := time.Duration(state.ETAMS) * time.Millisecond
		select {
		case <-time.After(min(max(pause, leastPause), mostPause)):
		case <-ctx.Done():
			return Ended{}, ctx.Err()
		}
	}
}

func parseID(id string) (policy string, seq uint64, err error) {
	policy, seq, ok := job.ParseID(id)
	if !ok {
		err = &admission.RequestError{Field: "job", Reason: "want an id such as stripe:42"}
	}
	return policy, seq, err
}
