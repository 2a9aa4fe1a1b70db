package embedded

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/base/seldom"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/roles"
)

func start(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

func stream(t *testing.T, s *Server) jetstream.Stream {
	t.Helper()
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(waittest.Patience()))
	if err != nil {
		t.Fatal(err)
	}
	created, err := js.CreateOrUpdateStream(t.Context(),
		jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "s.a", nil); err != nil {
		t.Fatal(err)
	}
	info, err := created.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if nc.MaxPayload() != MaxPayload {
		t.Errorf("max payload %d", nc.MaxPayload())
	}
	if info.State.Msgs == 0 {
		t.Error("nothing is stored")
	}
	return created
}

func TestWithoutAPort(t *testing.T) {
	s := start(t, Options{})
	stream(t, s)
	if s.URL() != "" {
		t.Errorf("a server without a port has the URL %s", s.URL())
	}
	dir := s.removeDir
	s.Shutdown()
	s.Shutdown()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the temporary directory %s stays: %v", dir, err)
	}
}

func TestWithAPort(t *testing.T) {
	s := start(t, Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if !strings.HasPrefix(s.URL(), "nats://127.0.0.1:") {
		t.Errorf("URL %s", s.URL())
	}
}

func TestAKeptDirectory(t *testing.T) {
	for _, o := range []Options{{}, {Sync: time.Second}, {SyncAlways: true}} {
		o.Dir = filepath.Join(t.TempDir(), "made", "on", "demand")
		for n := uint64(1); n <= 3; n++ {
			s := start(t, o)
			info, err := stream(t, s).Info(t.Context())
			if err != nil || info.State.Msgs != n {
				t.Errorf("start %d has %d messages, %v", n, info.State.Msgs, err)
			}
			s.Shutdown()
		}
	}
}

func TestClearErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	used := t.TempDir()
	start(t, Options{Dir: used})
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Listen: taken.Addr().String()},
			ErrListen.Error() + ": listen tcp " + taken.Addr().String()},
		{Options{Listen: "nonsense"}, `listen address "nonsense"`},
		{Options{Listen: "127.0.0.1:http"}, "want a port number"},
		{Options{Listen: "127.0.0.1:70000"}, "want a port number"},
		{Options{Dir: file}, "data directory"},
		{Options{Dir: filepath.Join(file, "below")}, "data directory"},
		{Options{Dir: used}, "another server uses it"},
	} {
		began := time.Now()
		s, err := Start(c.o)
		if err == nil {
			s.Shutdown()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.HasPrefix(err.Error(), "start embedded NATS: ") {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
		if took := time.Since(began); took > startTimeout/2 {
			t.Errorf("%+v took %s", c.o, took)
		}
	}
}

func TestOnlyWarningsAreLogged(t *testing.T) {
	var mu sync.Mutex
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return out.Write(p)
	}), &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := start(t, Options{Dir: t.TempDir(), Logger: log})
	stream(t, s)
	b := &bridge{lines: seldom.New(log)}
	b.Warnf("low on %s", "space")
	b.Errorf("out of %s", "space")
	s.Shutdown()
	mu.Lock()
	defer mu.Unlock()
	if text := out.String(); strings.Contains(text, "level=INFO") ||
		strings.Contains(text, "level=DEBUG") ||
		!strings.Contains(text, "level=WARN") || !strings.Contains(text, "level=ERROR") ||
		!strings.Contains(text, "low on space") {
		t.Errorf("logged:\n%s", text)
	}
}

func TestFailedLoginsAreOneLine(t *testing.T) {
	log := &waittest.Log{}
	s := start(t, Options{Dir: t.TempDir(), Listen: "127.0.0.1:0",
		Logger: slog.New(slog.NewTextHandler(log, nil)),
		Users: []User{{Name: "a", Role: roles.Operator, Policies: []string{"*"},
			Password: "$2a$04$wDElD6NzrfF1U3ZHZk.MV./05bk5Rp7pd7G7tA0f7t2r7pqnvlDXC"}}})
	for i := range 20 {
		nc, err := nats.Connect(s.URL(), nats.UserInfo("a", "wrong"),
			nats.Name(fmt.Sprintf(`guess "%d" - x`, i)))
		if err == nil {
			nc.Close()
			t.Fatal("a wrong password is taken")
		}
	}
	waittest.Until(t, "it is logged", func() bool { return log.Count("uthentication") > 0 })
	s.Shutdown()
	if n := log.Count("level=WARN"); n > 3 || log.Count("level=ERROR") > 0 {
		t.Errorf("20 failed logins are %d lines:\n%s", n, log)
	}
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// The account's limit is the bound, which clients can query; one below the stored data leaves room
// to drain them.
func TestMaxStore(t *testing.T) {
	dir := t.TempDir()
	limit := func(o Options) int64 {
		t.Helper()
		o.Dir = dir
		s := start(t, o)
		defer s.Shutdown()
		if err := s.Check(); err != nil {
			t.Error(err)
		}
		nc, err := s.Connect()
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(waittest.Patience()))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.CreateOrUpdateStream(t.Context(),
			jetstream.StreamConfig{Name: "KV", Subjects: []string{"kv.>"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := js.Publish(t.Context(), "kv.a", make([]byte, 256<<10)); err != nil {
			t.Errorf("no room for a record: %v", err)
		}
		if o.MaxStore < 32<<20 {
			info, err := js.AccountInfo(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return info.Limits.MaxStore
		}
		if _, err := js.CreateStream(t.Context(),
			jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, MaxBytes: 24 << 20,
				Discard: jetstream.DiscardNew}); err != nil {
			t.Fatal(err)
		}
		for range 8 {
			if _, err := js.Publish(t.Context(), "s.a", make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
		}
		info, err := js.AccountInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.Limits.MaxStore
	}
	if got := limit(Options{MaxStore: 32 << 20}); got != 32<<20 {
		t.Errorf("the limit is %d", got)
	}
	if got := limit(Options{MaxStore: 1 << 20}); got < 9<<20 || got > 14<<20 {
		t.Errorf("below what is stored the limit is %d", got)
	}
	if got := limit(Options{}); got < 32<<20 {
		t.Errorf("by default the limit is %d", got)
	}
}
