// Package files tells when this process, not a target or a disk, is short of file descriptors.
package files

import (
	"errors"
	"net"
	"strings"
	"syscall"
)

// Short reports whether an error says that this process (EMFILE) or machine (ENFILE) can open no
// more files or connections.
func Short(err error) bool {
	for _, why := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, why) {
			return true
		}
		// Errors of the resolver keep the text alone.
		if dns, ok := errors.AsType[*net.DNSError](err); ok &&
			strings.HasSuffix(dns.Err, why.Error()) {
			return true
		}
	}
	return false
}

// Advice ends messages about such an error.
const Advice = "raise ulimit -n (LimitNOFILE of a service), or lower workers and connections"
