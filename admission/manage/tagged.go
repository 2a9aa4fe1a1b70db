package manage

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

const (
	taggedPage    = 1000
	cancelsAtOnce = 16
)

// CancelTagged cancels jobs with a tag, accepted after a sequence, except for later jobs. Valves
// have no tags, so it reads the queue, about 100,000 jobs per second.
func (s *Service) CancelTagged(ctx context.Context, name string, key *job.Key, tag string,
	after uint64) (done api.Cancelled, err error) {

	ctx, cancel := context.WithTimeout(ctx, s.options.BulkTimeout)
	defer cancel()
	entry, err := s.queued(ctx, name)
	if err != nil {
		return done, err
	}
	where, began, start := queue.JobFilter{}, time.Now(), after
	if key != nil {
		where = queue.JobFilter{Key: *key, Partition: s.partitionOf(entry.Policy, *key)}
	}
	stream, err := s.broker.Stream(ctx, name)
	last := stream.Last
	for err == nil && after < last {
		var page []job.Arrived
		page, err = s.broker.StoredJobs(ctx, name, where, after+1, taggedPage)
		if err != nil || len(page) == 0 {
			break
		}
		through := page[len(page)-1].Seq
		page = slices.DeleteFunc(page, func(j job.Arrived) bool {
			return j.Seq > last || j.Malformed != nil || !slices.Contains(job.Tags(j.Header), tag)
		})
		if through, err = s.cancelAll(ctx, name, page, through, &done); through > after {
			after = through
		}
	}
	if errors.Is(err, queue.ErrNoStream) {
		return done, nil
	}
	s.Note(ctx, "jobs cancelled by their tag", "policy", name, "tag", tag, "cancelled",
		done.Cancelled, "left", done.Left, "took", time.Since(began), "error", err)
	if err != nil {
		if after == start && done == (api.Cancelled{}) {
			return done, translate(err)
		}
		done.Next = &after
	}
	return done, nil
}

// cancelAll returns through which sequence all are done.
func (s *Service) cancelAll(ctx context.Context, name string, page []job.Arrived, through uint64,
	done *api.Cancelled) (uint64, error) {

	var mu sync.Mutex
	err := each(cancelsAtOnce, page, func(stored *job.Arrived) error {
		_, err := s.cancel(ctx, name, *stored)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			done.Cancelled++
		case errors.Is(err, admission.ErrConflict), errors.Is(err, admission.ErrNotFound):
			done.Left++
		default:
			through = min(through, stored.Seq-1)
			return err
		}
		return nil
	})
	return through, err
}
