package manage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/server/audit"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

const (
	MaxListed = 10_000 // offset and limit together
	askAtOnce = 500    // fit into one answer of a valve, even with the longest keys
)

// Buckets lists buckets with jobs or calls, deepest first. Between pages the order may change.
func (s *Service) Buckets(ctx context.Context, name string, offset, limit int) (api.Buckets,
	error) {

	page, _, err := s.page(ctx, name, job.ByDepth, offset, limit)
	return page, err
}

// page also returns the jobs of the whole policy.
func (s *Service) page(ctx context.Context, name, by string, offset, limit int) (page api.Buckets,
	jobs uint64, err error) {

	if page, err = s.buckets(ctx, name, by, offset, limit); err != nil {
		return page, 0, err
	}
	stream, err := s.broker.Stream(ctx, name)
	page.Bytes = api.Fill{Used: stream.Bytes.Used, Max: stream.Bytes.Max}
	if errors.Is(err, jet.ErrNoStream) {
		err = nil
	}
	return page, stream.Jobs, translate(err)
}

// sizeOf returns what a list is sorted by.
func sizeOf(b *api.Bucket, by string) (n int64) {
	switch by {
	case job.ByAge:
		return b.HeadAgeMS
	case job.ByLate:
		for cause, ms := range b.LateMS {
			if !job.Causes[cause].Meant {
				n += ms
			}
		}
		return n
	}
	return int64(b.Depth + b.Calls + b.CallsRunning)
}

func (s *Service) buckets(ctx context.Context, name, by string, offset, limit int) (
	api.Buckets, error) {

	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if offset+limit > MaxListed {
		return api.Buckets{}, &admission.RequestError{Field: "offset",
			Reason: fmt.Sprintf("plus limit must be at most %d", MaxListed)}
	}
	entry, err := s.queued(ctx, name)
	if err != nil {
		return api.Buckets{}, err
	}
	select {
	case s.listing <- struct{}{}:
		defer func() { <-s.listing }()
	case <-ctx.Done():
		return api.Buckets{}, translate(ctx.Err())
	}
	answers := s.askAll(ctx, entry.Policy, by, offset+limit)
	if ctx.Err() != nil {
		return api.Buckets{}, translate(ctx.Err())
	}
	var page api.Buckets
	var all []api.Bucket
	for number, a := range answers {
		if !a.complete {
			page.Unanswered = append(page.Unanswered, number)
			continue
		}
		page.Total += a.total
		for _, state := range a.buckets {
			all = append(all, api.Bucket{Key: state.Key.Raw(), Partition: number,
				Depth: state.Depth, BucketState: &state.BucketState, Hold: state.Hold})
		}
	}
	slices.SortFunc(all, func(a, b api.Bucket) int {
		return cmp.Or(cmp.Compare(sizeOf(&b, by), sizeOf(&a, by)), cmp.Compare(a.Key, b.Key))
	})
	from, to := min(offset, len(all)), min(offset+limit, len(all))
	page.Buckets = append([]api.Bucket{}, all[from:to]...)
	for i := range page.Buckets {
		page.Buckets[i].Why = wording{p: entry.Policy, now: time.Now()}.bucket(&page.Buckets[i])
	}
	if to < page.Total && to == offset+limit && to < MaxListed {
		page.Next = &to
	}
	return page, nil
}

const policiesAtOnce = 8

