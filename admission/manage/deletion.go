package manage

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/policy/store"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

const (
	purgesAtOnce  = 16
	deletionWait  = 2 * time.Second // for jobs whose end is being stored
	deletionAgain = 50 * time.Millisecond
)

// DeletePolicy ends a policy: it drains, and goes with its overrides once its queue is empty; dead
// letters stay. purge drops the jobs that wait. A file's policy is an ErrConflict.
func (s *Service) DeletePolicy(ctx context.Context, name string, purge bool,
	w Write) (d api.Deleted, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.BulkTimeout)
	defer cancel()
	p, _, err := s.change(ctx, name, "policy deleted through the API", w,
		store.Change{Act: store.Delete})
	if err != nil {
		return d, err
	}
	d.Policy = name
	d.Deleted, err = s.policies.Forget(ctx, name) // it closes the queue
	if err == nil && !d.Deleted && purge {
		if d.Removed, err = s.purgeAll(ctx, p.Policy); err == nil {
			d.Deleted, err = s.forget(ctx, name)
		}
		s.NoteTried(ctx, translate(err), "policy purged", "policy", name, "removed", d.Removed)
	}
	if d.Deleted {
		s.awaitFollowed(ctx, name, 0)
	} else if err == nil {
		d.Jobs, err = s.broker.Depth(ctx, name)
	}
	if errors.Is(err, queue.ErrNoStream) {
		err = nil
	}
	return d, translate(err)
}

func (s *Service) forget(ctx context.Context, name string) (gone bool, err error) {
	for until := time.Now().Add(deletionWait); ; {
		gone, err = s.policies.Forget(ctx, name)
		if gone || err != nil || time.Now().After(until) {
			return gone, err
		}
		select {
		case <-time.After(deletionAgain):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// purgeAll skips partitions that do not answer.
func (s *Service) purgeAll(ctx context.Context, p policy.Policy) (removed int, err error) {
	depths, err := s.broker.Depths(ctx, p.Name)
	if errors.Is(err, queue.ErrNoStream) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var n atomic.Int64
	_ = each(purgesAtOnce, slices.Collect(maps.Keys(depths)), func(key *job.Key) error {
		got, _, err := s.purge(ctx, p, *key)
		n.Add(int64(got))
		return err
	})
	return int(n.Load()), nil
}
