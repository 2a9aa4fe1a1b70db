package manage

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-mq/penstock/admission"
)

// The pause equals the time that the previous policy took. A request that would wait too long is
// refused.
func TestThePauseBetweenNewPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := make(making, 1)
		leave, err := m.take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Millisecond)
		leave()
		began := time.Now()
		soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := m.take(soon); !errors.Is(err, admission.ErrUnavailable) {
			t.Errorf("in the pause: %v", err)
		}
		leave, err = m.take(t.Context())
		if err != nil || time.Since(began) != 30*time.Millisecond {
			t.Errorf("the next one after %v: %v", time.Since(began), err)
		}
		leave()
		time.Sleep(time.Millisecond)
	})
}
