package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/natsconn"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// broker is the NATS that the process uses: the server inside it, or one elsewhere.
type broker struct {
	connect func(name string) (*nats.Conn, error)
	url     string // for the ready line
	close   func()
	check   func() error // whether the server inside can write; nil for one elsewhere
}

// openNATS starts the embedded server, or prepares connections to the configured one. The latter need not be there yet.
func openNATS(c config.NATS, log *slog.Logger) (broker, error) {
	watch := natsconn.NewWatch(log)
	if c.URL != "" {
		return broker{
			connect: func(name string) (*nats.Conn, error) {
				nc, err := nats.Connect(c.URL, watch.Options(name)...)
				if err != nil {
					return nil, fmt.Errorf("connect to NATS: %w", err)
				}
				return nc, nil
			},
			url:   withoutPasswords(c.URL),
			close: func() {},
		}, nil
	}
	e := c.Embedded
	server, err := embedded.Start(embedded.Options{
		Dir: e.Dir, Listen: e.Listen, Sync: e.Sync, SyncAlways: e.SyncAlways, MaxStore: int64(e.MaxStore), Logger: log})
	if err != nil {
		return broker{}, err
	}
	return broker{
		connect: func(name string) (*nats.Conn, error) { return server.Connect(watch.Options(name)...) },
		url:     cmp.Or(server.URL(), "in-process"),
		close:   server.Shutdown,
		check:   server.Check,
	}, nil
}

// withoutPasswords is a list of servers' URLs without who connects.
func withoutPasswords(servers string) string {
	var shown []string
	for server := range strings.SplitSeq(servers, ",") {
		server = strings.TrimSpace(server)
		scheme, rest, found := strings.Cut(server, "://")
		if !found {
			scheme, rest = "nats", server
		}
		shown = append(shown, scheme+"://"+rest[strings.LastIndex(rest, "@")+1:])
	}
	return strings.Join(shown, ",")
}
