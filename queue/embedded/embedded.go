// Package embedded runs a nats-server with JetStream inside the process: Penstock's default broker,
// and what tests use.
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
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/seldom"
	"github.com/penstock-mq/penstock/policy"
)

const (
	// MaxPayload is the largest message, headers included, that the server takes: 2 MiB.
	MaxPayload = 2 << 20

	// startTimeout is long because a kept directory may hold millions of messages to recover.
	startTimeout = 60 * time.Second
)

// Options say where the server keeps its data and whether it listens. The zero value is a server
// for a test: a temporary directory and no port.
type Options struct {
	// Dir is where JetStream keeps its data; it is created when missing. Empty: a temporary
	// directory that Shutdown removes.
	Dir string
	// Listen is the "host:port" for clients; port 0 takes a free one. Empty: no port, only
	// [Server.Connect].
	Listen string
	// Sync is how often what was written is forced to disk: what a power cut can lose. A crash of
	// the process loses nothing. 0: every 2 minutes, the server's default.
	Sync time.Duration
	// SyncAlways forces every write to disk before it is acknowledged, 20 to 40 times slower.
	SyncAlways bool
	// MaxStore is how many bytes JetStream may store, as it counts them: messages with some 30
	// bytes each. Files take more while messages in the middle of them are gone, up to twice as
	// much. 0: half of what the disk has free or Dir takes. What is stored already, and a seventh
	// more, is allowed in any case.
	MaxStore int64
	// Users are who may connect to Listen, and what each may do; none: everybody may connect and do
	// everything. [Server.Connect] is not bound by them.
	Users []User
	// TLS is what clients at Listen are served with; nil: connections are plain.
	// Its GetConfigForClient can follow files that change. [Server.Connect] is not bound by it.
	TLS *tls.Config
	// Prefix is what the subjects of Users begin with; default penstock.
	Prefix string
	// Logger gets the server's warnings and errors; default [slog.Default].
	Logger *slog.Logger
}

func (o Options) prefix() string { return cmp.Or(o.Prefix, "penstock") }

// Server is a running nats-server.
type Server struct {
	server    *server.Server
	removeDir string // empty: the directory is kept
	lock      *dirLock
	listens   bool
	storeDir  string
	maxStore  int64
	password  string          // of this process, when there are users
	options   Options         // as they were given
	given     *server.Options // as the server was started with them

	once sync.Once
}

// Start starts a server and returns when it is ready. A port in use, a directory that cannot be
// written or one that another server has open are errors.
func Start(o Options) (*Server, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	s := &Server{listens: o.Listen != "", options: o}
	options := &server.Options{
		ServerName:   "penstock-embedded",
		JetStream:    true,
		StoreDir:     o.Dir,
		DontListen:   !s.listens,
		MaxPayload:   MaxPayload,
		NoSigs:       true,
		SyncInterval: o.Sync,
		SyncAlways:   o.SyncAlways,
		TLS:          o.TLS != nil,
		TLSConfig:    o.TLS,
		// The bound is the account's, which clients can ask for. The server's own would be in the
		// way at a restart: it counts what streams may take twice.
		JetStreamMaxStore: 1 << 60,
	}
	if s.listens {
		host, port, err := splitListen(o.Listen)
		if err != nil {
			return nil, fmt.Errorf("start embedded NATS: %w", err)
		}
		options.Host, options.Port = host, port
	}
	if err := s.users(o, options); err != nil {
		return nil, fmt.Errorf("start embedded NATS: %w", err)
	}
	if o.Dir == "" {
		dir, err := os.MkdirTemp("", "penstock-nats-")
		if err != nil {
			return nil, fmt.Errorf("start embedded NATS: %w", err)
		}
		options.StoreDir, s.removeDir = dir, dir
	}
	var err error
	if s.lock, err = lockDir(options.StoreDir); err == nil {
		s.storeDir, s.maxStore = options.StoreDir, o.MaxStore
		// On a full disk the share of it that is taken below would be nothing, also when there is
		// room again.
		err = s.probe()
		if err == nil && s.maxStore == 0 {
			s.maxStore, err = halfOfTheDisk(options.StoreDir)
		}
	}
	if err == nil {
		err = s.run(options, o.Logger)
	}
	if err != nil {
		s.release()
		return nil, fmt.Errorf("start embedded NATS: %w", err)
	}
	return s, nil
}

