package kv

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
)

func TestALockIsReleasedWithItsChange(t *testing.T) {
	table := newTable(t)
	if err := table.WithLock(natstest.Context(t), "stripe", func(context.Context) error {
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := table.put(natstest.Context(t), "stripe", nil, 0, nil); err != nil {
		t.Errorf("the lock stays: %v", err)
	}
}

func TestLockOfADeadProcessExpires(t *testing.T) {
	table := newTable(t)
	if _, err := table.put(natstest.Context(t), "stripe", nil, 0, lasting(time.Second)); err !=
		nil {
		t.Fatal(err)
	}
	entered := false
	if err := table.WithLock(natstest.Context(t), "stripe", func(context.Context) error {
		entered = true
		return nil
	}); err != nil || !entered {
		t.Errorf("entered: %t, %v", entered, err)
	}
	ctx, cancel := context.WithTimeout(natstest.Context(t), 10*time.Millisecond)
	defer cancel()
	if err := table.WithLock(ctx, "stripe", func(context.Context) error {
		return table.WithLock(ctx, "stripe", func(context.Context) error { return nil })
	}); !errors.Is(err, jsapi.ErrUnavailable) {
		t.Errorf("a held lock was taken: %v", err)
	}
}
