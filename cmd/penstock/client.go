package main

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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/cmd/penstock/internal/cli"
	"github.com/penstock-mq/penstock/internal/base/buildinfo"
)

type client struct {
	server, token string
	timeout       time.Duration
	http          *http.Client
}

// problem is an error response (RFC 9457).
type problem struct {
	api.Rejected
	body []byte
}

func (p *problem) Error() string {
	if len(p.Problems) > 1 {
		lines := make([]string, len(p.Problems))
		for i, one := range p.Problems {
			lines[i] = strings.TrimPrefix(one.Field+": "+one.Reason, ": ")
		}
		return strings.Join(lines, "\n")
	}
	said := cmp.Or(p.Detail, p.Title, http.StatusText(p.Status))
	if p.Status >= 500 && p.Reason != "" {
		said += " (" + p.Reason + ")"
	}
	if p.Status == http.StatusUnauthorized {
		said += ": set PENSTOCK_TOKEN, --token-file or --cert"
	}
	return fmt.Sprintf("%s [%d]", said, p.Status)
}

func (p *problem) ExitStatus() int { return statusOf(p.Status) }

// statusOf is the exit status of an HTTP status.
func statusOf(code int) int {
	switch code {
	case http.StatusTooManyRequests, http.StatusInsufficientStorage:
		return cli.Refused
	case http.StatusNotFound:
		return cli.NotFound
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusMisdirectedRequest:
		return cli.Forbidden
	case http.StatusConflict, http.StatusPreconditionFailed:
		return cli.Conflict
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
		http.StatusRequestTimeout:
		return cli.Unavailable
	}
	if code >= 400 && code < 500 {
		return cli.Usage
	}
	return cli.Failed
}

// is reports whether an error is a problem with one of these exit statuses.
func is(err error, statuses ...int) bool {
	p, ok := errors.AsType[*problem](err)
	return ok && slices.Contains(statuses, p.ExitStatus())
}

// noAnswer is the error when no admitter answered.
type noAnswer struct {
	server  string
	timeout time.Duration
	err     error
}

func (n *noAnswer) Error() string {
	err := n.err
	if n.timeout > 0 && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("no answer from %s within %v", n.server,
			n.timeout.Round(time.Millisecond))
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return fmt.Sprintf("no answer from %s: %v", n.server, err)
}

func (n *noAnswer) Unwrap() error { return n.err }

func (*noAnswer) ExitStatus() int { return cli.Unavailable }

// largeBody is asked for first (Expect: 100-continue).
const largeBody = 512 << 10

type request struct {
	method string
	path   string
	body   []byte
	header http.Header
}

// send returns a response with a status below 300; others are problems.
func (c *client) send(ctx context.Context, q request) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, q.method, c.server+q.path, bytes.NewReader(q.body))
	if err != nil {
		return nil, err
	}
	maps.Copy(r.Header, q.header)
	r.Header.Set("User-Agent", "penstock/"+buildinfo.Version())
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if len(q.body) > largeBody {
		r.Header.Set("Expect", "100-continue")
	}
	response, err := c.http.Do(r)
	if err != nil {
		if why := context.Cause(ctx); errors.Is(why, context.Canceled) {
			return nil, why
		}
		return nil, &noAnswer{c.server, c.timeout, err}
	}
	if response.StatusCode < 300 {
		return response, nil
	}
	defer response.Body.Close()
	return nil, readProblem(response)
}

const mostOfAProblem = 1 << 20

func readProblem(response *http.Response) error {
	p := &problem{}
	body, err := io.ReadAll(io.LimitReader(response.Body, mostOfAProblem))
	if err != nil || json.Unmarshal(body, p) != nil {
		*p = problem{}
		p.Detail = "the server is not an admitter; check --server"
	}
	if p.Status, p.body = response.StatusCode, body; p.RetryAfterMS == 0 {
		seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
		if err == nil && seconds > 0 {
			p.RetryAfterMS = int64(seconds) * 1000
		}
	}
	return p
}

// ask repeats a GET that is answered with 503 and a Retry-After.
func (c *client) ask(ctx context.Context, q request) (answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	for {
		answer, err = c.once(ctx, q)
		p, no := errors.AsType[*problem](err)
		if !no || q.method != "" && q.method != http.MethodGet ||
			p.Status != http.StatusServiceUnavailable || p.RetryAfterMS <= 0 {
			return answer, err
		}
		pause := milliseconds(p.RetryAfterMS)
		if end, _ := ctx.Deadline(); time.Until(end) <= pause {
			return nil, p
		}
		if !wait(ctx, pause) {
			return nil, ctx.Err()
		}
	}
}

func (c *client) once(ctx context.Context, q request) ([]byte, error) {
	response, err := c.send(ctx, q)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return nil, &noAnswer{c.server, c.timeout, err}
	case response.StatusCode == http.StatusNoContent:
		return []byte("{}"), nil
	case len(answer) == 0:
		return nil, fmt.Errorf("%w (it is empty)", errForeign)
	}
	return answer, nil
}

// get decodes the answer to a GET.
func (c *client) get(ctx context.Context, path string, into any) (answer []byte, err error) {
	return c.askFor(ctx, request{path: path}, into)
}

func (c *client) askFor(ctx context.Context, q request, into any) (answer []byte, err error) {
	if answer, err = c.ask(ctx, q); err == nil {
		err = read(answer, into)
	}
	return answer, err
}

var errForeign = errors.New("the answer is not an admitter's")

func read(answer []byte, into any) error {
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%w: %w", errForeign, err)
	}
	return nil
}

// path escapes the segments of a path.
func path(segments ...string) string {
	var b strings.Builder
	b.WriteString("/v1")
	for _, s := range segments {
		b.WriteString("/" + url.PathEscape(s))
	}
	return b.String()
}

func milliseconds(ms int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(ms, most)) * time.Millisecond
}
