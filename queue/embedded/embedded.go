// Package embedded runs a nats-server with JetStream inside the process.
package embedded

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/base/seldom"
	"github.com/penstock-mq/penstock/policy"
)

const (
	// MaxPayload is the server's largest message, headers included.
	MaxPayload = 2 << 20

	// startTimeout allows recovering millions of messages, or ten thousand streams, which the
	// server compares with each other.
	startTimeout = 10 * time.Minute
)

// Options configure a server. The zero value suits a test: a server in a temporary directory, which
// only this process can reach.
type Options struct {
	// Dir is JetStream's data directory; empty: a temporary one.
	Dir string
	// Listen is the "host:port" for clients; port 0: a free one; empty: no port.
	Listen string
	// Sync is the interval of syncs to disk, and so the most that a power cut can lose. 0: 2
	// minutes, the server's default.
	Sync time.Duration
	// SyncAlways syncs every write before its acknowledgement, 20 to 40 times slower.
	SyncAlways bool
	// MaxStore bounds JetStream's storage as it counts bytes: messages plus about 30 each. Files
	// can take twice as much. 0: half of the free disk space plus Dir's size. The stored data plus
	// a seventh is always allowed.
	MaxStore int64
	// Users may connect to Listen; without any, all clients may, with all permissions.
	Users []User
	// TLS is for Listen; may be nil. Its GetConfigForClient can follow changing files.
	TLS *tls.Config
	// Prefix of subjects; default penstock.
	Prefix string
	// Logger is [slog.Default] if nil.
	Logger *slog.Logger
}

func (o Options) prefix() string { return cmp.Or(o.Prefix, "penstock") }

// Server is a running server, until Shutdown.
type Server struct {
	server    *server.Server
	removeDir string
	lock      *dirLock
	storeDir  string
	maxStore  int64
	password  string // of this process; empty: no users
	options   Options
	given     *server.Options
	log       *bridge

	once  sync.Once
	ended chan struct{}
	sync  sync.WaitGroup
}

// ownSync is the interval of the server's own syncs if one call syncs all streams instead. The
// server opens a file of each stream: every second, that takes 3 % of a core for a thousand idle
// streams, and one call 0.3 %.
const ownSync = 2 * time.Minute

// Start starts a server, and returns when its data are recovered. A directory is for one server at
// a time ([ErrInUse]).
func Start(o Options) (started *Server, err error) {
	defer func() {
		if err != nil {
			started, err = nil, fmt.Errorf("start embedded NATS: %w", err)
		}
	}()
	o.Logger = cmp.Or(o.Logger, slog.Default())
	s := &Server{options: o, ended: make(chan struct{})}
	options := &server.Options{
		ServerName: "penstock-embedded", JetStream: true, StoreDir: o.Dir,
		DontListen: o.Listen == "", MaxPayload: MaxPayload, NoSigs: true, SyncInterval: o.Sync,
		SyncAlways: o.SyncAlways, TLS: o.TLS != nil, TLSConfig: o.TLS,
		// The account's limit bounds the store: clients can query it, and the server's own would
		// prevent a restart, because it counts streams' reservations twice.
		JetStreamMaxStore: 1 << 60,
	}
	if o.Listen != "" {
		host, port, err := splitListen(o.Listen)
		if err != nil {
			return nil, err
		}
		options.Host, options.Port = host, port
	}
	if err := s.users(o, options); err != nil {
		return nil, err
	}
	if o.Dir == "" {
		dir, err := os.MkdirTemp("", "penstock-nats-")
		if err != nil {
			return nil, err
		}
		options.StoreDir, s.removeDir = dir, dir
	}
	if s.lock, err = lockDir(options.StoreDir); err == nil {
		s.storeDir, s.maxStore = options.StoreDir, o.MaxStore
		// Otherwise the bound would be 0 on a full disk, and stay 0.
		err = s.probe()
		if err == nil && s.maxStore == 0 {
			s.maxStore, err = halfOfTheDisk(options.StoreDir)
		}
	}
	if err == nil {
		if o.Sync > 0 && !o.SyncAlways && syncDisk(s.storeDir) == nil {
			options.SyncInterval = max(o.Sync, ownSync)
			s.sync.Go(func() { s.syncEvery(o.Sync, seldom.New(o.Logger)) })
		}
		err = s.run(options, o.Logger)
	}
	if err != nil {
		s.release()
	}
	return s, err
}

