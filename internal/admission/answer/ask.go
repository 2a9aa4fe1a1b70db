package answer

import (
	"bytes"
	"cmp"
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
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/admission/permits"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// Request is a question to an admitter; see [Asker].
type Request struct {
	Endpoint, Policy string
	Wait             time.Duration // that the answer takes by the caller's wish
	Key              string        // of submit, acquire and settle
	Seq              uint64        // of the other endpoints
	Query            string
	Header           http.Header
	Body             []byte
}

// Asker sends a request and returns the body of a successful answer, or [admission.ErrUnavailable]
// if no admitter answers within the context's time or, beyond the request's wait, 30 s.
type Asker func(ctx context.Context, r Request) ([]byte, error)

// patient bounds the time in which a lost answer is awaited. It refuses headers that cannot be
// sent: the transports' errors look like an outage.
func patient(ask Asker) Asker {
	return func(ctx context.Context, r Request) ([]byte, error) {
		for name, values := range r.Header {
			if err := admit.CheckField(name, values); err != nil {
				return nil, err
			}
		}
		ctx, cancel := context.WithTimeout(ctx, r.Wait+patience)
		defer cancel()
		return ask(ctx, r)
	}
}

const patience = 30 * time.Second

// a job's reply as base64, and the fields around it
const mostAnswer = 2 * queue.MaxReply

var methods = map[string]string{"submit": http.MethodPost, "job": http.MethodGet,
	"cancel": http.MethodDelete, "acquire": http.MethodPost, "settle": http.MethodPut}

// OverHTTP asks over HTTP; a nil client means [http.DefaultClient].
func OverHTTP(server, token string, client *http.Client) (Asker, error) {
	base, err := url.Parse(server)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("server %q: want a URL such as https://penstock:8080", server)
	}
	client = cmp.Or(client, http.DefaultClient)
	prefix := strings.TrimSuffix(base.String(), "/") + "/v1/"
	return patient(func(ctx context.Context, r Request) ([]byte, error) {
		path := url.PathEscape(r.Policy) + "/" + url.PathEscape(r.Key)
		switch r.Endpoint {
		case "submit":
			path = "jobs/" + path
		case "acquire", "settle":
			path = "permits/" + path + "?" + r.Query
		default:
			path = "jobs/" + url.PathEscape(job.ID(r.Policy, r.Seq))
		}
		asked, err := http.NewRequestWithContext(ctx, methods[r.Endpoint], prefix+path,
			bytes.NewReader(r.Body))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", admission.ErrUnavailable, err)
		}
		maps.Copy(asked.Header, r.Header)
		if token != "" {
			asked.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := client.Do(asked)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", admission.ErrUnavailable, err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer))
		return read(response.StatusCode, response.Header.Get("Retry-After"), body, err)
	}), nil
}

// OverNATS asks an admitter that answers over NATS.
func OverNATS(nc *nats.Conn, names jet.Names) Asker {
	return patient(func(ctx context.Context, r Request) ([]byte, error) {
		if !policy.IsName(r.Policy) { // its subject could be another policy's
			return nil, admit.UnknownPolicy(r.Policy)
		}
		token := strconv.FormatUint(r.Seq, 10)
		if r.Endpoint == "submit" {
			key, err := queue.EncodeKey(r.Key)
			if err != nil {
				return nil, admit.InvalidKey(err)
			}
			token = string(key)
		}
		m := nats.NewMsg(names.Request(r.Endpoint, r.Policy, token))
		m.Header, m.Data = nats.Header(r.Header), r.Body
		a, err := nc.RequestMsgWithContext(ctx, m)
		switch {
		case errors.Is(err, nats.ErrMaxPayload):
			return nil, admit.UnfitMessage()
		case err != nil:
			return nil, fmt.Errorf("%w: %w", admission.ErrUnavailable, err)
		}
		status, err := strconv.Atoi(a.Header.Get(job.HeaderStatus))
		return read(status, a.Header.Get("Retry-After"), a.Data, err)
	})
}

func read(status int, retryAfter string, body []byte, err error) ([]byte, error) {
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", admission.ErrUnavailable, err)
	case status >= http.StatusMultipleChoices:
		return nil, ReadError(status, retryAfter, body)
	}
	return body, nil
}

// Ended tells how a job ended.
type Ended struct {
	End queue.End `json:"state"`
	// Reason and Error explain a dead job.
	Reason string `json:"reason"`
	Error  string `json:"last_error"`
}

const leastPause, mostPause = 50 * time.Millisecond, time.Second

// UntilEnded calls look, which returns a job's document, until the job has ended.
func UntilEnded(ctx context.Context, look func() (any, error)) (Ended, error) {
	for {
		var state struct {
			Ended
			ETAMS int64 `json:"eta_ms"`
		}
		document, err := look()
		if err == nil {
			var body []byte
			if body, err = json.Marshal(document); err == nil {
				err = json.Unmarshal(body, &state)
			}
		}
		if err != nil && (!errors.Is(err, admission.ErrUnavailable) || ctx.Err() != nil ||
			errors.Is(err, nats.ErrConnectionClosed)) {
			return Ended{}, err
		}
		switch state.End {
		case queue.EndDone, queue.EndDead, queue.EndCancelled, queue.EndPurged, queue.EndReplayed:
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

// The costs and the priority are in the header.
func Acquire(ctx context.Context, ask Asker, of permits.Request, header http.Header) (
	*permits.Permit, error) {

	wait := cmp.Or(of.Wait, permits.DefaultWait)
	if by, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(by))
	}
	const ms = time.Millisecond
	wait = min(max(wait, ms), admission.MaxWait)
	at := Request{Endpoint: "acquire", Policy: of.Policy, Key: of.Key, Wait: wait,
		Query: "wait=" + wait.String(), Header: header}
	body, err := ask(ctx, at)
	if err != nil {
		return nil, cmp.Or(ctx.Err(), err)
	}
	var given api.Permit
	if err := json.Unmarshal(body, &given); err != nil {
		return nil, fmt.Errorf("%w: %w", admission.ErrUnavailable, err)
	}
	at.Endpoint, at.Query, at.Wait = "settle", "permit="+url.QueryEscape(given.Permit), 0
	tell := func(op string, how job.Settlement) error {
		r := at
		body, err := json.Marshal(api.Settlement{Status: cmp.Or(how.Status, op), Error: how.Error,
			Answer: how.Answer, RetryAfterMS: how.RetryAfterMS, Used: how.Used})
		if err == nil {
			r.Body = body
			_, err = ask(context.WithoutCancel(ctx), r)
		}
		return err
	}
	p := permits.Lent(given.Permit, time.Now().Add(time.Duration(given.StartWithinMS)*ms),
		time.Duration(given.LeaseMS)*ms, tell)
	p.MaxDelay = time.Duration(given.MaxDelayMS) * ms
	return p, nil
}
