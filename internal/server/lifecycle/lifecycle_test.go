package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-mq/penstock/internal/server/lifecycle"
)

func ExampleRun() {
	err := lifecycle.Run(context.Background(),
		func(ctx context.Context) error {
			<-ctx.Done()
			fmt.Println("told to stop")
			return nil
		},
		func(context.Context) error { return errors.New("listen: address in use") },
	)
	fmt.Println(err)
	// Output:
	// told to stop
	// listen: address in use
}

// lasting is a part that runs until it is stopped, takes time for that and returns err.
func lasting(stopping time.Duration, err error) func(context.Context) error {
	return func(ctx context.Context) error {
		<-ctx.Done()
		time.Sleep(stopping)
		return err
	}
}

func brief(after time.Duration, err error) func(context.Context) error {
	return func(context.Context) error {
		time.Sleep(after)
		return err
	}
}

func TestRun(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	type part = func(context.Context) error
	for _, test := range []struct {
		name  string
		stop  time.Duration
		parts []part
		takes time.Duration
		want  []error
		text  string
	}{
		{name: "no parts", takes: 0},
		{name: "told to stop", stop: time.Minute, takes: time.Minute + 3*time.Second,
			parts: []part{lasting(time.Second, nil), lasting(3*time.Second, nil)}},
		{
			name:  "a part fails",
			takes: time.Second + 5*time.Second,
			parts: []part{lasting(5*time.Second, nil), brief(time.Second, first)},
			want:  []error{first},
			text:  "first",
		},
		{name: "a part is finished", takes: 2 * time.Second,
			parts: []part{lasting(time.Second, nil), brief(time.Second, nil)}},
		{name: "the cause comes first", takes: 2 * time.Second,
			parts: []part{lasting(time.Second, second), brief(time.Second, first)},
			want:  []error{first, second}, text: "first\nsecond"},
		{name: "cancellation is no error once told to stop", stop: time.Second, takes: time.Second,
			parts: []part{lasting(0, fmt.Errorf("read: %w", context.Canceled)), lasting(0, nil)}},
		{name: "cancellation out of the blue is one", takes: time.Second,
			parts: []part{brief(time.Second, context.Canceled), lasting(0, nil)},
			want:  []error{context.Canceled},
			text:  context.Canceled.Error()},
		{name: "failing while stopping", stop: time.Second, takes: 2 * time.Second,
			parts: []part{lasting(time.Second, second)}, want: []error{second}, text: "second"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.stop > 0 {
					defer time.AfterFunc(test.stop, cancel).Stop()
				}
				began := time.Now()
				err := lifecycle.Run(ctx, test.parts...)
				if took := time.Since(began); took != test.takes {
					t.Errorf("took %s, want %s", took, test.takes)
				}
				for _, want := range test.want {
					if !errors.Is(err, want) {
						t.Errorf("returned %v, want %v in it", err, want)
					}
				}
				if err == nil && test.text != "" || err != nil && err.Error() != test.text {
					t.Errorf("returned %v, want %q", err, test.text)
				}
			})
		})
	}
}

func TestServingOutlastsTheWork(t *testing.T) {
	type parts = []func(context.Context) error
	failed := errors.New("failed")
	s := time.Second
	for name, test := range map[string]struct {
		hold        time.Duration
		work, serve parts
		takes       time.Duration
		want        error
	}{
		"the work takes longer": {s, parts{lasting(5*s, nil)}, parts{lasting(2*s, nil)}, 67 * s,
			nil},
		"the hold takes longer": {9 * s, parts{lasting(5*s, nil)}, parts{lasting(0, nil)}, 69 * s,
			nil},
		"the work fails": {9 * s, parts{brief(s, failed)}, parts{lasting(2*s, nil)}, 3 * s,
			failed},
		"serving fails": {9 * s, parts{lasting(s, nil)}, parts{brief(s, failed)}, 2 * s,
			failed},
		"serving fails at last": {9 * s, parts{lasting(0, nil)}, parts{brief(62*s, failed)},
			62 * s, failed},
		"the work fails at last": {9 * s, parts{lasting(s, failed)}, parts{lasting(0, nil)}, 61 * s,
			failed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				err := lifecycle.Run(ctx, lifecycle.InTurn(test.hold, test.work, test.serve))
				if took := time.Since(began); took != test.takes || !errors.Is(err, test.want) {
					t.Errorf("took %s, want %s; %v", took, test.takes, err)
				}
				synctest.Wait()
				time.Sleep(test.hold)
			})
		})
	}
}
