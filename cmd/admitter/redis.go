package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/base/clienttls"
)

// The breaker logs outages.
type redisLog struct{ log *slog.Logger }

func (l redisLog) Printf(ctx context.Context, format string, args ...any) {
	l.log.DebugContext(ctx, fmt.Sprintf(format, args...))
}

const dialTimeout = 5 * time.Second

// openRedis does not connect. Certificates are read for each connection.
func openRedis(c config.Redis) (redis.UniversalClient, error) {
	if _, err := secure(c.TLS); err != nil {
		return nil, fmt.Errorf("state.redis.tls: %w", err)
	}
	var dial func(ctx context.Context, network, address string) (net.Conn, error)
	if c.TLS.Enabled {
		dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			secured, err := secure(c.TLS)
			if err != nil {
				return nil, fmt.Errorf("state.redis.tls: %w", err)
			}
			return (&tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: secured}).
				DialContext(ctx, network, address)
		}
	}
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs:                 c.Addrs,
		ClientName:            "penstock-admitter",
		IsClusterMode:         c.Cluster,
		MasterName:            c.Master,
		DB:                    c.DB,
		Username:              c.Username,
		Password:              c.Password,
		SentinelUsername:      c.SentinelUsername,
		SentinelPassword:      c.SentinelPassword,
		Dialer:                dial,
		ContextTimeoutEnabled: true,
		DialerRetries:         1, // the next decision retries
	}), nil
}

func secure(c config.TLS) (*tls.Config, error) {
	if !c.Enabled {
		return nil, nil
	}
	made, err := clienttls.Files{CA: c.CA, Cert: c.Cert, Key: c.Key}.Config()
	if err == nil {
		made.ServerName = c.ServerName
	}
	return made, err
}
