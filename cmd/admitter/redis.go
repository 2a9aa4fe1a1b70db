package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-mq/penstock/config"
)

// The breaker logs outages.
type redisLog struct{ log *slog.Logger }

func (l redisLog) Printf(ctx context.Context, format string, args ...any) {
	l.log.DebugContext(ctx, fmt.Sprintf(format, args...))
}

// decisions have a shorter timeout
const dialTimeout = 5 * time.Second

// openRedis does not connect. Certificates are read for each connection.
func openRedis(c config.Redis) (redis.UniversalClient, error) {
	if _, err := secure(c.TLS); err != nil {
		return nil, fmt.Errorf("state.redis.tls: %w", err)
	}
	var dial func(ctx context.Context, network, address string) (net.Conn, error)
	if c.TLS.Enabled {
		dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			secured, err := secure(c.TLS) // current files
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
	made := &tls.Config{ServerName: c.ServerName, MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, err
		}
		made.RootCAs = x509.NewCertPool()
		if !made.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: holds no certificate in PEM", c.CA)
		}
	}
	if c.Cert != "" {
		own, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, err
		}
		made.Certificates = []tls.Certificate{own}
	}
	return made, nil
}
