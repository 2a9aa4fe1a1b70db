package permits

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/internal/answers"
	"github.com/penstock-mq/penstock/internal/files"
	"github.com/penstock-mq/penstock/internal/oneshot"
	"github.com/penstock-mq/penstock/policy"
)

// Acquirer acquires permits, as [*Client] does.
type Acquirer interface {
	Acquire(ctx context.Context, r Request) (*Permit, error)
}

// Transport is an [http.RoundTripper] whose requests begin when their policy lets them. An answer's
// status and rate-limit headers may pause the bucket, for all processes. A refused request fails
// with an [*admission.RefusedError]. Requests are sent once; a retry of the client is another call.
type Transport struct {
	Permits Acquirer
	Policy  string // whose pace the requests keep
	// Call returns the key, costs, priority and wait of a request; nil: the key is its host.
	Call func(*http.Request) Request
	// Used returns the actual costs of an answered request, by name; nil: as estimated.
	Used func(*http.Response) map[string]int64
	// Like names the API whose answers are read as a well-known one's; empty: by a request's host.
	// Answers say what answers mean, before its rules.
	Like    string
	Answers []policy.AnswerRule
	// Base sends the requests. nil: a clone of [http.DefaultTransport], which knows when the target
	// of an aborted HTTP/1.1 request has closed the connection. Other connections do not tell, so
	// their calls count against the concurrency for half a second more.
	Base http.RoundTripper
}

// RoundTrip sends the request when its turn comes. Closing the answer's body ends the call.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	c := Request{Key: r.URL.Host}
	if t.Call != nil {
		c = t.Call(r)
	}
	c.Policy = t.Policy
	rules, err := t.rules(r.URL.Hostname())
	var permit *Permit
	if err == nil {
		permit, err = t.acquire(r.Context(), c)
	}
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	base := t.Base
	if base == nil {
		base = usual()
	}
	exchange := oneshot.Exchange{MaxDelay: permit.MaxDelay}
	once := r.Clone(httptrace.WithClientTrace(r.Context(), // net/http would resend it
		&httptrace.ClientTrace{GetConn: exchange.GetConn, GotConn: exchange.GotConn}))
	switch once.GetBody = nil; {
	case r.Body == nil || r.Body == http.NoBody:
		oneshot.SetBody(once, nil)
	case r.GetBody == nil: // reads may fail
		once.Body = upload{r.Body}
	}
	a, err := base.RoundTrip(once)
	if err != nil {
		err = oneshot.Cause(err)
		result := Result{Status: Unavailable, Err: err}
		_, own := errors.AsType[*uploadError](err)
		left, unsent := own || r.Context().Err() != nil, exchange.Unsent()
		untouched := oneshot.Leaving(err) || files.Short(err)
		switch {
		case unsent && left, untouched && (unsent || permit.MaxDelay == 0):
			permit.Return() // before Settle, which then has no effect
		case left, untouched:
			result.Status = Failed
		case unsent:
			result.Status = Unreached
		}
		exchange.After(func() { permit.Settle(result) })
		return nil, err
	}
	if !answers.Gateways(a.StatusCode) {
		permit.Answered()
	}
	heard := Hear(a, rules, Listening{})
	result := Ended(heard.Verdict, a.StatusCode)
	if result.Status != Throttled && result.RetryAfter > 0 {
		permit.Pause(result.RetryAfter)
		result.RetryAfter = 0
	}
	connection, upgraded := a.Body.(io.Writer)
	read := &body{ReadCloser: a.Body}
	read.end = sync.OnceFunc(func() {
		if late := Ended(heard.End(), a.StatusCode); late.Status != result.Status {
			result = late
		}
		if t.Used != nil {
			result.Used = t.Used(a)
		}
		if read.whole.Load() || result.Status == Throttled {
			permit.Settle(result)
		} else {
			exchange.After(func() { permit.Settle(result) })
		}
	})
	if read.whole.Store(a.Body == http.NoBody); read.whole.Load() || result.Status == Throttled {
		read.end()
	}
	if a.Body = read; upgraded {
		a.Body = struct {
			io.ReadCloser
			io.Writer
		}{a.Body, connection}
	}
	return a, nil
}

// usual is the default of [Transport.Base].
var usual = sync.OnceValue(func() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	own := t.Clone()
	if own.DialContext != nil {
		own.DialContext = oneshot.Dial(own.DialContext)
	}
	return own
})

// acquire asks again for permits that have expired.
func (t *Transport) acquire(ctx context.Context, c Request) (*Permit, error) {
	for {
		permit, err := t.Permits.Acquire(ctx, c)
		if err != nil || time.Now().Before(permit.StartBy) {
			return permit, err
		}
		permit.Return()
	}
}

func (t *Transport) rules(host string) (answers.Set, error) {
	var wrong error
	policy.CheckAnswers(t.Like, t.Answers, func(field, format string, args ...any) {
		wrong = errors.Join(wrong, fmt.Errorf(field+": "+format, args...))
	})
	return answers.For(t.Answers, t.Like, host), wrong
}

// ResultOf derives how a call ended from an answer's status and rate-limit headers.
func ResultOf(status int, header http.Header) Result {
	return Ended(answers.Set{}.Judge(status, header, nil, time.Now()), status)
}

// Ended derives how a call ended from what an answer with a status means.
func Ended(v answers.Verdict, status int) Result {
	r := Result{Status: Done, RetryAfter: v.Pause(status), Unanswered: answers.Gateways(status)}
	switch {
	case v.Means == answers.Throttled:
		r.Status, r.RetryAfter = Throttled, v.Wait
	case v.Means == answers.Retry && status >= http.StatusInternalServerError:
		r.Status = Unavailable
	}
	return r
}

// upload marks the errors of a caller's body, which are not the target's.
type upload struct{ io.ReadCloser }

type uploadError struct{ error }

func (e *uploadError) Unwrap() error { return e.error }

func (u upload) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = &uploadError{err}
	}
	return n, err
}

type body struct {
	io.ReadCloser
	whole atomic.Bool // was read
	end   func()
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.whole.Store(true)
	}
	return n, err
}

func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
