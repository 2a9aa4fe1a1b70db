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

// Answers take at most seconds.
const (
	headerTimeout = 10 * time.Second
	writeTimeout  = time.Minute
	idleTimeout   = 2 * time.Minute
	firstTimeout  = 5 * time.Second

	maxHeader = 64 << 10

	unknownEvery = 20 * time.Millisecond
)

// Defaults.
const (
	DefaultGrace          = 30 * time.Second
	DefaultMaxConnections = 16384
	DefaultMaxPerClient   = 1024
)

// HTTPOptions configures [HTTP]; the zero value works.
type HTTPOptions struct {
	Grace time.Duration
	// MaxPerClient is per address or IPv6 /64 network. Further connections get 503. Defaults: see
	// above.
	MaxConnections, MaxPerClient int
	// exempt from MaxPerClient, such as proxies
	Unbounded []netip.Prefix
	// how far a body may fall behind 16 KiB/s, and how long it may take to begin; default 5 s; then
	// reads fail with [os.ErrDeadlineExceeded]
	BodyGrace time.Duration
	// Stall, if set, is for answers of any length: bodies and upgraded connections finish, unless a
	// client accepts nothing for so long.
	Stall time.Duration
	// Brief reports whether a request is answered soon and in one piece, also if its client leaves.
	// Such requests cost half as much on connections without TLS. May be nil.
	Brief    func(*http.Request) bool
	Answered func(status int)
	// HTTP/2 is not supported.
	TLS *tls.Config
	// for panics of handlers and errors of connections
	Logger *slog.Logger
}

// HTTP returns a part that serves handler on listener. When stopped it lets requests finish; after
// the grace period it cuts off the rest with a warning. It always closes the listener.
func HTTP(listener net.Listener, handler http.Handler, o HTTPOptions) func(context.Context) error {
	o.BodyGrace = cmp.Or(o.BodyGrace, 5*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Answered != nil {
		handler = reported(handler, o.Answered)
	}
	var serving atomic.Int64
	counted := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serving.Add(1)
		defer serving.Add(-1)
		handler.ServeHTTP(w, r)
	}))
	handle, timeout := paced(counted, o.BodyGrace), writeTimeout
	if o.Stall > 0 {
		handle, timeout = counted, 0
	}
	if o.TLS == nil {
		listener = newCrowd(listener, o, refuse)
	} else { // a refusal would have to wait for the handshake
		listener = tls.NewListener(Limited(listener, o), o.TLS)
	}
	return func(ctx context.Context) error {
		server := &http.Server{
			Handler:           secured(handle),
			ConnContext:       withTLS,
			ReadHeaderTimeout: headerTimeout,
			WriteTimeout:      timeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeader,
			ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
		}
		front := &front{Listener: listener, brief: o.Brief, handler: counted, server: server,
			conns: map[net.Conn]bool{}}
		served := make(chan error, 1)
		go func() { served <- server.Serve(front) }()
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
		front.stop()
		err := server.Shutdown(deadline)
		open := func() bool { return serving.Load() > 0 || front.each(func(net.Conn, bool) {}) > 0 }
		for unknown := time.NewTicker(unknownEvery); err == nil && open(); {
			select { // net/http does not track brief or upgraded connections
			case <-unknown.C:
			case <-deadline.Done():
				err = deadline.Err()
			}
		}
		if errors.Is(err, context.DeadlineExceeded) {
			o.Logger.Warn("http requests were cut off", "requests", serving.Load(), "grace",
				o.Grace)
			front.each(func(conn net.Conn, _ bool) { _ = conn.Close() })
			err = server.Close()
		}
		if stopped := <-served; err == nil && !errors.Is(stopped, http.ErrServerClosed) {
			err = stopped
		}
		if err != nil && !errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("stop http on %s: %w", listener.Addr(), err)
		}
		return nil
	}
}

func reported(handler http.Handler, answered func(status int)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(&statusWriter{w, answered}, r)
	})
}

type statusWriter struct {
	http.ResponseWriter
	answered func(status int)
}

func (w *statusWriter) WriteHeader(status int) {
	w.answered(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
