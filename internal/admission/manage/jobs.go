package manage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/base/redact"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
)

// States that only a service can tell, beside those of package job.
const (
	JobStored    = "stored" // not yet read by a drainer
	JobCancelled = "cancelled"
)

// JobStates are the states of jobs that have not ended.
var JobStates = []string{job.Waiting, job.Delayed, job.Running, job.Finishing, JobStored}

// Only filters jobs; empty: any.
type Only struct{ State, Tag string }

const mostSought = 2000 // jobs that one page examines

// With a filter a page may be short.
func (s *Service) Jobs(ctx context.Context, name string, key queue.Key, after uint64, limit int,
	only Only) (api.Jobs, error) {

	ctx, cancel := s.bounded(ctx)
	defer cancel()
	entry, err := s.queued(ctx, name)
	if err != nil {
		return api.Jobs{}, err
	}
	partition, page, sought := s.partitionOf(entry.Policy, key), api.Jobs{Jobs: []api.Job{}}, 0
	bucket := jet.JobFilter{Key: key, Partition: partition}
	for {
		want := min(limit-len(page.Jobs), job.MaxExpected)
		found, err := s.broker.StoredJobs(ctx, name, bucket, after+1, want)
		if errors.Is(err, jet.ErrNoStream) || err == nil && len(found) == 0 {
			return page, nil
		}
		if err != nil {
			return api.Jobs{}, translate(err)
		}
		after, sought = found[len(found)-1].Seq, sought+len(found)
		more := sought < mostSought && (only != Only{} || len(found) == want)
		found = slices.DeleteFunc(found, func(j job.Arrived) bool {
			return only.Tag != "" && !slices.Contains(job.Tags(j.Header), only.Tag)
		})
		for _, j := range s.standing(ctx, name, partition, found) {
			if only.State == "" || j.State == only.State {
				page.Jobs = append(page.Jobs, j)
			}
		}
		if more && len(page.Jobs) < limit {
			continue
		}
		rest, err := s.broker.StoredJobs(ctx, name, bucket, after+1, 1)
		if len(rest) > 0 {
			page.Next = &after
		}
		return page, translate(err)
	}
}

func (s *Service) standing(ctx context.Context, name string, partition int,
	found []job.Arrived) []api.Job {

	if len(found) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout/5)
	defer cancel()
	q := job.Question{Op: job.OpJobs}
	for _, j := range found {
		q.Jobs = append(q.Jobs, j.Seq)
	}
	a, err := s.ask(ctx, name, partition, q)
	jobs := make([]api.Job, len(found))
	for i, stored := range found {
		jobs[i] = storedJob(name, stored)
		if err != nil {
			jobs[i].By = job.BlockedByNoDrainer
		} else if len(a.States) > 0 && a.States[0].Seq == stored.Seq {
			set(&jobs[i], &a.States[0])
			a.States = a.States[1:]
		}
	}
	return jobs
}

func storedJob(policy string, stored job.Arrived) api.Job {
	j := api.Job{Job: job.ID(policy, stored.Seq), Key: stored.Key.Raw(),
		Partition: stored.Partition, State: JobStored,
		AcceptedAt: stored.Stored, Cost: stored.Cost, Priority: stored.Priority,
		Tags: job.Tags(stored.Header), Size: stored.Size}
	if !stored.Deadline.IsZero() {
		j.Deadline = &stored.Deadline
	}
	if !stored.NotBefore.IsZero() {
		j.NotBefore = &stored.NotBefore
	}
	return j
}

func set(j *api.Job, state *job.State) {
	j.State, j.Position, j.ETAMS = state.State, state.Position, state.ETAMS
	j.Attempts, j.LastError, j.Hold = &state.Attempts, state.LastError, state.Hold
	j.Calls, j.Progress = state.Calls, state.Progress
	if e := state.Edit; e != nil {
		j.Changed = true
		if e.Priority != nil {
			j.Priority = *e.Priority
		}
		if e.Deadline != nil {
			if j.Deadline = e.Deadline; e.Deadline.IsZero() {
				j.Deadline = nil
			}
		}
		if e.Run {
			j.NotBefore = nil
		}
	}
}

