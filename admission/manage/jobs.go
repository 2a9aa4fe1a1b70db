package manage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/queue"
)

// States of a job besides those of [queue.JobState].
const (
	JobStored    = "stored"    // it is accepted, and no drainer has it in its hands, perhaps for a moment only
	JobCancelled = "cancelled" // it has just been dropped
)

// Job is how a job stands.
type Job struct {
	Job       string `json:"job"` // its id
	Key       string `json:"key"`
	Partition int    `json:"partition"`
	State     string `json:"state"`
	// Position is how many jobs of its bucket start before it; nil unless it waits.
	Position *int `json:"position"`
	// ExpectMS is the milliseconds until it starts; nil while nobody can tell: paused, held by concurrency, no drainer.
	ExpectMS  *int64 `json:"expect_ms"`
	Attempts  *int   `json:"attempts,omitempty"` // that failed; nil when no drainer has it
	LastError string `json:"last_error,omitempty"`
	queue.Hold
	AcceptedAt time.Time  `json:"accepted_at"`
	Deadline   *time.Time `json:"deadline,omitempty"`
	NotBefore  *time.Time `json:"not_before,omitempty"`
	Cost       int64      `json:"cost"`
	Priority   int        `json:"priority"`
	Size       int        `json:"size"` // bytes of the body
}

func storedJob(policy string, stored queue.Arrived) Job {
	j := Job{Job: jobID(policy, stored.Seq), Key: stored.Key.Raw(), Partition: stored.Partition, State: JobStored,
		AcceptedAt: stored.Stored, Cost: stored.Cost, Priority: stored.Priority, Size: stored.Size}
	if !stored.Deadline.IsZero() {
		j.Deadline = &stored.Deadline
	}
	if !stored.NotBefore.IsZero() {
		j.NotBefore = &stored.NotBefore
	}
	return j
}

func (j *Job) set(state *queue.JobState) {
	j.State, j.Position, j.ExpectMS = state.State, state.Position, state.ExpectMS
	j.Attempts, j.LastError, j.Hold = &state.Attempts, state.LastError, state.Hold
}

// stored reads a job from its stream.
func (s *Service) stored(ctx context.Context, name string, seq uint64) (Job, error) {
	stored, err := s.broker.StoredJob(ctx, name, seq)
	if errors.Is(err, queue.ErrNotFound) || errors.Is(err, queue.ErrNoStream) {
		return Job{}, fmt.Errorf("%w: job %s has finished, or never was", admission.ErrNotFound, jobID(name, seq))
	}
	if err != nil {
		return Job{}, translate(err)
	}
	return storedJob(name, stored), nil
}

// Job says how a job stands that has not finished; one that has is ErrNotFound.
func (s *Service) Job(ctx context.Context, name string, seq uint64) (Job, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if _, err := s.queued(ctx, name); err != nil {
		return Job{}, err
	}
	job, err := s.stored(ctx, name, seq)
	if err != nil {
		return Job{}, err
	}
	look, cancelLook := context.WithTimeout(ctx, lookTimeout)
	defer cancelLook()
	a, err := s.ask(look, name, job.Partition, queue.ValveQuestion{Op: queue.OpJob, Jobs: []uint64{seq}})
	switch {
	case err != nil:
		job.By = queue.HeldByNoDrainer
		return job, nil
	case a.Job == nil:
		return s.stored(ctx, name, seq) // it may have finished since
	}
	job.set(a.Job)
	return job, nil
}

// Cancel drops a job that waits, backs off or is not yet due, for good and without a dead letter. One that runs, or has
// just ended, is ErrConflict. A drainer that owns the partition and does not answer is ErrNoDrainer.
func (s *Service) Cancel(ctx context.Context, name string, seq uint64) (Job, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if _, err := s.queued(ctx, name); err != nil {
		return Job{}, err
	}
	job, err := s.stored(ctx, name, seq)
	if err != nil {
		return Job{}, err
	}
	a, err := s.ask(ctx, name, job.Partition, queue.ValveQuestion{Op: queue.OpCancel, Jobs: []uint64{seq}})
	if errors.Is(err, errNobody) {
		err = s.broker.DropJob(ctx, name, seq)
		if errors.Is(err, queue.ErrNotFound) {
			return Job{}, fmt.Errorf("%w: job %s has just ended", admission.ErrConflict, job.Job)
		}
		a, err = queue.ValveAnswer{Removed: 1}, translate(err)
	}
	switch {
	case err != nil:
		return Job{}, err
	case a.Removed > 0:
		if a.Job != nil {
			job.set(a.Job)
		}
		job.State, job.Position, job.ExpectMS, job.Hold = JobCancelled, nil, nil, queue.Hold{}
		s.log(ctx, "job cancelled", "job", job.Job, "key", job.Key)
		return job, nil
	case a.Job == nil:
		if _, err := s.stored(ctx, name, seq); err != nil {
			return Job{}, err
		}
		return Job{}, fmt.Errorf("%w: the one of partition %d has not received job %s yet", admission.ErrNoDrainer,
			job.Partition, job.Job)
	case a.Job.State == queue.JobFinishing:
		return Job{}, fmt.Errorf("%w: job %s has just ended", admission.ErrConflict, job.Job)
	default:
		return Job{}, fmt.Errorf("%w: job %s runs and cannot be cancelled", admission.ErrConflict, job.Job)
	}
}