// AllBuckets lists permitted buckets by one of [job.BucketOrders].
func (s *Service) AllBuckets(ctx context.Context, may func(policy string) bool, by string,
	limit int) (api.AllBuckets, error) {

	if by == job.ByRefused {
		return s.refused(ctx, may, limit)
	}
	policies, err := s.Policies(ctx)
	if err != nil {
		return api.AllBuckets{}, err
	}
	all := api.AllBuckets{Buckets: []api.PlacedBucket{}, Depths: map[string]uint64{},
		Bytes: map[string]api.Fill{}, Unanswered: map[string][]int{}}
	var mu sync.Mutex
	policies = slices.DeleteFunc(policies, func(p Policy) bool {
		return !p.Policy.HasQueue() || !may(p.Policy.Name)
	})
	err = each(policiesAtOnce, policies, func(p *Policy) error {
		page, jobs, err := s.page(ctx, p.Policy.Name, by, 0, limit)
		switch {
		case errors.Is(err, admission.ErrUnknownPolicy):
			return nil
		case err != nil:
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		all.Total += page.Total
		if jobs > 0 {
			all.Depths[p.Policy.Name], all.Bytes[p.Policy.Name] = jobs, page.Bytes
		}
		for _, b := range page.Buckets {
			all.Buckets = append(all.Buckets, api.PlacedBucket{Policy: p.Policy.Name, Bucket: b})
		}
		if len(page.Unanswered) > 0 {
			all.Unanswered[p.Policy.Name] = page.Unanswered
		}
		return nil
	})
	if err != nil {
		return api.AllBuckets{}, err
	}
	slices.SortFunc(all.Buckets, func(a, b api.PlacedBucket) int {
		return cmp.Or(cmp.Compare(sizeOf(&b.Bucket, by), sizeOf(&a.Bucket, by)),
			cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Key, b.Key))
	})
	all.Buckets = all.Buckets[:min(limit, len(all.Buckets))]
	for _, p := range policies {
		explainFill(&all, p.Policy)
	}
	return all, nil
}

type listed struct {
	buckets  []job.BucketState
	total    int
	complete bool
}

func (s *Service) askAll(ctx context.Context, p policy.Policy, by string, most int) []listed {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout/5)
	defer cancel()
	answers := make([]listed, p.Partitions)
	var wg sync.WaitGroup
	for number := range answers {
		wg.Go(func() { answers[number] = s.askFirst(ctx, p.Name, number, by, most) })
	}
	wg.Wait()
	return answers
}

func (s *Service) askFirst(ctx context.Context, policy string, partition int, by string,
	most int) (l listed) {

	known := map[queue.Key]bool{}
	for offset := 0; offset < most; offset += askAtOnce {
		q := job.Question{Op: job.OpBuckets, By: by, Offset: offset,
			Limit: min(askAtOnce, most-offset)}
		a, err := s.ask(ctx, policy, partition, q)
		if err != nil {
			return listed{}
		}
		l.total = a.Total
		for _, state := range a.Buckets {
			if !known[state.Key] {
				known[state.Key] = true
				l.buckets = append(l.buckets, state)
			}
		}
		if len(a.Buckets) < q.Limit {
			break
		}
	}
	l.complete = true
	return l
}

// Bucket is a single bucket, with its limits and the observations of its starts.
type Bucket struct {
	api.Bucket
	Audit    *audit.Standing   `json:"audit,omitempty"` // of its starts
	Override *inforce.Override `json:"override,omitempty"`
}

// An unknown bucket is empty.
func (s *Service) Bucket(ctx context.Context, name string, key queue.Key) (Bucket, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	entry, err := s.queued(ctx, name)
	if err != nil {
		return Bucket{}, err
	}
	b, err := s.bucket(ctx, entry, key)
	w := wording{p: entry.Policy, now: time.Now()}
	if b.Override != nil {
		w.own = *b.Override
	}
	b.Why = w.bucket(&b.Bucket)
	return b, err
}

func (s *Service) bucket(ctx context.Context, entry inforce.Entry, key queue.Key) (Bucket, error) {
	name := entry.Policy.Name
	b := Bucket{Bucket: api.Bucket{Key: key.Raw(), Partition: s.partitionOf(entry.Policy, key)}}
	if seen, known := s.options.Audited(name, key); known {
		b.Audit = &seen
	}
	switch own, err := s.policies.Override(ctx, name, key); {
	case err == nil:
		b.Override = &own.Override
	case !errors.Is(err, jet.ErrNotFound):
		return Bucket{}, translate(err)
	}
	look, cancelLook := context.WithTimeout(ctx, s.options.Timeout/5)
	defer cancelLook()
	a, err := s.ask(look, name, b.Partition, job.Question{Op: job.OpBucket, Key: key})
	answered := err == nil && a.Bucket != nil
	if answered {
		b.Depth, b.BucketState, b.Hold = a.Bucket.Depth, &a.Bucket.BucketState, a.Bucket.Hold
		if !a.Bucket.Reading {
			return b, nil
		}
	}
	// Without a drainer JetStream has the depth.
	depth, err := s.broker.BucketDepth(ctx, name, b.Partition, key)
	if err != nil && !errors.Is(err, jet.ErrNoStream) {
		return Bucket{}, translate(err)
	}
	b.Depth = int(depth)
	switch {
	case !answered:
		b.Unanswered = []int{b.Partition}
		if depth > 0 {
			b.By = job.BlockedByNoDrainer
		}
	case depth > 0 && b.By == "":
		b.By = job.BlockedByStorage
	}
	return b, nil
}

