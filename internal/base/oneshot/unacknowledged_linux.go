package oneshot

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// limitUnacknowledged sets the time after which the kernel gives a connection up whose peer
// acknowledges nothing, or takes nothing more (RFC 5482).
func limitUnacknowledged(c *net.TCPConn, after time.Duration) {
	raw, err := c.SyscallConn()
	if err != nil {
		return // it is closed already
	}
	ms := int((after + time.Millisecond - 1) / time.Millisecond)
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, ms)
	})
}