func (s *Service) lookedUp(ctx context.Context, name string, seq uint64) (job.Arrived, error) {
	if _, err := s.queued(ctx, name); err != nil {
		return job.Arrived{}, err
	}
	return s.readJob(ctx, name, seq)
}

func (s *Service) stored(ctx context.Context, name string, seq uint64) (api.Job, error) {
	stored, err := s.readJob(ctx, name, seq)
	if err != nil {
		return api.Job{}, err
	}
	return storedJob(name, stored), nil
}

func (s *Service) readJob(ctx context.Context, name string, seq uint64) (job.Arrived, error) {
	stored, err := s.broker.StoredJob(ctx, name, seq)
	if errors.Is(err, jet.ErrNotFound) || errors.Is(err, jet.ErrNoStream) {
		return job.Arrived{}, gone(job.ID(name, seq))
	}
	return stored, translate(err)
}

func gone(id string) error {
	return fmt.Errorf("%w: job %.64s has finished or never existed; ended jobs are kept for the "+
		"policy's result_retention", admission.ErrNotFound, id)
}

// Job returns a job that has not ended, or ErrNotFound.
func (s *Service) Job(ctx context.Context, name string, seq uint64) (api.Job, error) {
	j, _, err := s.job(ctx, name, seq)
	return j, err
}

// WholeJob is Job with the job's body.
func (s *Service) WholeJob(ctx context.Context, name string, seq uint64) (api.Job, error) {
	j, stored, err := s.job(ctx, name, seq)
	if err != nil {
		return api.Job{}, err
	}
	j.Header = redact.Header(stored.Header)
	j.Body, j.Bytes = shown(stored.Body)
	return j, nil
}

func (s *Service) job(ctx context.Context, name string, seq uint64) (j api.Job,
	stored job.Arrived, err error) {

	ctx, cancel := s.bounded(ctx)
	defer cancel()
	entry, err := s.queued(ctx, name)
	if err == nil {
		stored, err = s.readJob(ctx, name, seq)
	}
	if err == nil {
		j, err = s.found(ctx, name, stored)
	}
	if err == nil {
		j.Why, err = s.whyJob(ctx, entry, stored.Key, &j)
	}
	return j, stored, err
}

func (s *Service) found(ctx context.Context, name string, stored job.Arrived) (api.Job, error) {
	j, seq := storedJob(name, stored), stored.Seq
	look, cancelLook := context.WithTimeout(ctx, s.options.Timeout/5)
	defer cancelLook()
	a, err := s.ask(look, name, j.Partition, job.Question{Op: job.OpJob, Jobs: []uint64{seq}})
	switch {
	case err != nil:
		j.By = job.BlockedByNoDrainer
		return j, nil
	case a.Job == nil:
		return s.stored(ctx, name, seq)
	}
	set(&j, a.Job)
	return j, nil
}

func shown(body []byte) (text *string, bytes []byte) {
	if !utf8.Valid(body) {
		return nil, body
	}
	s := string(body)
	return &s, nil
}

// Cancel drops a job that does not run, without a dead letter. ErrConflict: it runs, or has ended.
func (s *Service) Cancel(ctx context.Context, name string, seq uint64) (api.Job, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	stored, err := s.lookedUp(ctx, name, seq)
	if err != nil {
		return api.Job{}, err
	}
	cancelled, err := s.cancel(ctx, name, stored)
	s.NoteTried(ctx, err, "job cancelled", "policy", name, "job", job.ID(name, seq), "key",
		stored.Key.Raw())
	return cancelled, err
}

