package manage

import (
	"context"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

type EndedJob struct {
	Job        string    `json:"job"`
	Key        *string   `json:"key,omitempty"`
	State      job.End   `json:"state"`
	AcceptedAt time.Time `json:"accepted_at"`

	// Of a dead job, while its dead letter exists.

	Letter    uint64     `json:"letter,omitempty"`
	Reason    string     `json:"reason,omitempty"`
	LastError string     `json:"last_error,omitempty"`
	Attempts  *int       `json:"attempts,omitempty"`
	Tags      []string   `json:"tags,omitempty"`
	DeadAt    *time.Time `json:"dead_at,omitempty"`
	Size      *int       `json:"size,omitempty"`

	ReplayedAs string `json:"replayed_as,omitempty"`

	// From the history of a policy with result_retention.

	ID         uint64     `json:"id,omitempty"`
	EndedAt    *time.Time `json:"ended_at,omitempty"`
	DurationMS *int64     `json:"duration_ms,omitempty"`
	Status     int        `json:"status,omitempty"`
	Answer     *string    `json:"answer,omitempty"`
	Bytes      []byte     `json:"answer_base64,omitempty"`
}

type EndedJobs struct {
	Jobs []EndedJob `json:"jobs"`
	Next *uint64    `json:"next,omitempty"`
}

// History lists jobs that ended before a history id (0: the last ones), of one key or of all. The
// search is bounded, so a page may be short.
func (s *Service) History(ctx context.Context, name string, key job.Key, before uint64,
	limit int) (EndedJobs, error) {

	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if _, err := s.queued(ctx, name); err != nil {
		return EndedJobs{}, err
	}
	found, next, err := s.broker.History(name).List(ctx, key, before, limit)
	if err != nil {
		return EndedJobs{}, translate(err)
	}
	page := EndedJobs{Jobs: make([]EndedJob, len(found))}
	for i, past := range found {
		page.Jobs[i] = EndedJob{Job: job.ID(name, past.Seq)}
		page.Jobs[i].past(past)
	}
	if next > 0 {
		page.Next = &next
	}
	return page, nil
}

func (j *EndedJob) past(p queue.HistoryEntry) {
	key := p.Key.Raw()
	j.Key, j.State, j.AcceptedAt, j.EndedAt, j.ID = &key, p.How, p.Accepted, &p.Ended, p.ID
	j.Reason, j.LastError, j.Status = string(p.Reason), p.Error, p.Status
	if failed := p.Attempt; failed > 0 {
		if p.How == job.EndDone {
			failed--
			j.DurationMS = &p.DurationMS
		}
		j.Attempts = &failed
	}
	if len(p.Answer) > 0 {
		j.Answer, j.Bytes = shown(whole(p.Answer))
	}
}

// whole removes an incomplete last character.
func whole(text []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if last := text[len(text)-i:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return text[:len(text)-i]
			}
			break
		}
	}
	return text
}

func (s *Service) Ended(ctx context.Context, name string, seq uint64) (EndedJob, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	j := EndedJob{Job: job.ID(name, seq)}
	if !policy.IsName(name) {
		return EndedJob{}, gone(j.Job)
	}
	past, err := s.broker.History(name).Read(ctx, seq)
	if err == nil {
		j.past(past)
	} else if !errors.Is(err, queue.ErrNotFound) {
		return EndedJob{}, translate(err)
	}
	end, err := s.broker.Results().Read(ctx, name, seq)
	switch {
	case errors.Is(err, queue.ErrNotFound) && j.ID > 0:
		return j, nil
	case errors.Is(err, queue.ErrNotFound):
		return EndedJob{}, gone(j.Job)
	case err != nil:
		return EndedJob{}, translate(err)
	case !end.Accepted.Equal(j.AcceptedAt):
		j = EndedJob{Job: j.Job} // of a former policy of the name
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
		return j, nil // of a former policy of the name
	}
	l := letter(found)
	j.Key, j.Letter, j.Reason, j.LastError = &l.Key, l.ID, l.Reason, l.Error
	j.Attempts, j.DeadAt, j.Tags, j.Size = &l.Attempts, &l.DeadAt, l.Tags, &l.Size
	return j, nil
}

func (s *Service) JobOrEnd(ctx context.Context, policy string, seq uint64) (any, error) {
	return s.orEnd(ctx, s.Job, policy, seq)
}

// State returns the state of a job, or how it ended, and when it was accepted.
func (s *Service) State(ctx context.Context, policy string, seq uint64) (state string,
	accepted time.Time, err error) {

	found, err := s.JobOrEnd(ctx, policy, seq)
	switch j := found.(type) {
	case Job:
		return j.State, j.AcceptedAt, err
	case EndedJob:
		return string(j.State), j.AcceptedAt, err
	}
	return "", accepted, err
}

func (s *Service) WholeJobOrEnd(ctx context.Context, policy string, seq uint64) (any, error) {
	return s.orEnd(ctx, s.WholeJob, policy, seq)
}

func (s *Service) orEnd(ctx context.Context,
	look func(ctx context.Context, policy string, seq uint64) (Job, error),
	policy string, seq uint64) (any, error) {

	job, err := look(ctx, policy, seq)
	if errors.Is(err, admission.ErrNotFound) || errors.Is(err, admission.ErrUnknownPolicy) {
		ended, endedErr := s.Ended(ctx, policy, seq)
		if !errors.Is(endedErr, admission.ErrNotFound) {
			return ended, endedErr
		}
	}
	return job, err
}
