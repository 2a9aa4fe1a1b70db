package manage

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/queue/job"
)

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
