package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

const masterName = "limits"

// Sentinel watches a master, and promotes its only replica about two seconds after the master has
// failed.
type Sentinel struct {
	Master, Replica *Server
	process         *Server
}

// StartSentinel starts a master, a synchronized replica, and a sentinel that has discovered both.
// They are killed when the test ends.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := &Sentinel{Master: Start(t, "--repl-diskless-sync-delay", "0")}
	s.Replica = Start(t, "--replicaof", "127.0.0.1", s.Master.port)

	// A sentinel asks the master for replicas once, and then not for seconds.
	err := s.Replica.poll(ctx, func() bool { return s.Replica.synchronized(ctx) })
	if err != nil {
		t.Fatalf("start a replica: %v", err)
	}

	if s.process, err = startSentinel(t.TempDir(), s.Master.port); err != nil {
		t.Fatalf("start a sentinel: %v", err)
	}
	t.Cleanup(s.process.Stop)
	sentinel := s.Client()
	defer sentinel.Close()
	err = s.process.poll(ctx, func() bool {
		// A replica without recent answers is not promoted, and a sentinel that was delayed for two
		// seconds pauses; shorten both from half a minute.
		hurry := redis.NewStatusCmd(ctx, "sentinel", "debug", "info-period", "500", "tilt-period",
			"500")
		if sentinel.Process(ctx, hurry) != nil {
			return false
		}
		replicas, err := sentinel.Replicas(ctx, masterName).Result()
		return err == nil && len(replicas) == 1 && replicas[0]["flags"] == "slave" &&
			replicas[0]["master-link-status"] == "ok"
	})
	if err != nil {
		t.Fatalf("start a sentinel: %v", err)
	}
	return s
}

// synchronized is of a replica.
func (s *Server) synchronized(ctx context.Context) bool {
	rdb := s.Client()
	defer rdb.Close()
	info, err := rdb.Info(ctx, "replication").Result()
	return err == nil && strings.Contains(info, "master_link_status:up")
}

// startSentinel starts the process, which may not answer yet. Sentinels need a writable
// configuration file.
func startSentinel(dir, master string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "sentinel.conf")
	settings := fmt.Sprintf(`port %s
bind 127.0.0.1
dir %q
sentinel monitor %[3]s 127.0.0.1 %[4]s 1
sentinel down-after-milliseconds %[3]s 500
sentinel failover-timeout %[3]s 3000
`, port, dir, masterName, master)
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		return nil, err
	}
	s := &Server{addr: net.JoinHostPort("127.0.0.1", port), port: port, dir: dir}
	return s, s.open(file, "--sentinel")
}

// Addr returns the sentinel's address.
func (s *Sentinel) Addr() string { return s.process.addr }

// MasterName returns the sentinel's name for the master.
func (s *Sentinel) MasterName() string { return masterName }

// Client returns a new client, which the caller closes. Its calls end with their contexts.
func (s *Sentinel) Client() *redis.SentinelClient {
	return redis.NewSentinelClient(&redis.Options{Addr: s.process.addr,
		ContextTimeoutEnabled: true})
}
