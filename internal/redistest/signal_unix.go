//go:build unix

package redistest

import (
	"syscall"
	"testing"
)

// Freeze stops the server's process as a hanging machine would: connections stay open, nothing is answered.
func (s *Server) Freeze(t testing.TB) { s.signal(t, syscall.SIGSTOP) }

// Thaw lets a frozen server go on.
func (s *Server) Thaw(t testing.TB) { s.signal(t, syscall.SIGCONT) }

func (s *Server) signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(signal); err != nil {
		t.Fatalf("send %v to redis-server: %v", signal, err)
	}
}
