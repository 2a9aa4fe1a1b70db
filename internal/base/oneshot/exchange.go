// Package oneshot makes HTTP requests that net/http sends at most once, and tells when targets have
// ended their work on those that were aborted.
package oneshot

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Notice is the time that a target has to notice that its caller has closed the connection.
	Notice = 500 * time.Millisecond
	// mostDrained is read of an answer that nobody wants, while its target has not noticed.
	mostDrained = 8 << 20
	// mostDial is how long a request that counts from its answer waits for a connection. A longer
	// wait would let requests pile up that arrive together once the target is reachable again.
	mostDial = time.Second
)

var errNoConnection = fmt.Errorf("no connection within %v", mostDial)

// Exchange is one request and its answer. It knows whether the request was sent, and when the
// target has ended its work on one that was aborted.
type Exchange struct {
	// MaxDelay bounds the time for which the kernel may still send what the target has not
	// received: after the connection is closed, and where the kernel allows it (Linux) while this
	// process is frozen or gone. The connection then ends by a reset. What the network, a proxy or
	// the target's kernel holds is beyond recall, and so is a request over HTTP/2, whose
	// connection stays. 0: the kernel may send for as long as it likes.
	MaxDelay time.Duration

	asked atomic.Bool
	conn  atomic.Pointer[net.Conn]
	dial  *time.Timer // nil: without an end
}

// Dialing returns a context for the request. If MaxDelay is set, the request is given up once it
// has waited a second for a connection. That is made all the same, for the next request. The
// caller cancels the context after the exchange.
func (e *Exchange) Dialing(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if e.MaxDelay > 0 {
		e.dial = time.AfterFunc(mostDial, func() { cancel(errNoConnection) })
	}
	return ctx, func() { cancel(nil) }
}

// GetConn is a hook of [httptrace.ClientTrace].
func (e *Exchange) GetConn(string) { e.asked.Store(true) }

// GotConn is a hook of [httptrace.ClientTrace], which comes after dials and handshakes, and before
// the request.
func (e *Exchange) GotConn(i httptrace.GotConnInfo) {
	e.conn.Store(&i.Conn)
	if e.dial != nil {
		e.dial.Stop()
	}
	if e.MaxDelay > 0 {
		recallable(i.Conn, e.MaxDelay)
	}
}

// Unsent reports of a request that failed, or was aborted, whether it got no connection. It is
// false if unknown, as with an [http.RoundTripper] that has no hooks.
func (e *Exchange) Unsent() bool { return e.asked.Load() && e.conn.Load() == nil }

// recallable makes the kernel discard what it has not sent when the connection is closed, also by
// the end of the process, and when the target acknowledges nothing for a time.
func recallable(c net.Conn, within time.Duration) {
	for {
		switch of := c.(type) {
		case *tls.Conn:
			c = of.NetConn()
		case *conn:
			c = of.TCPConn
		case *net.TCPConn:
			_ = of.SetLinger(0) // fails if it is closed already
			limitUnacknowledged(of, within)
			return
		default:
			return
		}
	}
}

// Wait is for a request that failed, or whose answer was closed before its end. It returns when
// the target, too, has closed the connection. That remains unknown if the target does not notice
// within [Notice], on a connection of HTTP/2, whose stream is reset, and on one not made by [Dial].
// Then Wait takes Notice longer; in all it takes at most three times Notice.
func (e *Exchange) Wait() {
	c := e.conn.Load()
	if c == nil {
		return
	}
	if own := closing(*c); own != nil {
		late := time.NewTimer(2 * Notice)
		defer late.Stop()
		select {
		case <-own.ended:
			if own.noticed {
				return
			}
		case <-late.C: // net/http has not closed it
		}
	}
	time.Sleep(Notice)
}

// After calls f after [Exchange.Wait], without blocking.
func (e *Exchange) After(f func()) {
	if e.conn.Load() == nil {
		f()
		return
	}
	go func() {
		e.Wait()
		f()
	}()
}

// closing returns the connection whose end is that of its requests, or nil.
func closing(c net.Conn) *conn {
	for {
		t, ok := c.(*tls.Conn)
		if !ok {
			own, _ := c.(*conn)
			return own
		}
		if t.ConnectionState().NegotiatedProtocol == "h2" {
			return nil
		}
		c = t.NetConn()
	}
}

// Dial returns a function for [http.Transport] whose connections let [Exchange.Wait] know when the
// target has closed them.
func Dial(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(
	ctx context.Context, network, address string) (net.Conn, error) {

	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if of, ok := c.(*net.TCPConn); ok {
			return &conn{TCPConn: of, ended: make(chan struct{})}, err
		}
		return c, err
	}
}

// conn, when closed, first closes only its own direction, and reads until the target closes the
// other one.
type conn struct {
	*net.TCPConn
	reading sync.Mutex
	closed  atomic.Bool
	ended   chan struct{}
	noticed bool // by the target; read after ended
}

func (c *conn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	n, err := c.TCPConn.Read(p)
	if c.closed.Load() {
		return n, net.ErrClosed
	}
	return n, err
}

func (c *conn) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	_ = c.SetDeadline(time.Now()) // ends reads and writes in progress
	_ = c.CloseWrite()            // fails if the target has gone
	go c.drain()
	return nil
}

func (c *conn) drain() {
	defer close(c.ended)
	defer func() { _ = c.TCPConn.Close() }() // both sides have ended, or will not
	c.reading.Lock()                         // once a read in progress has ended
	_ = c.SetReadDeadline(time.Now().Add(Notice))
	c.reading.Unlock()
	_, err := io.CopyN(io.Discard, c.TCPConn, mostDrained)
	c.noticed = err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// SetBody gives a request a body that net/http cannot resend, as it does on other kept connections
// if requests have an Idempotency-Key or a method such as GET.
func SetBody(request *http.Request, body []byte) {
	// net/http recognizes this in-memory type, and sends it in one packet with the header.
	request.Body = io.NopCloser(bytes.NewReader(body))
	request.ContentLength = int64(len(body))
	if len(body) > 0 {
		return
	}
	// net/http treats length 0 with a body as unknown and would send chunks.
	request.TransferEncoding = []string{"identity"}
	switch request.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch: // servers may require a length
		// HTTP/1 omits the canonical spelling, HTTP/2 any
		request.Header["content-length"] = []string{"0"}
	}
}

// Cause returns a request's error without net/http's advice to let it resend HTTP/2 requests.
func Cause(err error) error {
	_, cause, advised := strings.Cut(err.Error(), "cannot retry err [")
	if cause, _, _ = strings.Cut(cause, "] after Request.Body was written"); advised {
		return errors.New(cause)
	}
	return err
}

// Leaving reports whether an HTTP/2 server did not take a request because it ends its connection,
// as servers do after some thousand requests.
func Leaving(err error) bool {
	return err != nil && strings.Contains(err.Error(), "graceful shutdown GOAWAY")
}
