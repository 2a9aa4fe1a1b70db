package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-mq/penstock/internal/kit/redistest"
)

type store struct {
	*redistest.Server
	client *redis.Client
}

func (s *store) open(dir string) (err error) {
	if s.Server, err = redistest.Open(dir); err == nil {
		s.client = s.Server.Client()
	}
	return err
}

func (s *store) servers(ctx context.Context) ([]int, error) {
	info, err := s.client.Info(ctx, "server").Result()
	if err != nil {
		return nil, err
	}
	_, rest, ok := strings.Cut(info, "process_id:")
	if !ok {
		return nil, fmt.Errorf("redis-server does not tell its process: %s", info)
	}
	id, _, _ := strings.Cut(rest, "\r")
	pid, err := strconv.Atoi(id)
	return []int{pid}, err
}

// The workers limit.
func (s *store) unlimited() {}

func (s *store) close() {
	if s.Server != nil {
		_ = s.client.Close()
		s.Stop()
	}
}
