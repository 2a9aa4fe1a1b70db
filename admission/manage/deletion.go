package manage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

const (
	// purgesAtOnce is how many buckets of a policy that is deleted are purged at a time.
	purgesAtOnce = 16
	// deletionWait is how long a deletion is watched, for jobs whose end is just being written
	// down; deletionAgain how often.
	deletionWait  = 2 * time.Second
	deletionAgain = 50 * time.Millisecond
)

// Deleted says how far the deletion of a policy has come.
type Deleted struct {
	Policy  string `json:"policy"`
	Deleted bool   `json:"deleted"` // false: it goes as soon as its queue is empty
	// jobs that waited and were dropped, without dead letters
	Removed int `json:"removed"`
	// that are left: in workers' hands, or waiting where no drainer answered
	Jobs uint64 `json:"jobs,omitempty"`
}

// DeletePolicy deletes a policy with the overrides of its keys, so that its name is free. Its dead
// letters stay. While its queue holds jobs that is ErrConflict, or, with purge, those that wait are
// dropped as [Service.Purge] drops them, and the policy goes when those that run have ended, which
// may be after the answer. Either way its door is closed before anyone looks, so no job slips in. A
// policy that a configuration file wrote comes back when its text in the file changes.
func (s *Service) DeletePolicy(ctx context.Context, name string, purge bool,
	w Write) (Deleted, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.BulkTimeout)
	defer cancel()
	var entry policy.Entry
	err := s.policies.Delete(ctx, name, purge, func(current policy.Entry) error {
		entry = current
		return w.check(current.Revision)
	})
	var used *queue.PolicyInUseError
	switch {
	case errors.As(err, &used):
		return Deleted{},
			fmt.Errorf("%w: policy %q holds %d jobs; with ?purge=1 those that wait are dropped",
				admission.ErrConflict, name, used.Jobs)
	case errors.Is(err, queue.ErrNotFound):
		return Deleted{}, admission.UnknownPolicy(name)
	case err != nil:
		return Deleted{}, change(err)
	}
	d := Deleted{Policy: name}
	if purge && entry.Policy.HasQueue() {
		if d.Removed, err = s.purgeAll(ctx, entry.Policy); err != nil {
			return Deleted{}, translate(err)
		}
	}
	if d.Deleted, err = s.forget(ctx, name); err != nil {
		return Deleted{}, translate(err)
	}
	if d.Deleted {
		s.awaitFollowed(ctx, name, 0)
	} else if d.Jobs, err = s.broker.Depth(ctx, name); err != nil &&
		!errors.Is(err, queue.ErrNoStream) {
		return Deleted{}, translate(err)
	}
	s.log(ctx, "policy deleted through the API", "policy", name, "gone", d.Deleted, "removed",
		d.Removed, "jobs", d.Jobs)
	return d, nil
}

// forget removes what is left of a policy that is being deleted, if that can be done within a
// moment.
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

// purgeAll drops the jobs that wait in all buckets of a policy, as far as somebody answers for
// them.
func (s *Service) purgeAll(ctx context.Context, p policy.Policy) (removed int, err error) {
	depths, err := s.broker.Depths(ctx, p.Name)
	if errors.Is(err, queue.ErrNoStream) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	keys := make(chan job.Key, len(depths))
	for key := range depths {
		keys <- key
	}
	close(keys)
	var n atomic.Int64
	var purging sync.WaitGroup
	for range min(purgesAtOnce, len(depths)) {
		purging.Go(func() {
			for key := range keys {
				if got, err := s.purge(ctx, p, key); err == nil {
					n.Add(int64(got))
				}
			}
		})
	}
	purging.Wait()
	return int(n.Load()), nil
}
