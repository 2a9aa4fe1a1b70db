package outbound

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/admission/permits"
	"github.com/penstock-mq/penstock/internal/answers"
	"github.com/penstock-mq/penstock/internal/clienttls"
	"github.com/penstock-mq/penstock/internal/files"
	"github.com/penstock-mq/penstock/internal/oneshot"
	"github.com/penstock-mq/penstock/queue/job"
)

const (
	// leastHold exceeds the time until a settlement reaches the bucket.
	leastHold = 100 * time.Millisecond
)

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

type readCloser struct {
	io.Reader
	io.Closer
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

var errLeft = errors.New("the caller left before the upstream answered")

const notThrottled = time.Duration(-1)

// send sends the request, and settles its start at the end of the answer. It returns the pause that
// a throttling upstream requests.
func (c *call) send(out *http.Request, permit *permits.Permit) (_ *http.Response,
	pause time.Duration, err error) {

	var answered atomic.Bool
	exchange := &oneshot.Exchange{MaxDelay: permit.MaxDelay}
	ctx, cancel := context.WithCancelCause(out.Context())
	timer := time.AfterFunc(math.MaxInt64, func() {
		if !answered.Load() {
			cancel(silent)
		}
	})
	request := out.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(_ int, header textproto.MIMEHeader) error {
			c.modify(http.Header(header))
			return nil
		},

		GetConn: exchange.GetConn,
		GotConn: func(i httptrace.GotConnInfo) {
			exchange.GotConn(i)
			timer.Reset(c.route.Timeout)
		},
		WroteRequest: func(httptrace.WroteRequestInfo) { timer.Reset(c.route.Timeout) }}))
	if c.whole {
		request.Header.Del("Expect") // the caller has sent all
		oneshot.SetBody(request, c.body)
	} else {
		all := io.MultiReader(bytes.NewReader(c.body), out.Body)
		request.Body = readCloser{untimed{all, timer, c.route.Timeout}, out.Body}
	}
	response, err := c.route.transport.RoundTrip(request)
	if err == nil && !passable(request, response) {
		_ = response.Body.Close()
		err = fmt.Errorf("its status is %d", response.StatusCode)
	}
	var heard *permits.Heard
	if err == nil {
		if !answers.Gateways(response.StatusCode) {
			permit.Answered()
		}
		heard = permits.Hear(response, c.route.rules,
			permits.Listening{Hold: c.route.OnThrottle == Absorb, Decode: decoded})
	}
	answered.Store(true)
	timer.Stop()
	if err != nil {
		if err = oneshot.Cause(err); context.Cause(ctx) == silent {
			err = silent
		}
		result := permits.Result{Status: permits.Unreached, Err: err}
		_, unread := errors.AsType[*clienttls.FileError](err)
		left, unsent := out.Context().Err() != nil, unread || exchange.Unsent()
		untouched := oneshot.Leaving(err) || files.Short(err)
		switch c.trace(0, err); {
		case errors.Is(err, errBody):
			result.Status = permits.Failed
		case unsent && left, untouched && (unsent || permit.MaxDelay == 0):
			permit.Return() // before Settle, which then has no effect
		case left: // the caller may have been impatient
			result.Status, result.Err = permits.Failed, errLeft
		case untouched:
			result.Status = permits.Failed
		case !unsent:
			result.Status = permits.Unavailable
		}
		exchange.After(func() { permit.Settle(result) })
		return nil, notThrottled, err
	}
	result := permits.Ended(heard.Verdict, response.StatusCode)
	if result.Status == permits.Throttled {
		permit.Settle(result)
		c.trace(response.StatusCode, nil)
		c.called(OutcomeThrottled)
		if code := response.StatusCode; code >= 500 && code != http.StatusServiceUnavailable &&
			heard.Rule == "" {
			return response, notThrottled, nil // it may have done the work
		}
		return response, result.RetryAfter, nil
	}
	if result.RetryAfter > 0 {
		permit.Pause(result.RetryAfter)
		result.RetryAfter = 0
	}
	result.Used = c.route.used(response.Header)
	body := &settling{ReadCloser: response.Body, exchange: exchange, permit: permit, call: c,
		trace: c.trace, status: response.StatusCode, heard: heard, result: result}
	if !heard.Partly() {
		c.called(OutcomeAnswered)
	}
	if c.route.Tokens != "" || len(c.route.CostFromResponse) > 0 {
		body.meter = newMeter(c.route.Route, response.StatusCode, response.Header)
	}
	if result.Status == permits.Unavailable {
		body.result.Err = fmt.Errorf("the upstream answered %d", response.StatusCode)
	}
	response.Body = body
	return response, notThrottled, nil
}

// untimed is a caller's body, whose own time and errors do not count against the upstream.
type untimed struct {
	io.Reader
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

type settling struct {
	io.ReadCloser
	exchange *oneshot.Exchange
	permit   *permits.Permit
	call     *call
	heard    *permits.Heard
	meter    *meter
	result   permits.Result
	trace    func(status int, err error)
	status   int
	ended    sync.Once
}

func (s *settling) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if s.meter != nil {
		_, _ = s.meter.copy.Write(p[:n])
	}
	if err != nil {
		s.end(err == io.EOF)
	}
	return n, err
}

// Write is for upgraded connections.
func (s *settling) Write(p []byte) (int, error) {
	return s.ReadCloser.(io.Writer).Write(p)
}

func (s *settling) Close() error {
	defer s.end(false)
	return s.ReadCloser.Close()
}

func (s *settling) end(whole bool) {
	s.ended.Do(func() {
		if s.meter != nil {
			opened := s.status == http.StatusSwitchingProtocols // messages are complete
			if used := s.meter.end(whole || opened); len(used) > 0 {
				maps.Copy(used, s.result.Used)
				s.result.Used = used
			}
		}
		if s.heard.Partly() {
			late, outcome := permits.Ended(s.heard.End(), s.status), OutcomeAnswered
			if late.Status == permits.Throttled {
				s.result.Status, s.result.RetryAfter = late.Status, late.RetryAfter
				outcome = OutcomeThrottled
			}
			s.call.called(outcome)
		}
		if whole {
			s.permit.Settle(s.result)
		} else {
			s.exchange.After(func() { s.permit.Settle(s.result) })
		}
		s.trace(s.status, s.result.Err)
	})
}
