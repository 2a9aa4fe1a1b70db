package workers

import (
	"context"
	"testing"
)

func TestADrainerRunsOnce(t *testing.T) {
	b := newBench(t)
	d, err := New(b.connect(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if got := recover(); got != "workers: a nil handler for policy mail" {
				t.Errorf("%v", got)
			}
		}()
		d.Handle("mail", nil)
	}()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Run(ctx); err != nil {
		t.Error(err)
	}
	if err := d.Run(ctx); err == nil {
		t.Error("it runs twice")
	}
}
