package manage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

// EndedJob is what became of a job that has ended, as far as that is remembered.
type EndedJob struct {
	Job        string    `json:"job"`           // its id
	Key        *string   `json:"key,omitempty"` // nil when nobody knows it any more
	State      job.End   `json:"state"`
	AcceptedAt time.Time `json:"accepted_at"`

	// Of a dead job: the id of its dead letter, and what that says; none of it when the letter was
	// discarded or is too old.

	Letter    uint64     `json:"letter,omitempty"`
	Reason    string     `json:"reason,omitempty"`
	LastError string     `json:"last_error,omitempty"`
	Attempts  *int       `json:"attempts,omitempty"`
	Tags      []string   `json:"tags,omitempty"`
	BuriedAt  *time.Time `json:"buried_at,omitempty"`
	Size      *int       `json:"size,omitempty"` // bytes of the body

	// of a replayed one: the id of the job that was made of its letter
	ReplayedAs string `json:"replayed_as,omitempty"`
}

// Ended returns what became of a job that has ended: ErrNotFound when that is not remembered, see
// [queue.Ends.Read]. Its policy may be gone.
func (s *Service) Ended(ctx context.Context, name string, seq uint64) (EndedJob, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	j := EndedJob{Job: job.ID(name, seq)}
	notFound := fmt.Errorf("%w: job %.64s has finished, or never was", admission.ErrNotFound, j.Job)
	if !policy.IsName(name) {
		return EndedJob{}, notFound
	}
	end, err := s.broker.Ends().Read(ctx, name, seq)
	if errors.Is(err, queue.ErrNotFound) {
		return EndedJob{}, notFound
	}
	if err != nil {
		return EndedJob{}, translate(err)
	}
	j.State, j.AcceptedAt = end.How, end.Accepted
	if end.Job > 0 {
		j.ReplayedAs = job.ID(name, end.Job)
	}
	if end.How != job.EndDead {
		return j, nil
	}
	found, err := s.broker.Letters(name).Read(ctx, end.Letter)
	switch {
	case errors.Is(err, queue.ErrNotFound):
		return j, nil
	case err != nil:
		return EndedJob{}, translate(err)
	case found.Seq != seq || !found.Stored.Equal(end.Accepted):
		return j, nil // ids begin again when a policy is deleted and created again
	}
	l := letter(found)
	j.Key, j.Letter, j.Reason, j.LastError = &l.Key, l.ID, l.Reason, l.Error
	j.Attempts, j.BuriedAt, j.Tags, j.Size = &l.Attempts, &l.BuriedAt, l.Tags, &l.Size
	return j, nil
}
