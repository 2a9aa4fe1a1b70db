//go:build race

package natstest

import "github.com/nats-io/nats.go"

// timeout of connections: with the race detector everything, including an embedded server, is at
// least five times as slow.
const timeout = 5 * nats.DefaultTimeout