func (s *Server) syncEvery(interval time.Duration, log *seldom.Log) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := syncDisk(s.storeDir); err != nil {
				log.Log("", slog.LevelError, "the disk cannot be synced", "error", err)
			}
		case <-s.ended:
			return
		}
	}
}

func (s *Server) run(options *server.Options, logger *slog.Logger) error {
	var err error
	s.given = options.Clone()
	if s.server, err = server.NewServer(options); err != nil {
		return err
	}
	log := &bridge{lines: seldom.New(logger), fatal: make(chan string, 1)}
	s.log = log
	s.server.SetLoggerV2(log, false, false, false)

	ready := make(chan bool, 1)
	go s.server.Start()
	go func() { ready <- s.server.ReadyForConnections(startTimeout) }()
	select {
	case reason := <-log.fatal:
		err = errors.New(reason)
	case ok := <-ready:
		select {
		case reason := <-log.fatal:
			err = errors.New(reason)
		default:
			if !ok {
				err = fmt.Errorf("not ready within %s", startTimeout)
			} else if !s.server.JetStreamEnabled() {
				err = errors.New("JetStream is not available")
			}
		}
	}
	if err == nil {
		err = s.limit(logger)
	}
	if err != nil {
		s.server.Shutdown()
		s.server.WaitForShutdown()
		err = cmp.Or(s.options.taken(), err)
	}
	return err
}

// ErrListen means that the address of [Options.Listen] cannot be used.
var ErrListen = errors.New("clients cannot connect")

// taken tries the address that a server could not start with.
func (o Options) taken() error {
	if o.Listen == "" {
		return nil
	}
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrListen, err)
	}
	return listener.Close()
}

func (s *Server) limit(logger *slog.Logger) error {
	account, err := s.server.LookupAccount(server.DEFAULT_GLOBAL_ACCOUNT)
	if err != nil {
		return err
	}
	if reserved := account.JetStreamUsage().ReservedStore; reserved > uint64(s.maxStore) {
		if err := s.shrink(float64(s.maxStore) / float64(reserved) / 2); err != nil {
			return fmt.Errorf("lower the bounds of streams: %w", err)
		}
	}
	// A lease needs room, and so do streams' reservations, or their bounds could not change.
	usage := account.JetStreamUsage()
	if least := int64(max(usage.Store/7*8, usage.ReservedStore)) + 1<<20; s.maxStore < least {
		logger.Warn("the store exceeds its limit, which is raised until the next start",
			"max_store", policy.Size(s.maxStore), "allowed", policy.Size(least))
		s.maxStore = least
	}
	return account.UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": {
		MaxMemory: -1, MaxStore: s.maxStore, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1,
		MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1,
	}})
}

// shrink lowers the bounds of streams that discard new messages, until their creators set their
// own.
func (s *Server) shrink(factor float64) error {
	nc, err := s.Connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	list := js.ListStreams(ctx)
	for info := range list.Info() {
		if config := info.Config; config.MaxBytes > 0 && config.Discard == jetstream.DiscardNew {
			config.MaxBytes = max(1, int64(float64(config.MaxBytes)*factor))
			if _, err := js.UpdateStream(ctx, config); err != nil {
				return err
			}
		}
	}
	return list.Err()
}

// ErrBroken means that the server cannot store in some streams until it is restarted.
var ErrBroken = errors.New("the NATS server's files stay unusable until it restarts")

// probeBytes exceeds the rest of a partly used page.
const probeBytes = 64 << 10

