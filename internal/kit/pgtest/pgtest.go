//go:build unix

// Package pgtest starts real PostgreSQL servers, for tests and benchmarks.
package pgtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// Server is a PostgreSQL server with default settings, on a socket.
type Server struct {
	At      string // how to connect to it
	process *proctest.Process
}

// Programs returns the directory of PostgreSQL's programs, where it is installed.
func Programs() (string, bool) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), true
	}
	versions, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(versions) == 0 {
		return "", false
	}
	return filepath.Dir(versions[len(versions)-1]), true
}

// Start starts a server that is killed when the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	// The socket's path must be short, and open to the server's user.
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// Open starts a server with its data in a directory.
func Open(ctx context.Context, dir string) (*Server, error) {
	programs, found := Programs()
	if !found {
		return nil, fmt.Errorf("PostgreSQL is not installed: see scripts/setup")
	}
	data := filepath.Join(dir, "postgres")
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	as, err := owner(dir, data)
	if err != nil {
		return nil, err
	}
	initialise := exec.CommandContext(ctx, filepath.Join(programs, "initdb"),
		"-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8")
	initialise.SysProcAttr, initialise.Dir = as, data
	if said, err := initialise.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, said)
	}
	serve := exec.Command(filepath.Join(programs, "postgres"),
		"-D", data, "-k", data, "-c", "listen_addresses=")
	serve.SysProcAttr, serve.Dir = as, data
	s := &Server{At: fmt.Sprintf("host=%s user=postgres dbname=postgres", data)}
	if s.process, err = proctest.Open(serve); err != nil {
		return nil, err
	}
	if !waittest.Eventually(func() bool {
		return s.process.Log.Count("ready to accept connections") > 0
	}) {
		s.Stop()
		return nil, fmt.Errorf("postgres does not answer\n%s", s.process.Log)
	}
	return s, nil
}

// Stop kills the server.
func (s *Server) Stop() { s.process.Kill() }

// owner returns the credentials of the user postgres, because the server refuses to run as root,
// and makes that user the owner of the directories.
func owner(dirs ...string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return &syscall.SysProcAttr{}, nil
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.ParseUint(who.Uid, 10, 32)
	gid, _ := strconv.ParseUint(who.Gid, 10, 32)
	for _, dir := range dirs {
		if err := os.Chown(dir, int(uid), int(gid)); err != nil {
			return nil, err
		}
	}
	return &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}
