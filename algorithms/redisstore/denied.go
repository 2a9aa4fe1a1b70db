package redisstore

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// denied remembers that a node of a cluster refused a command that go-redis sends by itself, such
// as ASKING for a key of a moving slot: go-redis then follows redirections until the deadline, and
// reports the last one.
type denied struct {
	last atomic.Pointer[denial]
}

type denial struct {
	command string
	err     error
	at      time.Time
}

func (d *denied) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d *denied) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		err := next(ctx, command)
		d.note(command)
		return err
	}
}

func (d *denied) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		err := next(ctx, commands)
		for _, command := range commands {
			d.note(command)
		}
		return err
	}
}

func (d *denied) note(command redis.Cmder) {
	if err := command.Err(); redis.HasErrorPrefix(err, "NOPERM") {
		d.last.Store(&denial{command.Name(), err, time.Now()})
	}
}

// explain adds a refusal of the last moments to another error.
func (d *denied) explain(err error, within time.Duration) error {
	last := d.last.Load()
	if last == nil || time.Since(last.at) > within || redis.HasErrorPrefix(err, "NOPERM") {
		return nil
	}
	return fmt.Errorf("ask Redis: %s: %w, so then: %w", last.command, last.err, err)
}
