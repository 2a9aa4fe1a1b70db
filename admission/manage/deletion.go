package manage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

const (
	purgesAtOnce  = 16
	deletionWait  = 2 * time.Second // for jobs whose end is being stored
	deletionAgain = 50 * time.Millisecond
)

// DeletePolicy deletes a policy and its overrides, but no dead letters. Jobs in its queue are an
// ErrConflict, unless purge: then waiting ones are dropped, and the policy goes when the running
// ones have ended. A file's policy is an ErrConflict.
func (s *Service) DeletePolicy(ctx context.Context, name string, purge bool,
	w Write) (d api.Deleted, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.BulkTimeout)
	defer cancel()
	var entry policy.Entry
	err = s.policies.Delete(ctx, name, purge, func(current policy.Entry) error {
		entry = current
		return w.check(current.Revision)
	})
	d.Policy = name
	note := func() {
		s.NoteTried(ctx, err, "policy deleted through the API", "policy", name, "gone", d.Deleted,
			"removed", d.Removed, "jobs", d.Jobs, "changed", policy.Fields(entry.Policy))
	}
	var used *queue.PolicyInUseError
	switch {
	case errors.As(err, &used):
		return api.Deleted{},
			fmt.Errorf("%w: policy %q holds %d jobs; ?purge=1 drops the waiting ones",
				admission.ErrConflict, name, used.Jobs)
	case errors.Is(err, queue.ErrNotFound):
		return api.Deleted{}, admission.UnknownPolicy(name)
	case err != nil:
		if err = change(err); entry.Revision > 0 {
			note()
		}
		return api.Deleted{}, err
	}
	defer note()
	if purge && entry.Policy.HasQueue() {
		if d.Removed, err = s.purgeAll(ctx, entry.Policy); err != nil {
			return d, translate(err)
		}
	}
	if d.Deleted, err = s.forget(ctx, name); err != nil {
		return d, translate(err)
	}
	if d.Deleted {
		s.awaitFollowed(ctx, name, 0)
	} else if d.Jobs, err = s.broker.Depth(ctx, name); err != nil &&
		!errors.Is(err, queue.ErrNoStream) {
		return d, translate(err)
	}
	return d, nil
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
