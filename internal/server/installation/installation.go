// Package installation holds settings that all processes of an installation share.
package installation

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

const DefaultPrefix = "penstock"

var prefix = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)

func CheckPrefix(p string) error {
	if !prefix.MatchString(p) {
		return fmt.Errorf(
			"%.80q: want 1 to 32 of a-z, 0-9, - and _, beginning with a letter or digit", p)
	}
	return nil
}

// CheckDomain checks a JetStream domain at a NATS URL.
func CheckDomain(domain, url string) error {
	switch {
	case domain == "":
		return nil
	case url == "":
		return errors.New("is of no use to the embedded server: set nats.url")
	case len(domain) > 255 || strings.ContainsAny(domain, ".*> \t\r\n"):
		return fmt.Errorf("%.80q: want a name without dots, wildcards and blanks", domain)
	}
	return nil
}

// CheckReplicas rejects 2 and 4, which survive no more failures than 1 and 3 but wait for one more
// server at each write.
func CheckReplicas(n int) error {
	if n != 1 && n != 3 && n != 5 {
		return fmt.Errorf("must be 1, 3 or 5, not %d", n)
	}
	return nil
}

// Lease is the default lease of a drainer. With replicas, the loss of a KV bucket's leader stalls
// writes for 4 to 8 s, which it must outlast.
func Lease(replicas int) time.Duration {
	if replicas > 1 {
		return 15 * time.Second
	}
	return 5 * time.Second
}
