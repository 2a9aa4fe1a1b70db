package outbound

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/internal/admission/permits"
	"github.com/penstock-mq/penstock/internal/base/answers"
	"github.com/penstock-mq/penstock/internal/base/oneshot"
	"github.com/penstock-mq/penstock/internal/queue/job"
)

// leastHold exceeds the time until a settlement reaches the bucket.
const leastHold = 100 * time.Millisecond

// RoundTrip implements [http.RoundTripper]. It sends the request once per start, and starts again
// if a throttle is absorbed or, once, if the upstream ends its connection.
func (c *call) RoundTrip(out *http.Request) (*http.Response, error) {
	permit, err := c.acquire(out)
	if err != nil {
		return nil, err
	}
	for left := false; ; {
		response, pause, err := c.send(out, permit)
		if !left && c.whole && oneshot.Leaving(err) {
			left = true
			if permit, err = c.acquire(out); err == nil {
				continue
			}
		}
		if err != nil || pause < 0 || c.route.OnThrottle != Absorb || !c.whole ||
			pause > c.wait-c.waited {
			return response, err
		}
		body := response.Body
		end := time.AfterFunc(c.wait-c.waited, func() { _ = body.Close() })
		permits.Peek(response)
		end.Stop()
		c.hold(out.Context(), pause)
		c.request.Priority = job.MaxPriority
		if permit, err = c.acquire(out); err != nil {
			return response, nil
		}
		_ = response.Body.Close()
	}
}

// hold waits until a pause has ended and reached the bucket.
func (c *call) hold(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(max(pause, leastHold))
	defer timer.Stop()
	began := time.Now()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-c.stopping.Done():
	}
	c.waited += time.Since(began)
}

func (c *call) acquire(out *http.Request) (permit *permits.Permit, err error) {
	ctx, cancel := context.WithCancel(out.Context())
	defer cancel()
	since := time.Now()
	defer func() {
		c.trace = c.options.Trace(c.route.Policy, c.request.Key, since, c.in.Header,
			out.Header, err)
	}()
	defer context.AfterFunc(c.stopping, cancel)()
	for began := since; ; permit.Return() { // if it has expired
		request := c.request
		request.Wait = max(c.wait-c.waited, time.Millisecond)
		permit, err = c.options.Acquire(ctx, request)
		c.waited += time.Since(began)
		if err != nil && c.stopping.Err() != nil && c.in.Context().Err() == nil {
			err = stopping
		}
		if began = time.Now(); err != nil || began.Before(permit.StartBy) {
			return permit, err
		}
	}
}

var silent = &refusal{http.StatusGatewayTimeout, codeUpstream,
	"the upstream did not answer within the route's timeout", 0, ""}

const notThrottled = time.Duration(-1)

// send sends the request, and settles its start at the end of the answer. It returns the pause that
// a throttling upstream requests.
func (c *call) send(out *http.Request, permit *permits.Permit) (_ *http.Response,
	pause time.Duration, err error) {

	var answered atomic.Bool
	ctx, cancel := context.WithCancelCause(out.Context())
	timer := time.AfterFunc(math.MaxInt64, func() {
		if !answered.Load() {
			cancel(silent)
		}
	})
	wait := func() { timer.Reset(c.route.Timeout) }
	request := out.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(_ int, header textproto.MIMEHeader) error {
			c.modify(http.Header(header))
			return nil
		},
		GotConn:      func(httptrace.GotConnInfo) { wait() },
		WroteRequest: func(httptrace.WroteRequestInfo) { wait() }}))
	if c.whole {
		request.Header.Del("Expect") // the caller has sent all
		oneshot.SetBody(request, c.body)
	} else {
		request.Body = permits.Upload{ReadCloser: untimed{
			io.MultiReader(bytes.NewReader(c.body), out.Body), out.Body, timer, c.route.Timeout}}
	}
	up := &upstream{route: c.route}
	pause = notThrottled
	trace := c.trace
	response, err := permits.Sender{Base: up, Rules: c.route.rules,
		Hold: c.route.OnThrottle == Absorb, Decode: decoded, Used: up.used,
		Ended: func(a *http.Response, v answers.Verdict, r permits.Result) {
			if a == nil {
				trace(0, r.Err)
				return
			}
			trace(a.StatusCode, r.Err)
			if r.Status != permits.Throttled {
				c.called(OutcomeAnswered)
				return
			}
			c.called(OutcomeThrottled)
			if a.StatusCode < 500 || a.StatusCode == http.StatusServiceUnavailable || v.Rule != "" {
				pause = r.RetryAfter // otherwise it may have done the work
			}
		}}.Send(out.Context(), request, permit)
	answered.Store(true)
	timer.Stop()
	return response, pause, err
}

// untimed is a caller's body, whose own time does not count against the upstream.
type untimed struct {
	io.Reader
	io.Closer
	timer   *time.Timer
	timeout time.Duration
}

func (u untimed) Read(p []byte) (int, error) {
	u.timer.Stop()
	defer u.timer.Reset(u.timeout)
	n, err := u.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = errBody
	}
	return n, err
}

// passable is false for answers at which ReverseProxy panics, or leaves the body open.
func passable(request *http.Request, response *http.Response) bool {
	if response.StatusCode == http.StatusSwitchingProtocols {
		_, open := response.Body.(io.Writer)
		return open && strings.EqualFold(request.Header.Get("Upgrade"),
			response.Header.Get("Upgrade"))
	}
	return response.StatusCode >= 100 && response.StatusCode <= 999
}

// upstream sends a request to a route's upstream, and reads the actual costs in its answer.
type upstream struct {
	*route
	meter *meter // nil: no cost is in the body
}

func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	a, err := u.transport.RoundTrip(r)
	if err != nil {
		if context.Cause(r.Context()) == silent {
			err = silent
		}
		return nil, err
	}
	if !passable(r, a) {
		_ = a.Body.Close()
		return nil, fmt.Errorf("its status is %d", a.StatusCode)
	}
	if (u.Tokens != "" || len(u.CostFromResponse) > 0) && a.Body != http.NoBody {
		u.meter = newMeter(u.Route, a)
		a.Body = u.meter
	}
	return a, nil
}

func (u *upstream) used(a *http.Response) map[string]int64 {
	used := u.route.used(a.Header)
	if u.meter != nil {
		for cost, n := range u.meter.end() {
			if _, known := used[cost]; !known {
				used[cost] = n
			}
		}
	}
	return used
}
