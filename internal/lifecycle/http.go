package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Deadlines of one connection, so that a slow or silent client holds nothing for ever. Bodies are at most about a
// megabyte, and no answer is awaited for longer than seconds.
const (
	headerTimeout = 10 * time.Second
	readTimeout   = 30 * time.Second
	writeTimeout  = time.Minute
	idleTimeout   = 2 * time.Minute

	maxHeader = 64 << 10 // bytes
)

// HTTP is a part for [Run] that serves handler on listener. When it is told to stop it closes the listener at once and
// lets the requests that are being served finish; after grace it cuts off those that remain, with a warning, which is
// not an error. The listener is closed in any case. Panics of handlers and faults of connections go to logger as
// warnings.
func HTTP(listener net.Listener, handler http.Handler, grace time.Duration,
	logger *slog.Logger) func(context.Context) error {

	return func(ctx context.Context) error {
		server := &http.Server{
			Handler:           handler,
			ReadHeaderTimeout: headerTimeout,
			ReadTimeout:       readTimeout,
			WriteTimeout:      writeTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeader,
			ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		}
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		select {
		case err := <-served:
			return fmt.Errorf("serve http on %s: %w", listener.Addr(), err)
		case <-ctx.Done():
		}
		deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		err := server.Shutdown(deadline)
		if errors.Is(err, context.DeadlineExceeded) {
			logger.Warn("http requests were cut off", "grace", grace)
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
