// Command soak exercises an admitter with drainer and NATS server for an hour, with new keys and
// names all the time. It draws the process's resources, and exits 1 unless the second half is
// level.
//
//	go -C bench run ./soak -for 10m -profiles /tmp/profiles
//	go -C bench run ./soak -for 1h -out ../docs    # and written to docs/soak.md and docs/soak.svg
//
// Everything is on loopback, at fixed rates.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/penstock-mq/penstock/bench/build"
	"github.com/penstock-mq/penstock/bench/paper"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	runtime.LockOSThread()
	length := flag.Duration("for", time.Hour, "how long the traffic lasts")
	out := flag.String("out", "", "directory of the page and the picture; empty: print only")
	profiles := flag.String("profiles", "", "directory of the log and of a heap "+
		"profile of each minute")
	flag.Parse()

	dir, err := os.MkdirTemp("", "penstock-soak-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	admitter, err := build.Admitter(ctx, dir)
	if err != nil {
		return err
	}
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer target.Close()
	go answer(target)
	config := filepath.Join(dir, "soak.yaml")
	text := fmt.Sprintf(policies, target.Addr())
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	profile, err := proctest.FreePort()
	if err != nil {
		return err
	}
	pprof := net.JoinHostPort("127.0.0.1", strconv.Itoa(profile))
	cmd := exec.Command(admitter, "--config", config, "--drain", "--pprof", pprof, "--nats-dir",
		dir, "--http-listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), fmt.Sprint("GODEBUG=memprofilerate=", profileRate))
	if *profiles != "" {
		log, err := os.Create(filepath.Join(*profiles, "log"))
		if err != nil {
			return err
		}
		defer log.Close()
		cmd.Stderr = log
	}
	p, err := proctest.Open(cmd)
	if err != nil {
		return err
	}
	defer p.Kill()
	go func() {
		for range p.Lines {
		}
	}()
	ready, err := p.Ready(ctx)
	if err != nil {
		return err
	}

	s := &soak{url: "http://" + ready["http"], target: "http://" + target.Addr().String(),
		pprof: pprof, profiles: *profiles,
		pid: p.Cmd.Process.Pid, answers: map[string]map[string]int{}}
	during, cancel := context.WithTimeout(ctx, *length)
	defer cancel()
	began := time.Now()
	traffic := s.begin(during)
	if err := s.sample(during, ready["nats"]); err != nil {
		return fmt.Errorf("%w\n%s", err, p.Log)
	}
	traffic.Wait()
	if len(s.samples) < 4*calm {
		return errors.New("it has not lasted long enough to say anything")
	}
	if err := p.Stop(); err != nil {
		return fmt.Errorf("%w\n%s", err, p.Log)
	}
	if err := s.table().Print(os.Stdout); err != nil {
		return err
	}
	if *out != "" {
		machine := paper.Machine("github.com/nats-io/nats-server/v2")
		if err := s.write(*out, machine, time.Since(began).Round(time.Minute)); err != nil {
			return err
		}
	}
	return s.judge()
}