// Purge drops a bucket's jobs that do not run, without dead letters, or all that it can in time.
// After ErrNoDrainer some may have been dropped.
func (s *Service) Purge(ctx context.Context, name string, key queue.Key) (api.Purged, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	entry, err := s.queued(ctx, name)
	if err != nil {
		return api.Purged{}, err
	}
	began := time.Now()
	removed, more, err := s.purge(ctx, entry.Policy, key)
	s.NoteTried(ctx, err, "bucket purged", "policy", name, "key", key.Raw(), "removed", removed,
		"more", more, "took", time.Since(began))
	if err != nil {
		return api.Purged{}, err
	}
	return api.Purged{Key: key.Raw(), Removed: removed, More: more}, nil
}

func (s *Service) purge(ctx context.Context, p policy.Policy,
	key queue.Key) (removed int, more bool, err error) {
	partition := s.partitionOf(p, key)
	q := job.Question{Op: job.OpPurge, Key: key}
	for end, _ := ctx.Deadline(); ; {
		a, err := s.ask(ctx, p.Name, partition, q)
		removed += a.Removed
		switch {
		case errors.Is(err, errNobody):
			n, err := s.broker.DropBucket(ctx, p.Name, partition, key)
			if removed += n; err == nil && n > 0 {
				continue // an owner that came meanwhile may have read them
			}
			if removed > 0 && errors.Is(err, jet.ErrUnavailable) {
				err = nil
			}
			return removed, ctx.Err() != nil, translate(err)
		case err != nil && removed == 0:
			return 0, false, err
		case err != nil, a.More == 0, time.Until(end) < s.options.Timeout/2:
			return removed, err != nil || a.More > 0, nil
		default:
			q.Jobs = []uint64{a.More}
		}
	}
}

const refusedAtOnce = 64

// refused lists the buckets with most refusals by this process in the last minute, counted from the
// first request on.
func (s *Service) refused(ctx context.Context, may func(policy string) bool, limit int) (
	api.AllBuckets, error) {

	ctx, cancel := s.bounded(ctx)
	defer cancel()
	policies, err := s.Policies(ctx)
	if err != nil {
		return api.AllBuckets{}, err
	}
	seen, err := s.Watch().Refusals(func(name string) bool {
		return may(name) && slices.ContainsFunc(policies, func(p Policy) bool {
			return p.Policy.Name == name && p.Policy.HasQueue()
		})
	})
	if err != nil {
		return api.AllBuckets{}, err
	}
	window := seen.Window.Milliseconds()
	all := api.AllBuckets{Buckets: []api.PlacedBucket{}, WindowMS: &window}
	for name, keys := range seen.Keys {
		for _, k := range keys {
			all.Buckets = append(all.Buckets, api.PlacedBucket{Policy: name,
				Bucket: api.Bucket{Key: k.Key}, Refused: k.Refused})
		}
	}
	slices.SortFunc(all.Buckets, func(a, b api.PlacedBucket) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.Policy, b.Policy),
			cmp.Compare(a.Key, b.Key))
	})
	all.Total = len(all.Buckets)
	all.Buckets = all.Buckets[:min(limit, all.Total)]
	return all, each(refusedAtOnce, all.Buckets, func(b *api.PlacedBucket) error {
		key, _ := queue.EncodeKey(b.Key)
		found, err := s.Bucket(ctx, b.Policy, key)
		switch {
		case err == nil:
			b.Bucket = found.Bucket
		case errors.Is(err, admission.ErrUnknownPolicy):
			return nil
		}
		return err
	})
}
