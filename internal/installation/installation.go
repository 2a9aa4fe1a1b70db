// Package installation holds the settings that all processes of an installation must share: the
// prefix of names and the number of replicas, and values derived from them.
package installation

import (
	"fmt"
	"regexp"
	"time"
)

// DefaultPrefix is the default prefix of subjects, and in upper case of streams and buckets.
const DefaultPrefix = "penstock"

var prefix = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)

// CheckPrefix returns an error for an invalid prefix.
func CheckPrefix(p string) error {
	if !prefix.MatchString(p) {
		return fmt.Errorf(
			"%.80q: want 1 to 32 of a-z, 0-9, - and _, beginning with a letter or digit", p)
	}
	return nil
}

// CheckReplicas rejects useless numbers of replicas. NATS accepts 2 and 4, which survive no more
// failures than 1 and 3 but wait for one more server at each write.
func CheckReplicas(n int) error {
	if n != 1 && n != 3 && n != 5 {
		return fmt.Errorf("must be 1, 3 or 5, not %d", n)
	}
	return nil
}

// Lease returns the default duration of a drainer's lease. With replicas, the loss of a KV bucket's
// leader stalls writes for 4 to 8 s, which a lease must outlast.
func Lease(replicas int) time.Duration {
	if replicas > 1 {
		return 15 * time.Second
	}
	return 5 * time.Second
}
