package redistest

import (
	"context"
	"net"
	"testing"
	"time"
)

func TestSentinel(t *testing.T) {
	s := StartSentinel(t)
	sentinel := s.Client()
	defer sentinel.Close()
	master := func() string {
		t.Helper()
		addr, err := sentinel.GetMasterAddrByName(t.Context(), s.MasterName()).Result()
		if err != nil || len(addr) != 2 {
			t.Fatalf("asked the sentinel at %s: %q, %v", s.Addr(), addr, err)
		}
		return net.JoinHostPort(addr[0], addr[1])
	}
	if got := master(); got != s.Master.Addr() {
		t.Errorf("the master is %s, want %s", got, s.Master.Addr())
	}

	s.Master.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for master() != s.Replica.Addr() {
		select {
		case <-ctx.Done():
			t.Fatalf("no new master in %v\n%s", patience, s.process.log.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
	rdb := s.Replica.Client()
	defer rdb.Close()
	if err := rdb.Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Errorf("write to the new master: %v", err)
	}
}
