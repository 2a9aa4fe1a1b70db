// Package lifecycle runs the long-lived parts of a process together: the first to return stops the
// others.
package lifecycle

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"
)

// Run runs each part in a goroutine and waits for all. The end of ctx, or of any part, cancels the
// others. A stopped part returns nil or the context's error. Other errors are joined in the order
// of return: the cause of the stop comes first.
func Run(ctx context.Context, parts ...func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	returned := make(chan error)
	for _, part := range parts {
		go func() { returned <- part(ctx) }()
	}
	var errs []error
	for range parts {
		err := <-returned
		if ctx.Err() == nil || !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
		stop()
	}
	return errors.Join(errs...)
}

// InTurn returns a part with two groups: when its context ends it stops work, and serve after that,
// at least hold later. Any part that returns earlier stops both groups. There must be work.
func InTurn(hold time.Duration,
	work, serve []func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		serving, stop := context.WithCancel(context.WithoutCancel(ctx))
		defer stop()
		return Run(serving,
			append(serve[:len(serve):len(serve)], func(serving context.Context) error {
				working, stop := context.WithCancel(serving)
				defer stop()
				held := make(chan struct{})
				defer context.AfterFunc(ctx, func() {
					stop()
					time.AfterFunc(hold, func() { close(held) })
				})()
				err := Run(working, work...)
				if ctx.Err() != nil && err == nil {
					select {
					case <-held:
					case <-serving.Done():
					}
				}
				return err
			})...)
	}
}

// Latch is closed once, by one part, and others wait for it.
type Latch chan struct{}

func (l Latch) Closed() bool {
	select {
	case <-l:
		return true
	default:
		return false
	}
}

// Wait reports whether all latches closed before ctx ended.
func Wait(ctx context.Context, latches ...Latch) bool {
	for _, l := range latches {
		select {
		case <-l:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// After returns a part that begins when a latch closes.
func After(l Latch, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if !Wait(ctx, l) {
			return nil
		}
		return run(ctx)
	}
}

// Repeat returns a part that does something at once, on each wake, and after the pause that it
// returned. It ends with ctx or an error.
func Repeat(wake <-chan struct{},
	do func(context.Context) (pause time.Duration, err error)) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			pause, err := do(ctx)
			if err != nil {
				return err
			}
			select {
			case <-wake:
			case <-time.After(pause):
			case <-ctx.Done():
				return nil
			}
		}
	}
}

type tlsKey struct{}

// hidden keeps a TLS connection from net/http, which logs each failed handshake, such as a probe's.
type hidden struct{ *tls.Conn }

// The first read performs the handshake, within the header timeout.
func withTLS(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(hidden); ok {
		return context.WithValue(ctx, tlsKey{}, secure.Conn)
	}
	return ctx
}

// secured sets a request's TLS state, as net/http does.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, ok := r.Context().Value(tlsKey{}).(*tls.Conn); ok {
			state := conn.ConnectionState()
			r.TLS = &state
		}
		next.ServeHTTP(w, r)
	})
}