func (s *Service) cancel(ctx context.Context, name string, stored job.Arrived) (api.Job,
	error) {

	j, seq := storedJob(name, stored), stored.Seq
	q := job.Question{Op: job.OpCancel, Jobs: []uint64{seq}}
	a, err := s.ask(ctx, name, j.Partition, q)
	if errors.Is(err, errNobody) {
		err = s.broker.DropJob(ctx, name, seq)
		if errors.Is(err, jet.ErrNotFound) {
			return api.Job{}, fmt.Errorf("%w: job %s has just ended", admission.ErrConflict, j.Job)
		}
		if err == nil { // an owner that came meanwhile may have read it
			_, _ = s.ask(ctx, name, j.Partition, q)
		}
		a, err = job.Answer{Removed: 1}, translate(err)
	}
	switch {
	case err != nil:
		return api.Job{}, err
	case a.Removed > 0:
		s.broker.PublishResult(stored.Header, queue.Result{Job: j.Job, End: queue.EndCancelled})
		if a.Job != nil {
			set(&j, a.Job)
		}
		j.State, j.Position, j.ETAMS, j.Hold = JobCancelled, nil, nil, api.Hold{}
		return j, nil
	}
	return api.Job{}, s.untouched(ctx, name, seq, j, a.Job, "cancelled")
}

// Edit changes a job that does not run, and returns once the change is stored. ErrConflict: it runs
// or has ended, or its partition has a thousand changed jobs. ErrNoDrainer: it may be changed.
func (s *Service) Edit(ctx context.Context, name string, seq uint64, want job.Edit) (
	api.Job, error) {

	ctx, cancel := s.bounded(ctx)
	defer cancel()
	stored, err := s.lookedUp(ctx, name, seq)
	if err != nil {
		return api.Job{}, err
	}
	j := storedJob(name, stored)
	a, err := s.ask(ctx, name, j.Partition,
		job.Question{Op: job.OpEdit, Jobs: []uint64{seq}, Edit: &want})
	note := func(err error) {
		changes := []any{"policy", name, "job", j.Job, "key", j.Key, "run", want.Run,
			"front", want.Front}
		if want.Priority != nil {
			changes = append(changes, "priority", *want.Priority)
		}
		if want.Deadline != nil {
			changes = append(changes, "deadline", *want.Deadline)
		}
		s.NoteTried(ctx, err, "job changed", changes...)
	}
	switch {
	case errors.Is(err, errNobody):
		return api.Job{}, fmt.Errorf("%w: partition %d has no owner to change job %s",
			admission.ErrNoDrainer, j.Partition, j.Job)
	case err != nil:
		note(err)
		return api.Job{}, err
	case a.Full:
		return api.Job{}, fmt.Errorf("%w: partition %d already has the maximum number of changed "+
			"jobs", admission.ErrConflict, j.Partition)
	case a.Edited:
		note(nil)
		if j.Changed = true; a.Job != nil { // otherwise it has ended since
			set(&j, a.Job)
		}
		return j, nil
	}
	return api.Job{}, s.untouched(ctx, name, seq, j, a.Job, "changed")
}

func (s *Service) untouched(ctx context.Context, name string, seq uint64, j api.Job,
	stands *job.State, verb string) error {

	switch {
	case stands == nil:
		if _, err := s.stored(ctx, name, seq); err != nil {
			return err
		}
		return fmt.Errorf("%w: the drainer of partition %d has not received job %s yet",
			admission.ErrNoDrainer, j.Partition, j.Job)
	case stands.State == job.Finishing:
		return fmt.Errorf("%w: job %s has just ended", admission.ErrConflict, j.Job)
	}
	return fmt.Errorf("%w: job %s is running and cannot be %s", admission.ErrConflict, j.Job, verb)
}

const (
	taggedPage    = 1000
	cancelsAtOnce = 16
)

// CancelTagged cancels jobs with a tag, accepted after a sequence, except for later jobs. Valves
// have no tags, so it reads the queue, about 100,000 jobs per second.
func (s *Service) CancelTagged(ctx context.Context, name string, key *queue.Key, tag string,
	after uint64) (done api.Cancelled, err error) {

	ctx, cancel := s.boundedBulk(ctx)
	defer cancel()
	entry, err := s.queued(ctx, name)
	if err != nil {
		return done, err
	}
	where, began, start := jet.JobFilter{}, time.Now(), after
	if key != nil {
		where = jet.JobFilter{Key: *key, Partition: s.partitionOf(entry.Policy, *key)}
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
	if errors.Is(err, jet.ErrNoStream) {
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