// Check reports whether messages can be stored, by a small file next to the server's and by write
// errors in its log. [ErrBroken]: the server gave up on some files, or writes to deleted ones. Any
// other error: the disk is full or not writable.
func (s *Server) Check() error {
	if s.lock.gone() {
		return fmt.Errorf("%w: %s was deleted or replaced while the server ran", ErrBroken,
			s.storeDir)
	}
	if err := s.probe(); err != nil {
		return err
	}
	if !s.server.JetStreamEnabled() {
		return fmt.Errorf("%w: JetStream is disabled", ErrBroken)
	}
	if reason := s.log.broken.Load(); reason != nil {
		return fmt.Errorf("%w: %s", ErrBroken, *reason)
	}
	return nil
}

func (s *Server) probe() error {
	name := filepath.Join(s.storeDir, "probe")
	err := os.WriteFile(name, make([]byte, probeBytes), 0o600)
	if removeErr := os.Remove(name); err == nil {
		err = removeErr
	}
	if err != nil {
		return fmt.Errorf("write to the NATS server's directory: %w", err)
	}
	return nil
}

func splitListen(listen string) (string, int, error) {
	host, service, err := net.SplitHostPort(listen)
	if err != nil {
		return "", 0, fmt.Errorf("listen address %q: %w", listen, err)
	}
	port, err := strconv.Atoi(service)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("listen address %q: want a port number", listen)
	}
	return host, cmp.Or(port, server.RANDOM_PORT), nil
}

// Connect opens an in-process connection. By default it reconnects without limit.
func (s *Server) Connect(opts ...nats.Option) (*nats.Conn, error) {
	all := append([]nats.Option{
		nats.InProcessServer(s.server),
		nats.MaxReconnects(-1),
		nats.PingInterval(2 * time.Second),
	}, append(s.login(), opts...)...)
	nc, err := nats.Connect("", all...)
	if err != nil {
		return nil, fmt.Errorf("connect to embedded NATS: %w", err)
	}
	return nc, nil
}

// URL returns the address for clients, "" without a port.
func (s *Server) URL() string {
	if s.options.Listen == "" {
		return ""
	}
	return s.server.ClientURL()
}

// Shutdown stops the server, waits until its data are written, and removes a temporary directory.
// It may be repeated.
func (s *Server) Shutdown() {
	s.once.Do(func() {
		s.server.Shutdown()
		s.server.WaitForShutdown()
		s.release()
	})
}

func (s *Server) release() {
	close(s.ended)
	s.sync.Wait()
	s.lock.unlock()
	if s.removeDir != "" {
		_ = os.RemoveAll(s.removeDir)
	}
}

// bridge forwards the server's log, each warning at most once in ten seconds. Failed starts and
// writes are reported only there, or in the health, which takes 2 ms per thousand streams.
type bridge struct {
	lines  *seldom.Log
	fatal  chan string
	broken atomic.Pointer[string]
}

// ofConnection matches a log format's prefix about a connection: address, number, and the client's
// description of itself.
var ofConnection = regexp.MustCompile(`^\S+ - [a-z_]+:\d+( - "([^"\\]|\\.)*")* - `)

func (b *bridge) log(level slog.Level, format string, v []any) {
	about := format
	if prefix := ofConnection.FindString(format); prefix != "" {
		// Any client can cause these, each with a new format.
		about, level = format[len(prefix):], min(level, slog.LevelWarn)
	}
	text := strings.TrimSpace(fmt.Sprintf(format, v...))
	if strings.Contains(format, "ritical write error") {
		b.broken.Store(&text)
	}
	b.lines.Log(about, level, "nats-server: "+text)
}

func (b *bridge) Noticef(string, ...any)         {}
func (b *bridge) Debugf(string, ...any)          {}
func (b *bridge) Tracef(string, ...any)          {}
func (b *bridge) Warnf(format string, v ...any)  { b.log(slog.LevelWarn, format, v) }
func (b *bridge) Errorf(format string, v ...any) { b.log(slog.LevelError, format, v) }
func (b *bridge) Fatalf(format string, v ...any) {
	select {
	case b.fatal <- fmt.Sprintf(format, v...):
	default:
	}
}
