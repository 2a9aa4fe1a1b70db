// Package installation holds what all processes of one installation must take for the same: the
// prefix of its names, how many servers keep what it stores, and what follows from that.
package installation

import (
	"fmt"
	"regexp"
	"time"
)

// DefaultPrefix begins every subject, and in upper case every stream and bucket, unless it is
// configured otherwise.
const DefaultPrefix = "penstock"

var prefix = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)

// CheckPrefix refuses what names cannot begin with.
func CheckPrefix(p string) error {
	if !prefix.MatchString(p) {
		return fmt.Errorf(
			"%.80q: want 1 to 32 of a-z, 0-9, - and _, beginning with a letter or digit", p)
	}
	return nil
}

// CheckReplicas refuses numbers of replicas that nobody should want. NATS takes 2 and 4 as well,
// but these survive no more failures than 1 and 3, and wait for one more server at each write.
func CheckReplicas(n int) error {
	if n != 1 && n != 3 && n != 5 {
		return fmt.Errorf("must be 1, 3 or 5, not %d", n)
	}
	return nil
}

// Lease is how long a drainer's lease lasts by default. With replicas the loss of the leader of a
// KV bucket stalls writes for 4 to 8 s, which a lease must outlast.
func Lease(replicas int) time.Duration {
	if replicas > 1 {
		return 15 * time.Second
	}
	return 5 * time.Second
}
