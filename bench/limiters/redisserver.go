package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-mq/penstock/internal/kit/redistest"
)

const (
	patience = 3 * time.Second
	glance   = 5 * time.Millisecond
)

// redisServer has no persistence.
type redisServer struct {
	*redistest.Server
	rdb *redis.Client
	dir string
}

func startRedis() (*redisServer, error) {
	dir, err := os.MkdirTemp("", "limiters")
	if err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	server, err := redistest.Open(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &redisServer{server, redisClient(server.Addr()), dir}, nil
}

// redisClient has go-redis's defaults, except that contexts end calls, as redisstore demands.
func redisClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
}

func (s *redisServer) stop() error {
	s.Stop()
	return errors.Join(s.rdb.Close(), os.RemoveAll(s.dir))
}

// reset removes all keys and statistics.
func (s *redisServer) reset(ctx context.Context) error {
	if err := s.rdb.FlushAll(ctx).Err(); err != nil {
		return fmt.Errorf("forget all keys: %w", err)
	}
	if err := s.rdb.ConfigResetStat(ctx).Err(); err != nil {
		return fmt.Errorf("begin to count anew: %w", err)
	}
	return nil
}

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

func (s *redisServer) scriptCalls(ctx context.Context) (int64, error) {
	fields, err := s.info(ctx, "commandstats")
	if err != nil {
		return 0, err
	}
	return callsOf(fields, "eval", "evalsha")
}

func callsOf(stats map[string]string, commands ...string) (calls int64, err error) {
	for _, command := range commands {
		stat, ok := stats["cmdstat_"+command]
		if !ok {
			continue
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
