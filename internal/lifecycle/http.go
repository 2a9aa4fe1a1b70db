package lifecycle

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"
)

// Deadlines of one connection, so that a slow or silent client holds nothing for ever. No answer is
// awaited for longer than seconds.
const (
	headerTimeout = 10 * time.Second
	writeTimeout  = time.Minute
	idleTimeout   = 2 * time.Minute

	maxHeader = 64 << 10 // bytes
)

// What processes grant unless they are configured otherwise.
const (
	// DefaultGrace is how long jobs and requests may go on when the process is about to stop.
	DefaultGrace = 30 * time.Second
	// DefaultMaxConnections is how many connections are served at once.
	DefaultMaxConnections = 16384
	// DefaultMaxPerClient is how many connections of one address are served at once.
	DefaultMaxPerClient = 1024
)

// HTTPOptions configure [HTTP]. The zero value works.
type HTTPOptions struct {
	// Grace is how long requests may take that are being served when the server is to stop.
	Grace time.Duration
	// MaxConnections is how many connections are served at once, default [DefaultMaxConnections],
	// and MaxPerClient how many of one address (of one /64 network with IPv6), default
	// [DefaultMaxPerClient]. Connections beyond these are answered 503.
	MaxConnections, MaxPerClient int
	// Unbounded are the addresses that MaxPerClient is not for: proxies, which connect for many
	// clients.
	Unbounded []netip.Prefix
	// BodyGrace is how far a body may fall behind its least rate of 16 KiB/s, and how long it may
	// take to begin; default 5 s. Reading on fails then with [os.ErrDeadlineExceeded].
	BodyGrace time.Duration
	// TLS secures connections; nil: they are plain. HTTP/2 is not spoken.
	TLS *tls.Config
	// Logger gets panics of handlers and faults of connections as warnings; default [slog.Default].
	Logger *slog.Logger
}

// HTTP is a part for [Run] that serves handler on listener. When it is to stop it closes the
// listener at once and lets the requests that are being served finish; after the grace period it
// cuts off those that remain, with a warning, which is not an error. The listener is closed in any
// case.
func HTTP(listener net.Listener, handler http.Handler, o HTTPOptions) func(context.Context) error {
	o.BodyGrace = cmp.Or(o.BodyGrace, 5*time.Second)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	crowd := newCrowd(o)
	var serving atomic.Int64
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serving.Add(1)
		defer serving.Add(-1)
		handler.ServeHTTP(w, r)
	})
	if o.TLS != nil {
		listener = tls.NewListener(listener, o.TLS)
	}
	return func(ctx context.Context) error {
		server := &http.Server{
			Handler:           secured(paced(counted, o.BodyGrace)),
			ConnState:         crowd.state,
			ConnContext:       withTLS,
			ReadHeaderTimeout: headerTimeout,
			WriteTimeout:      writeTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeader,
			ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
		}
		served := make(chan error, 1)
		go func() { served <- server.Serve(problemListener{listener}) }()
		select {
		case err := <-served:
			return fmt.Errorf("serve http on %s: %w", listener.Addr(), err)
		case <-ctx.Done():
		}
		if n := serving.Load(); n > 0 {
			o.Logger.Info("waiting for http requests", "address", listener.Addr().String(),
				"requests", n,
				"until", time.Now().Add(o.Grace).UTC().Format(time.RFC3339))
		}
		deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Grace)
		defer cancel()
		err := server.Shutdown(deadline)
		if errors.Is(err, context.DeadlineExceeded) {
			o.Logger.Warn("http requests were cut off", "requests", serving.Load(), "grace",
				o.Grace)
			err = server.Close()
		}
		if stopped := <-served; err == nil && !errors.Is(stopped, http.ErrServerClosed) {
			err = stopped // it had failed by itself at that moment
		}
		if err != nil && !errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("stop http on %s: %w", listener.Addr(), err)
		}
		return nil
	}
}
