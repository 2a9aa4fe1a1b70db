package manage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// EndedJob is what became of a job that has ended, as far as that is remembered.
type EndedJob struct {
	Job        string    `json:"job"`           // its id
	Key        *string   `json:"key,omitempty"` // nil when nobody knows it any more
	State      queue.End `json:"state"`
	AcceptedAt time.Time `json:"accepted_at"`

	// Of a dead job: the id of its dead letter, and what that says; none of it when the letter was discarded or is too old.

	Letter    uint64     `json:"letter,omitempty"`
	Reason    string     `json:"reason,omitempty"`
	LastError string     `json:"last_error,omitempty"`
	Attempts  *int       `json:"attempts,omitempty"`
	BuriedAt  *time.Time `json:"buried_at,omitempty"`
	Size      *int       `json:"size,omitempty"` // bytes of the body

	ReplayedAs string `json:"replayed_as,omitempty"` // of a replayed one: the id of the job that was made of its letter
}

// Ended says what became of a job that has ended: ErrNotFound when that is not remembered, see [queue.Broker.Ended]. Its
// policy may be gone.
func (s *Service) Ended(ctx context.Context, name string, seq uint64) (EndedJob, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	job := EndedJob{Job: jobID(name, seq)}
	notFound := fmt.Errorf("%w: job %.64s has finished, or never was", admission.ErrNotFound, job.Job)
	if !policy.IsName(name) {
		return EndedJob{}, notFound
	}
	end, err := s.broker.Ended(ctx, name, seq)
	if errors.Is(err, queue.ErrNotFound) {
		return EndedJob{}, notFound
	}
	if err != nil {
		return EndedJob{}, translate(err)
	}
	job.State, job.AcceptedAt = end.How, end.Accepted
	if end.Job > 0 {
		job.ReplayedAs = jobID(name, end.Job)
	}
	if end.How != queue.EndDead {
		return job, nil
	}
	found, err := s.broker.DeadLetter(ctx, name, end.Letter)
	switch {
	case errors.Is(err, queue.ErrNotFound):
		return job, nil
	case err != nil:
		return EndedJob{}, translate(err)
	case found.Seq != seq || !found.Stored.Equal(end.Accepted):
		return job, nil // ids begin anew when a policy is deleted and made again
	}
	l := letter(found)
	job.Key, job.Letter, job.Reason, job.LastError = &l.Key, l.ID, l.Reason, l.Error
	job.Attempts, job.BuriedAt, job.Size = &l.Attempts, &l.BuriedAt, &l.Size
	return job, nil
}
