//go:build !race

package natstest

import "github.com/nats-io/nats.go"

const timeout = nats.DefaultTimeout
