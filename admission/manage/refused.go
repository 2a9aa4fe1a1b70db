package manage

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/queue/job"
)

const refusedAtOnce = 64

// refused lists the buckets with most refusals by this process in the last minute, counted from the
// first request on.
func (s *Service) refused(ctx context.Context, may func(policy string) bool, limit int) (
	AllBuckets, error) {

	ctx, cancel := s.bounded(ctx)
	defer cancel()
	policies, err := s.Policies(ctx)
	if err != nil {
		return AllBuckets{}, err
	}
	seen, err := s.Watch().Refusals(func(name string) bool {
		return may(name) && slices.ContainsFunc(policies, func(p Policy) bool {
			return p.Policy.Name == name && p.Policy.HasQueue()
		})
	})
	if err != nil {
		return AllBuckets{}, err
	}
	window := seen.Window.Milliseconds()
	all := AllBuckets{Buckets: []PlacedBucket{}, WindowMS: &window}
	for name, keys := range seen.Keys {
		for _, k := range keys {
			all.Buckets = append(all.Buckets, PlacedBucket{name, Bucket{Key: k.Key}, k.Refused})
		}
	}
	slices.SortFunc(all.Buckets, func(a, b PlacedBucket) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.Policy, b.Policy),
			cmp.Compare(a.Key, b.Key))
	})
	all.Total = len(all.Buckets)
	all.Buckets = all.Buckets[:min(limit, all.Total)]
	return all, s.stand(ctx, all.Buckets)
}

// Buckets of policies that were just deleted are skipped.
func (s *Service) stand(ctx context.Context, buckets []PlacedBucket) error {
	var mu sync.Mutex
	var errs []error
	places := make([]*PlacedBucket, len(buckets))
	for i := range buckets {
		places[i] = &buckets[i]
	}
	each(refusedAtOnce, places, func(b *PlacedBucket) {
		key, _ := job.EncodeKey(b.Key) // it was one
		found, err := s.Bucket(ctx, b.Policy, key)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			b.Bucket = found
		case !errors.Is(err, admission.ErrUnknownPolicy):
			errs = append(errs, err)
		}
	})
	return errors.Join(errs...)
}
