//go:build !linux

package oneshot

import (
	"net"
	"time"
)

// limitUnacknowledged has no equivalent here.
func limitUnacknowledged(*net.TCPConn, time.Duration) {}