// run starts the server and waits until it is ready or says why it cannot be.
func (s *Server) run(options *server.Options, logger *slog.Logger) error {
	var err error
	s.given = options.Clone()
	if s.server, err = server.NewServer(options); err != nil {
		return err
	}
	log := &bridge{lines: seldom.New(logger), fatal: make(chan string, 1)}
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
	}
	return err
}

// limit bounds what the account of all clients may store.
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
	// Without room for a lease nothing would ever leave the store, and without any for what streams
	// reserve their bounds could not be changed.
	usage := account.JetStreamUsage()
	if least := int64(max(usage.Store/7*8, usage.ReservedStore)) + 1<<20; s.maxStore < least {
		if logger != nil {
			logger.Warn(
				"the store holds more than it may, and is allowed more until the next start",
				"max_store", policy.Size(s.maxStore), "allowed", policy.Size(least))
		}
		s.maxStore = least
	}
	return account.UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": {
		MaxMemory: -1, MaxStore: s.maxStore, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1,
		MemoryMaxStreamBytes: -1,
		StoreMaxStreamBytes:  -1,
	}})
}

// shrink lowers the bounds of the streams that lose nothing by it, because they refuse what does
// not fit. Who makes them gives them the bounds that they should have.
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

// ErrBroken says that the server can store nothing more in some of its streams, or in any, until it
// is started again.
var ErrBroken = errors.New("the NATS server's files are broken until it is started again")

// probeBytes is what Check writes: more than what a page that is begun may have left.
const probeBytes = 64 << 10

// Check reports whether what is published can be stored: it writes a small file beside the server's
// own, and asks the server whether it could write. An error of the file system means that the disk
// is full, or cannot be written for another reason; [ErrBroken] that it can be written, but the
// server gave up on some of its files while it could not.
func (s *Server) Check() error {
	if err := s.probe(); err != nil {
		return err
	}
	if !s.server.JetStreamEnabled() {
		return fmt.Errorf("%w: JetStream is disabled", ErrBroken)
	}
	health := s.server.Healthz(&server.HealthzOptions{Details: true})
	for _, problem := range health.Errors {
		if strings.Contains(problem.Error, "write error") {
			return fmt.Errorf("%w: %s", ErrBroken, problem.Error)
		}
	}
	return nil
}

// probe finds out whether a small file can be written.
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
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port, nil
}

// Connect opens an in-process connection: no port, no network. It retries for ever and pings every
// 2 seconds unless the options say otherwise.
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

// URL is the address for clients, such as nats://127.0.0.1:4222; empty when the server has no port.
func (s *Server) URL() string {
	if !s.listens {
		return ""
	}
	return s.server.ClientURL()
}

// Shutdown stops the server, waits until its data are written and its goroutines have ended, and
// removes a temporary directory. It may be called more than once.
func (s *Server) Shutdown() {
	s.once.Do(func() {
		s.server.Shutdown()
		s.server.WaitForShutdown()
		s.release()
	})
}

// release gives the directory free, and removes it when it is a temporary one.
func (s *Server) release() {
	s.lock.unlock()
	if s.removeDir != "" {
		_ = os.RemoveAll(s.removeDir)
	}
}

// bridge hands the server's log to a slog.Logger, of the same warning one line in ten seconds:
// clients can cause them. The server reports that it cannot start only here.
type bridge struct {
	lines *seldom.Log
	fatal chan string
}

// ofConnection begins the formats of what the server says of one connection: its address, its
// number, and what the client says of itself.
var ofConnection = regexp.MustCompile(`^\S+ - [a-z_]+:\d+( - "([^"\\]|\\.)*")* - `)

func (b *bridge) log(level slog.Level, format string, v []any) {
	about := format
	if prefix := ofConnection.FindString(format); prefix != "" {
		// Anyone who reaches the port can cause these, and each connection has its own format.
		about, level = format[len(prefix):], min(level, slog.LevelWarn)
	}
	b.lines.Log(about, level, "nats-server: "+strings.TrimSpace(fmt.Sprintf(format, v...)))
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
