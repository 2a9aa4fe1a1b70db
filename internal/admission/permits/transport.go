package permits

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/internal/base/answers"
	"github.com/penstock-mq/penstock/internal/base/clienttls"
	"github.com/penstock-mq/penstock/internal/base/files"
	"github.com/penstock-mq/penstock/internal/base/oneshot"
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

// RoundTrip sends the request when its turn comes. The end of the answer's body, or its Close, ends
// the call.
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
	once := r.Clone(r.Context())
	switch once.GetBody = nil; { // net/http would resend it
	case r.Body == nil || r.Body == http.NoBody:
		oneshot.SetBody(once, nil)
	case r.GetBody == nil: // reads may fail
		once.Body = Upload{r.Body}
	}
	base := t.Base
	if base == nil {
		base = usual()
	}
	return Sender{Base: base, Rules: rules, Used: t.Used}.Send(r.Context(), once, permit)
}

// Rules decide what a target's answers mean; Verdict is what they found of one.
type (
	Rules   = answers.Set
	Verdict = answers.Verdict
)

// Sender makes HTTP calls that have a permit.
type Sender struct {
	Base  http.RoundTripper
	Rules Rules // what answers mean
	// Hold reads JSON of unknown length before it is passed on, if it may decide.
	Hold bool
	// Decode reverses a content coding; nil: bodies are plain.
	Decode func(body io.Reader, coding string) (io.Reader, error)
	// Used returns the actual costs of an answered request, by name; nil: as estimated.
	Used func(*http.Response) map[string]int64
	// Ended is called with what is known of a call at its end; a is nil without an answer. Nil:
	// nobody asks.
	Ended func(a *http.Response, v Verdict, r Result)
}

// Send sends a request once, and settles the permit at the end of the answer's body. The end of ctx
// is the caller's doing, and no fault of the target, unlike that of the request's own context.
func (s Sender) Send(ctx context.Context, r *http.Request,
	permit *Permit) (*http.Response, error) {

	if s.Ended == nil {
		s.Ended = func(*http.Response, Verdict, Result) {}
	}
	exchange := &oneshot.Exchange{MaxDelay: permit.MaxDelay}
	dialing, done := exchange.Dialing(r.Context())
	a, err := s.Base.RoundTrip(r.WithContext(httptrace.WithClientTrace(dialing,
		&httptrace.ClientTrace{GetConn: exchange.GetConn, GotConn: exchange.GotConn})))
	if err != nil {
		done()
		err = oneshot.Cause(err)
		result := s.failed(ctx, exchange, permit, err)
		s.Ended(nil, Verdict{}, result)
		exchange.After(func() { permit.Settle(result) })
		return nil, err
	}
	if !answers.Gateways(a.StatusCode) {
		permit.Answered()
	}
	header := a.Header.Clone() // the original changes
	text, later := s.begin(a)
	verdict := s.judge(a.StatusCode, header, text)
	result := Ended(verdict, a.StatusCode)
	if result.Status != Throttled && result.RetryAfter > 0 {
		permit.Pause(result.RetryAfter)
		result.RetryAfter = 0
	}
	connection, upgraded := a.Body.(io.Writer)
	read := &body{ReadCloser: a.Body, done: done}
	if later {
		read.copy = &bytes.Buffer{}
	}
	read.end = sync.OnceFunc(func() {
		if later {
			verdict = s.judge(a.StatusCode, header, read.copy.Bytes())
			if late := Ended(verdict, a.StatusCode); late.Status != result.Status {
				result = late
			}
		}
		if s.Used != nil {
			result.Used = s.Used(a)
		}
		if read.whole.Load() || result.Status == Throttled {
			permit.Settle(result)
		} else {
			exchange.After(func() { permit.Settle(result) })
		}
		s.Ended(a, verdict, result)
	})
	if a.Body == http.NoBody {
		read.whole.Store(true)
		done()
	}
	if read.whole.Load() || result.Status == Throttled {
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

var errLeft = errors.New("the caller left before the target answered")

// failed derives how a call without an answer ended. It returns a permit whose call did not begin.
func (s Sender) failed(ctx context.Context, exchange *oneshot.Exchange, permit *Permit,
	err error) Result {

	result := Result{Status: Unavailable, Err: err}
	_, own := errors.AsType[*uploadError](err)
	_, unread := errors.AsType[*clienttls.FileError](err)
	left, unsent := own || ctx.Err() != nil, unread || exchange.Unsent()
	untouched := oneshot.Leaving(err) || files.Short(err)
	switch {
	case unsent && left, untouched && (unsent || permit.MaxDelay == 0):
		permit.Return() // before Settle, which then has no effect
	case left && !own:
		result.Status, result.Err = Failed, errLeft
	case left, untouched:
		result.Status = Failed
	case unsent:
		result.Status = Unreached
	}
	return result
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

func (t *Transport) rules(host string) (Rules, error) {
	var wrong error
	policy.CheckAnswers(t.Like, t.Answers, func(field, format string, args ...any) {
		wrong = errors.Join(wrong, fmt.Errorf(field+": "+format, args...))
	})
	return answers.For(t.Answers, t.Like, host), wrong
}

// ResultOf derives how a call ended from an answer's status and rate-limit headers.
func ResultOf(status int, header http.Header) Result {
	return Ended(Rules{}.Judge(status, header, nil, time.Now()), status)
}

// Ended derives how a call ended from what an answer with a status means.
func Ended(v Verdict, status int) Result {
	r := Result{Status: Done, RetryAfter: v.Pause(status), Unanswered: answers.Gateways(status)}
	switch {
	case v.Means == answers.Throttled:
		r.Status, r.RetryAfter = Throttled, v.Wait
	case v.Means == answers.Retry && status >= http.StatusInternalServerError:
		r.Status, r.Err = Unavailable, fmt.Errorf("the target answered %d", status)
	}
	return r
}

// Upload marks the errors of a caller's body, which are not the target's.
type Upload struct{ io.ReadCloser }

type uploadError struct{ error }

func (e *uploadError) Unwrap() error { return e.error }

// Read reads the body; its errors are told apart from those of the connection.
func (u Upload) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = &uploadError{err}
	}
	return n, err
}

type body struct {
	io.ReadCloser
	done  context.CancelFunc // of the request
	whole atomic.Bool        // was read
	copy  *bytes.Buffer      // of what decides; nil: nothing more does
	end   func()
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.copy != nil {
		b.copy.Write(p[:min(n, max(0, answers.MostRead+1-b.copy.Len()))])
	}
	if err != nil {
		b.whole.Store(err == io.EOF)
		b.end()
		b.done()
	}
	return n, err
}

func (b *body) Close() error {
	defer b.done()
	defer b.end()
	return b.ReadCloser.Close()
}
