package permits

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/internal/hints"
	"github.com/penstock-mq/penstock/internal/oneshot"
)

// Acquirer acquires permits, as [*Client] does.
type Acquirer interface {
	Acquire(ctx context.Context, r Request) (*Permit, error)
}

// Transport is an [http.RoundTripper] whose requests begin when their policy lets them. What it
// reads of an answer's status and rate-limit headers pauses the bucket, for all processes. A
// refusal is the error of the request: an [*admission.RefusedError]. Requests are sent once:
// retries are for the client, and each is a call of its own.
type Transport struct {
	// Permits lets the requests begin; Policy is theirs.
	Permits Acquirer
	Policy  string
	// Call returns the call of a request: its key, costs, priority and wait. The policy is set
	// afterwards. Nil: the key is the request's host.
	Call func(*http.Request) Request
	// Used returns what an answered request cost, by cost name; nil: the estimate stays.
	Used func(*http.Response) map[string]int64
	// Base sends the requests; nil: [http.DefaultTransport].
	Base http.RoundTripper
}

// RoundTrip waits for the request's turn and sends it. The call ends when the answer's body is
// closed.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	c := Request{Key: r.URL.Host}
	if t.Call != nil {
		c = t.Call(r)
	}
	c.Policy = t.Policy
	permit, err := t.acquire(r.Context(), c)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as RoundTrip must; the error is that of Acquire
		}
		return nil, err
	}
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	once := r.Clone(r.Context()) // net/http resends what it can
	if once.GetBody = nil; r.Body == nil || r.Body == http.NoBody {
		oneshot.SetBody(once, nil)
	}
	a, err := base.RoundTrip(once)
	if err != nil {
		result := Result{Status: Unavailable, Err: err}
		if r.Context().Err() != nil {
			result.Status = Failed
		}
		permit.Settle(result)
		return nil, err
	}
	result := ResultOf(a.StatusCode, a.Header)
	if result.Status != Throttled && result.RetryAfter > 0 { // others wait to know
		permit.Pause(result.RetryAfter)
		result.RetryAfter = 0
	}
	end := sync.OnceFunc(func() {
		if t.Used != nil {
			result.Used = t.Used(a)
		}
		permit.Settle(result)
	})
	if a.Body == http.NoBody || result.Status == Throttled {
		end()
	}
	if w, both := a.Body.(io.ReadWriteCloser); both { // after an upgrade
		a.Body = upgraded{w, end}
	} else {
		a.Body = body{a.Body, end}
	}
	return a, nil
}

// acquire acquires a permit until it is one that is still valid.
func (t *Transport) acquire(ctx context.Context, c Request) (*Permit, error) {
	for {
		permit, err := t.Permits.Acquire(ctx, c)
		if err != nil || time.Now().Before(permit.StartBy) {
			return permit, err
		}
		permit.Return()
	}
}

// ResultOf is how an answered call ends, by the answer's status and rate-limit headers.
func ResultOf(status int, header http.Header) Result {
	now := time.Now()
	left := hints.Pause(header, now)
	r := Result{Status: Done, RetryAfter: left}
	if after, throttled := hints.Throttled(status, header, left, now); throttled {
		r.Status, r.RetryAfter = Throttled, after
	} else if status >= http.StatusInternalServerError {
		r.Status = Unavailable
	}
	return r
}

// body ends a call when it is closed; upgraded is one that can be written, too.
type body struct {
	io.ReadCloser
	end func()
}

func (b body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

type upgraded struct {
	io.ReadWriteCloser
	end func()
}

func (b upgraded) Close() error {
	defer b.end()
	return b.ReadWriteCloser.Close()
}
