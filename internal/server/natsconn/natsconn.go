// Package natsconn makes NATS connections that retry forever, notice a dead server within seconds,
// and flush before they close.
package natsconn

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/base/seldom"
)

const leaveTimeout = 2 * time.Second

// Watch logs when the first connection is lost and when all are back, and in ten seconds one
// message that a subscription cannot take.
type Watch struct {
	log    *slog.Logger
	errors *seldom.Log

	mu     sync.Mutex
	away   map[string]bool
	since  time.Time // when the first was lost
	denied bool      // the server's refusal was logged
}

func NewWatch(log *slog.Logger) *Watch {
	return &Watch{log: log, errors: seldom.New(log), away: map[string]bool{}}
}

// Options returns the options of a connection that retries forever: if the server is unavailable at
// first, and while it refuses the credentials, as during changes of its accounts.
func (w *Watch) Options(name string) []nats.Option {
	return []nats.Option{
		nats.Name(name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.PingInterval(2 * time.Second),
		// Fail instead of buffering: buffered messages would arrive after their sender got an
		// error.
		nats.ReconnectBufSize(-1),
		nats.ConnectHandler(func(nc *nats.Conn) { w.back(name, nc) }),
		nats.ReconnectHandler(func(nc *nats.Conn) { w.back(name, nc) }),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if err != nil && !nc.IsClosed() {
				w.lost(name, "the connection to NATS was lost: retrying", err)
			}
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			w.lost(name, "NATS cannot be reached: retrying", err)
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			w.report(name, subject, err)
		}),
	}
}

// A refusal by the server gets its own line.
func (w *Watch) lost(name, message string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	level := slog.LevelDebug
	if len(w.away) == 0 {
		level, w.since, w.denied = slog.LevelWarn, time.Now(), false
	}
	w.away[name] = true
	if !w.denied && (errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired)) {
		level, w.denied = slog.LevelWarn, true
	}
	w.log.Log(context.Background(), level, message, "connection", name, "error", err)
}

func (w *Watch) back(name string, nc *nats.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	url := nc.ConnectedUrlRedacted()
	if !w.away[name] {
		w.log.Debug("connected to NATS", "connection", name, "url", url)
		return
	}
	delete(w.away, name)
	if len(w.away) > 0 {
		w.log.Debug("one of the connections to NATS is back", "connection", name, "url", url)
		return
	}
	w.log.Info("connected to NATS again", "url", url, "away",
		time.Since(w.since).Round(time.Millisecond))
}

// report limits the log lines of errors without a caller, which clients can cause.
func (w *Watch) report(name, subject string, err error) {
	level := slog.LevelWarn
	if errors.Is(err, nats.ErrBadHeaderMsg) { // a client's fault, which is answered
		level = slog.LevelDebug
	}
	w.errors.Log(name+" "+subject, level, "NATS reports an error", "connection", name, "subject",
		subject, "error", err)
}

func Connected(ctx context.Context, nc *nats.Conn) bool {
	status := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(status)
	for !nc.IsConnected() {
		select {
		case <-status:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// Leave flushes and closes a connection, because acknowledgements may be buffered.
func Leave(nc *nats.Conn) {
	if nc.IsConnected() {
		_ = nc.FlushTimeout(leaveTimeout)
	}
	nc.Close()
}
