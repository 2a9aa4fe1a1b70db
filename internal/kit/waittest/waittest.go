// Package waittest waits for conditions in tests.
package waittest

import (
	"os"
	"testing"
	"time"
)

// Impatient is the environment variable for tests that are expected to fail, since they test
// sabotaged code.
const Impatient = "PENSTOCK_TEST_IMPATIENT"

// glance is the polling interval.
const glance = 5 * time.Millisecond

// Patience returns how long tests wait for a fast operation on a busy machine.
func Patience() time.Duration {
	if os.Getenv(Impatient) != "" {
		return 10 * time.Second
	}
	return 2 * time.Minute
}

// Until polls a condition from the test's goroutine, and fails the test if it does not hold within
// [Patience].
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if !Eventually(holds) {
		t.Fatalf("waited %v in vain until %s", Patience(), what)
	}
}

// Eventually is [Until] for tests with their own failure message: it reports whether the condition
// holds within [Patience].
func Eventually(holds func() bool) bool {
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	for end := time.After(Patience()); ; {
		if holds() {
			return true
		}
		select {
		case <-ticker.C:
		case <-end:
			return false
		}
	}
}

// Within is [Until] with a limit that counts polls: a busy machine gets more time.
func Within(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	for looks := limit / glance; !holds(); looks-- {
		if looks <= 0 {
			t.Fatalf("it took more than %v until %s", limit, what)
		}
		<-ticker.C
	}
}

// Receive returns the next value of a channel, and fails the test if none comes within [Patience].
func Receive[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(Patience()):
		t.Fatal("nothing came in time")
	}
	panic("unreachable")
}
