// Package redistest starts real Redis servers for tests.
package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// patience bounds answers of servers and the formation of a cluster.
const patience = time.Minute

// Server is a redis-server process without persistence.
type Server struct {
	addr, port string
	dir        string
	args       []string
	process    *proctest.Process
	log        waittest.Log
}

// Start starts a server on a free port of 127.0.0.1, with additional arguments. It is killed when
// the test ends. Without an installed redis-server the test fails.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s, err := Open(t.TempDir(), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// Open is [Start] for a TestMain, in the directory dir; the caller must Stop it.
func Open(dir string, args ...string) (*Server, error) {
	var err error
	for range 5 {
		s := &Server{dir: dir, args: args}
		if s.port, err = freePort(); err != nil {
			return nil, err
		}
		s.addr = net.JoinHostPort("127.0.0.1", s.port)
		switch err = s.start(); {
		case err == nil:
			return s, nil
		case errors.Is(err, exec.ErrNotFound):
			return nil,
				errors.New("no redis-server: install redis-server, these tests need a real one")
		case !strings.Contains(err.Error(), "Address already in use"):
			return nil, err
		}
	}
	return nil, err
}

func freePort() (string, error) {
	port, err := proctest.FreePort()
	return strconv.Itoa(port), err
}

func (s *Server) start() error {
	args := []string{"--port", s.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		"--dir", s.dir}
	if err := s.open(append(args, s.args...)...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.poll(ctx, s.answers); err != nil {
		s.Stop()
		return fmt.Errorf("start redis-server: %w", err)
	}
	return nil
}

// open starts the process, which may not answer yet.
func (s *Server) open(args ...string) (err error) {
	cmd := exec.Command("redis-server", args...)
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	s.process, err = proctest.Open(cmd)
	return err
}

func (s *Server) poll(ctx context.Context, done func() bool) error {
	for !done() {
		select {
		case <-s.process.Exited:
			return fmt.Errorf("%s\n%s", s.process.Cmd.ProcessState, &s.log)
		case <-ctx.Done():
			return fmt.Errorf("not ready in time\n%s", &s.log)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

func (s *Server) answers() bool {
	conn, err := net.DialTimeout("tcp", s.addr, patience)
	if err != nil {
		return false
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return false
	}
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return false
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return err == nil && line == "+PONG\r\n"
}

// Addr returns the server's address, which a restart keeps.
func (s *Server) Addr() string { return s.addr }

// Client returns a new connection pool, which the caller closes. Its calls end with their contexts.
func (s *Server) Client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.addr, ContextTimeoutEnabled: true})
}

// Stop kills the server and waits for its end.
func (s *Server) Stop() { s.process.Kill() }

// Freeze stops the process like a hanging machine: its connections stay open but do not answer.
func (s *Server) Freeze() { s.process.Freeze() }

// Thaw resumes a frozen server.
func (s *Server) Thaw() { s.process.Thaw() }

// Restart replaces the server by an empty one.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
}
