// Package natsconn makes the connections of Penstock's programs to NATS: they retry for ever,
// notice a dead server within seconds, and end only after everything that was written has arrived.
package natsconn

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/seldom"
)

// leaveTimeout bounds the wait for the last bytes of a connection that is about to be closed.
const leaveTimeout = 2 * time.Second

// Watch logs what becomes of a process's connections: one line when the first of them is lost and
// one when all are back, however many they are, and one in ten seconds about what a subscription
// cannot take.
type Watch struct {
	log    *slog.Logger
	errors *seldom.Log

	mu     sync.Mutex
	away   map[string]bool // the names of connections that are lost
	since  time.Time       // when the first of them was
	denied bool            // it was told that the server refuses us
}

// NewWatch makes a watch for the connections of one process.
func NewWatch(log *slog.Logger) *Watch {
	return &Watch{log: log, errors: seldom.New(log), away: map[string]bool{}}
}

// Options make a connection that never gives up: not when the server is away at first, nor when it
// refuses the credentials for a while, as it does while its accounts are being changed.
func (w *Watch) Options(name string) []nats.Option {
	return []nats.Option{
		nats.Name(name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.PingInterval(2 * time.Second),
		// What cannot be sent now fails now. Kept back and sent in one clump later, it would reach
		// JetStream long after its sender was told that it failed.
		nats.ReconnectBufSize(-1),
		nats.ConnectHandler(func(nc *nats.Conn) { w.back(name, nc) }),
		nats.ReconnectHandler(func(nc *nats.Conn) { w.back(name, nc) }),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if err != nil && !nc.IsClosed() {
				w.lost(name, "the connection to NATS was lost: trying again", err)
			}
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			w.lost(name, "NATS cannot be reached: trying again", err)
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

// lost notes that a connection is away. That the server refuses us is another thing than that it is
// away, and worth a line of its own.
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

// back notes that a connection is there.
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

// report tells of an error that nats.go has no caller for: such as messages that come faster than
// they are taken, or whose headers cannot be read. A client must not be able to fill the log with
// them.
func (w *Watch) report(name, subject string, err error) {
	level := slog.LevelWarn
	if errors.Is(err, nats.ErrBadHeaderMsg) { // a client's fault, which is answered
		level = slog.LevelDebug
	}
	w.errors.Log(name+" "+subject, level, "NATS reports an error", "connection", name, "subject",
		subject, "error", err)
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

// Leave closes a connection after what was written to it has reached the server: acknowledgements
// would be lost otherwise.
func Leave(nc *nats.Conn) {
	if nc.IsConnected() {
		_ = nc.FlushTimeout(leaveTimeout) // nobody is left to tell
	}
	nc.Close()
}
