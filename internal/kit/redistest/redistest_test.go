package redistest

import (
	"context"
	"strings"
	"testing"
	"time"
)

func TestServer(t *testing.T) {
	s := Start(t, "--maxmemory-policy", "noeviction")
	rdb := s.Client()
	defer rdb.Close()
	if err := rdb.Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}

	s.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := rdb.Get(ctx, "key").Err(); err == nil {
		t.Error("a frozen server answers")
	}
	s.Thaw()
	if got, err := rdb.Get(t.Context(), "key").Result(); err != nil || got != "value" {
		t.Errorf("after the thaw: %q, %v", got, err)
	}

	addr := s.Addr()
	s.Restart(t)
	if n, err := rdb.Exists(t.Context(), "key").Result(); err != nil || n != 0 || s.Addr() != addr {
		t.Errorf("after a restart at %s, formerly %s: %d keys, %v", s.Addr(), addr, n, err)
	}
	s.Stop()
	if err := rdb.Ping(t.Context()).Err(); err == nil {
		t.Error("a server that was killed answers")
	}
	s.Stop()
}

func TestOpenReportsErrors(t *testing.T) {
	if s, err := Open(t.TempDir(), "--no-such-setting", "1"); err == nil {
		s.Stop()
		t.Error("a server with a bad setting starts")
	} else if !strings.Contains(err.Error(), "no-such-setting") {
		t.Errorf("got %v, want what the server printed", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := Open(t.TempDir()); err == nil ||
		!strings.Contains(err.Error(), "install redis-server") {
		t.Errorf("got %v without a redis-server", err)
	}
}

func TestCluster(t *testing.T) {
	rdb := StartCluster(t, 3).Client()
	defer rdb.Close()
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		if err := rdb.Set(t.Context(), key, key, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if got, err := rdb.Get(t.Context(), key).Result(); err != nil || got != key {
			t.Errorf("%q holds %q, %v", key, got, err)
		}
	}
}
