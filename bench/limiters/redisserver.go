package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// patience is how long Redis may take for an answer. It is what go-redis allows too when it is not told.
	patience = 3 * time.Second
	// glance is how often is looked whether something has happened.
	glance = 5 * time.Millisecond
)

// redisServer is a redis-server process of this program's own, which keeps nothing on disk.
type redisServer struct {
	port string
	rdb  *redis.Client // for what is asked between measurements
	cmd  *exec.Cmd
	dir  string
	log  bytes.Buffer // complete when the process has ended

	exited chan struct{}
}

// startRedis starts a server on a free port of 127.0.0.1, which its caller stops.
func startRedis(ctx context.Context) (*redisServer, error) {
	var err error
	for range 5 { // another process may take the port that was free
		s := &redisServer{exited: make(chan struct{})}
		if s.port, err = freePort(ctx); err != nil {
			return nil, err
		}
		switch err = s.start(ctx); {
		case err == nil:
			return s, nil
		case errors.Is(err, exec.ErrNotFound):
			return nil, fmt.Errorf("install redis-server: %w", err)
		case !strings.Contains(err.Error(), "Address already in use"):
			return nil, err
		}
	}
	return nil, err
}

func freePort(ctx context.Context) (string, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

func (s *redisServer) addr() string { return net.JoinHostPort("127.0.0.1", s.port) }

func (s *redisServer) start(ctx context.Context) (err error) {
	if s.dir, err = os.MkdirTemp("", "limiters"); err != nil {
		return fmt.Errorf("start redis-server: %w", err)
	}
	s.cmd = exec.Command("redis-server", "--port", s.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		"--dir", s.dir) //nolint:noctx // what ends it is stop, which its starter calls in any case
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	endWithParent(s.cmd)
	if err := s.cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("start redis-server: %w", err), os.RemoveAll(s.dir))
	}
	go func() {
		_ = s.cmd.Wait() // its status is read from ProcessState
		close(s.exited)
	}()
	s.rdb = redisClient(s.addr())
	err = s.await(ctx, "it answers", func() (bool, error) { return s.rdb.Ping(ctx).Err() == nil, nil })
	if err != nil {
		failed := s.stop()
		return errors.Join(fmt.Errorf("start redis-server: %w\n%s", err, s.log.String()), failed)
	}
	return nil
}

// redisClient is a connection pool as all limiters get it: what go-redis does by itself, but that calls end with their
// contexts, on which redisstore insists.
func redisClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
}

// stop kills the server, waits for that, and removes its directory.
func (s *redisServer) stop() error {
	_ = s.cmd.Process.Kill() // its only error is that the process has ended
	<-s.exited
	return errors.Join(s.rdb.Close(), os.RemoveAll(s.dir))
}

// await waits until something is so.
func (s *redisServer) await(ctx context.Context, what string, done func() (bool, error)) error {
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	end := time.After(5 * patience)
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-s.exited:
			return fmt.Errorf("redis-server ended: %s", s.cmd.ProcessState)
		case <-end:
			return fmt.Errorf("waited in vain until %s", what)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reset forgets all keys, and what was counted so far.
func (s *redisServer) reset(ctx context.Context) error {
	if err := s.rdb.FlushAll(ctx).Err(); err != nil {
		return fmt.Errorf("forget all keys: %w", err)
	}
	if err := s.rdb.ConfigResetStat(ctx).Err(); err != nil {
		return fmt.Errorf("begin to count anew: %w", err)
	}
	return nil
}

// info is a section of what the server says of itself.
func (s *redisServer) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.rdb.Info(ctx, section).Result()
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", section, err)
	}
	return parseInfo(text), nil
}

func parseInfo(text string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// number is a field of the section.
func (s *redisServer) number(ctx context.Context, section, field string) (int64, error) {
	fields, err := s.info(ctx, section)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(fields[field], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s of redis-server: %w", field, err)
	}
	return n, nil
}

// scriptCalls is how many scripts were called since the last reset.
func (s *redisServer) scriptCalls(ctx context.Context) (int64, error) {
	fields, err := s.info(ctx, "commandstats")
	if err != nil {
		return 0, err
	}
	return callsOf(fields, "eval", "evalsha")
}

// callsOf adds the calls of commands, as INFO commandstats has them.
func callsOf(stats map[string]string, commands ...string) (calls int64, err error) {
	for _, command := range commands {
		stat, ok := stats["cmdstat_"+command]
		if !ok {
			continue // was never called
		}
		first, _, _ := strings.Cut(stat, ",")
		n, err := strconv.ParseInt(strings.TrimPrefix(first, "calls="), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("calls of %s in %q: %w", command, stat, err)
		}
		calls += n
	}
	return calls, nil
}
