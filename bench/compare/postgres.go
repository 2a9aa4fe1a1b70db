package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock-mq/penstock/internal/proctest"
)

// postgres is a PostgreSQL server with the settings that it has by default, on a socket.
type postgres struct {
	server *proctest.Process
	pool   *pgxpool.Pool
	at     string // how to connect to it
}

// postgresPrograms returns the directory of its programs, where it is installed.
func postgresPrograms() (string, bool) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), true
	}
	versions, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is good
	if len(versions) == 0 {
		return "", false
	}
	return filepath.Dir(versions[len(versions)-1]), true
}

func (p *postgres) open(ctx context.Context, dir string) error {
	programs, _ := postgresPrograms()
	data := filepath.Join(dir, "postgres")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	as, err := postgresUser(dir, data)
	if err != nil {
		return err
	}
	initialise := exec.CommandContext(ctx, filepath.Join(programs, "initdb"),
		"-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8")
	initialise.SysProcAttr, initialise.Dir = as, data
	if said, err := initialise.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, said)
	}
	serve := exec.Command(filepath.Join(programs, "postgres"),
		"-D", data, "-k", data, "-c", "listen_addresses=")
	serve.SysProcAttr, serve.Dir = as, data
	if p.server, err = proctest.Open(serve); err != nil {
		return err
	}
	p.at = fmt.Sprintf("host=%s user=postgres dbname=postgres", data)
	if p.pool, err = pgxpool.New(ctx, p.at+" pool_max_conns=64"); err != nil {
		return err
	}
	if ok, err := until(ctx, time.Minute, func() (bool, error) {
		return p.pool.Ping(ctx) == nil, nil
	}); !ok || err != nil {
		return fmt.Errorf("postgres does not answer: %w\n%s", err, p.server.Log)
	}
	return nil
}

// postgresUser returns the credentials for the server's process, which refuses to run as root:
// those of the user postgres.
func postgresUser(dirs ...string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return &syscall.SysProcAttr{}, nil
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.ParseUint(who.Uid, 10, 32) // numbers on all systems that have a root
	gid, _ := strconv.ParseUint(who.Gid, 10, 32)
	for _, dir := range dirs {
		if err := os.Chown(dir, int(uid), int(gid)); err != nil {
			return nil, err
		}
	}
	return &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}

func (p *postgres) close() {
	if p.pool != nil {
		p.pool.Close()
	}
	if p.server != nil {
		p.server.Kill()
	}
}
