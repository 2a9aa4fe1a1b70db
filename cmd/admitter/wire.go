package main

import (
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/targets"
	"github.com/penstock-mq/penstock/workers"
)

// newDrainer makes the drainer of --drain.
func newDrainer(nc *nats.Conn, c config.Config, observer workers.Observer, log *slog.Logger) (
	*workers.Drainer, error) {

	drainer, err := workers.New(nc, workers.Options{
		Prefix:   c.NATS.Prefix,
		Replicas: c.NATS.Replicas,
		Lease:    c.Drain.Lease,
		Policies: c.Drain.Policies,
		Target:   targets.New(nc, c.NATS.Prefix, c.Targets.Allow),
		OwnAll:   true,
		Grace:    c.Grace,
		Observer: observer,
		Logger:   log,
	})
	if err != nil {
		return nil, fmt.Errorf("make the drainer: %w", err)
	}
	return drainer, nil
}
