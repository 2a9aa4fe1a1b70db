// Package natsconn makes the connections of Penstock's programs to NATS: they retry for ever, notice a dead server within
// seconds, and end only after everything that was written has arrived.
package natsconn

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// retryLog is how often a connection that cannot be made is worth a line.
	retryLog = 10 * time.Second
	// leaveTimeout bounds the wait for the last bytes of a connection that is about to be closed.
	leaveTimeout = 2 * time.Second
)

// Options make a connection that never gives up: not when the server is away at first, nor when it refuses the
// credentials for a while, as it does while its accounts are being changed.
func Options(name string, log *slog.Logger) []nats.Option {
	log = log.With("connection", name)
	var told atomic.Int64 // Unix nanoseconds
	return []nats.Option{
		nats.Name(name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.PingInterval(2 * time.Second),
		// What cannot be sent now fails now. Kept back and sent in one clump later, it would reach JetStream long after its
		// sender was told that it failed.
		nats.ReconnectBufSize(-1),
		nats.ConnectHandler(func(nc *nats.Conn) { log.Debug("connected to NATS", "url", nc.ConnectedUrlRedacted()) }),
		nats.ReconnectHandler(func(nc *nats.Conn) { log.Info("connected to NATS again", "url", nc.ConnectedUrlRedacted()) }),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if err != nil && !nc.IsClosed() {
				log.Warn("the connection to NATS was lost: trying again", "error", err)
			}
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			now, before := time.Now().UnixNano(), told.Load()
			if now-before >= int64(retryLog) && told.CompareAndSwap(before, now) {
				log.Warn("NATS cannot be reached: trying again", "error", err)
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			level := slog.LevelWarn
			if errors.Is(err, nats.ErrBadHeaderMsg) { // a client's fault, which is answered
				level = slog.LevelDebug
			}
			log.Log(context.Background(), level, "NATS reports an error", "subject", subject, "error", err)
		}),
	}
}

// Connected waits for the first connection, and reports whether it came before ctx ended.
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

// Leave closes a connection after what was written to it has reached the server: acknowledgements would be lost otherwise.
func Leave(nc *nats.Conn) {
	if nc.IsConnected() {
		_ = nc.FlushTimeout(leaveTimeout) // nobody is left to tell
	}
	nc.Close()
}
