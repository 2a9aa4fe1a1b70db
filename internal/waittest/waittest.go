// Package waittest lets a test wait for what must happen.
package waittest

import (
	"os"
	"testing"
	"time"
)

// Impatient is the variable of the environment for tests that are likely to wait in vain, since
// they test code that is broken on purpose.
const Impatient = "PENSTOCK_TEST_IMPATIENT"

// glance is how often a test looks.
const glance = 5 * time.Millisecond

// Patience returns how long a test waits for what takes a moment: a machine may have much to do.
func Patience() time.Duration {
	if os.Getenv(Impatient) != "" {
		return 10 * time.Second
	}
	return 2 * time.Minute
}

// Until waits until something holds, and fails the test when it does not within [Patience]. It
// looks again and again, from the test's own goroutine.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if !Eventually(holds) {
		t.Fatalf("waited %v in vain until %s", Patience(), what)
	}
}

// Eventually is [Until] for tests that have more to say about what does not hold than its name: it
// reports whether something holds within [Patience].
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

// Within is [Until] for what must happen within a time, of which it looks as often as it could on
// an idle machine: a busy one gets more time, and its looks as well.
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
