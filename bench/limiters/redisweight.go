package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// weight is in bytes per key.
type weight struct {
	holder  holder
	example string
	name    float64
	usage   float64
	used    float64
}

func weigh(ctx context.Context, server *redisServer) ([]weight, error) {
	var all []weight
	for _, h := range holders(server.Addr()) {
		w, err := weighOne(ctx, server, h)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", h.name, h.algorithm, err)
		}
		all = append(all, w)
	}
	return all, nil
}

func weighOne(ctx context.Context, server *redisServer, h holder) (w weight, err error) {
	names := keySet{keys: h.keys}.names(1)
	if err := server.reset(ctx); err != nil {
		return w, err
	}
	if err := fillRedis(ctx, h, names[:1]); err != nil {
		return w, err
	}
	before, err := server.emptyMemory(ctx)
	if err != nil {
		return w, err
	}
	if err := fillRedis(ctx, h, names); err != nil {
		return w, err
	}
	keys, usage, err := server.memoryUsage(ctx)
	if err != nil {
		return w, err
	}
	if len(keys) != h.keys {
		return w, fmt.Errorf("%d keys in Redis, want %d", len(keys), h.keys)
	}
	after, err := server.idleMemory(ctx)
	if err != nil {
		return w, err
	}
	n := float64(h.keys)
	return weight{
		holder: h, example: slices.Min(keys), name: float64(len(strings.Join(keys, ""))) / n,
		usage: float64(usage) / n, used: float64(after-before) / n,
	}, nil
}

func (s *redisServer) memoryUsage(ctx context.Context) (keys []string, bytes int64, err error) {
	seen := make(map[string]bool)
	for scan := s.rdb.Scan(ctx, 0, "*", 1000).Iterator(); ; {
		if !scan.Next(ctx) {
			if err := scan.Err(); err != nil {
				return nil, 0, fmt.Errorf("list the keys: %w", err)
			}
			break
		}
		if !seen[scan.Val()] {
			seen[scan.Val()] = true
			keys = append(keys, scan.Val())
		}
	}
	// a pooled pipeline would open another connection, with buffers
	conn := s.rdb.Conn()
	defer func() { err = errors.Join(err, conn.Close()) }()
	for some := range slices.Chunk(keys, 1000) {
		asked, err := conn.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, key := range some {
				pipe.MemoryUsage(ctx, key, 0)
			}
			return nil
		})
		if err != nil {
			return nil, 0, fmt.Errorf("ask for the memory of keys: %w", err)
		}
		for _, one := range asked {
			bytes += one.(*redis.IntCmd).Val()
		}
	}
	return keys, bytes, nil
}

func (s *redisServer) emptyMemory(ctx context.Context) (int64, error) {
	if err := s.reset(ctx); err != nil {
		return 0, err
	}
	return s.idleMemory(ctx)
}

// idleMemory excludes other connections' buffers.
func (s *redisServer) idleMemory(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*patience)
	defer cancel()
	for {
		n, err := s.number(ctx, "clients", "connected_clients")
		if err != nil {
			return 0, fmt.Errorf("wait until others have left Redis: %w", err)
		}
		if n == 1 {
			return s.number(ctx, "memory", "used_memory")
		}
		time.Sleep(glance)
	}
}

func fillRedis(ctx context.Context, h holder, names []string) (err error) {
	l := h.open()
	defer func() { err = errors.Join(err, l.close()) }()
	for range h.requests {
		if h.window > 0 {
			if err := nextWindow(ctx, h.window); err != nil {
				return err
			}
		}
		if err := askEach(ctx, l, names); err != nil {
			return err
		}
	}
	return nil
}

// nextWindow waits for an instant that all windows up to a minute divide.
func nextWindow(ctx context.Context, window time.Duration) error {
	now := time.Now()
	select {
	case <-time.After(now.Truncate(window).Add(window).Sub(now)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
