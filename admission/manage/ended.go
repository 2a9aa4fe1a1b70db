package manage

import (
	"context"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

// History lists jobs that ended before a history id (0: the last ones), of one key or of all. The
// search is bounded, so a page may be short.
func (s *Service) History(ctx context.Context, name string, key job.Key, before uint64,
	limit int) (api.EndedJobs, error) {

	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if _, err := s.queued(ctx, name); err != nil {
		return api.EndedJobs{}, err
	}
	found, next, err := s.broker.History(name).List(ctx, key, before, limit)
	if err != nil {
		return api.EndedJobs{}, translate(err)
	}
	page := api.EndedJobs{Jobs: make([]api.EndedJob, len(found))}
	for i, past := range found {
		page.Jobs[i] = api.EndedJob{Job: job.ID(name, past.Seq)}
		setPast(&page.Jobs[i], past)
	}
	if next > 0 {
		page.Next = &next
	}
	return page, nil
}

func setPast(j *api.EndedJob, p queue.HistoryEntry) {
	key := p.Key.Raw()
	j.Key, j.State, j.AcceptedAt, j.EndedAt, j.ID = &key, string(p.How), p.Accepted, &p.Ended, p.ID
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

func (s *Service) Ended(ctx context.Context, name string, seq uint64) (api.EndedJob, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	j, err := s.ended(ctx, name, seq)
	if err == nil {
		j.Why = howItEnded(&j)
	}
	return j, err
}

func (s *Service) ended(ctx context.Context, name string, seq uint64) (api.EndedJob, error) {
	j := api.EndedJob{Job: job.ID(name, seq)}
	if !policy.IsName(name) {
		return api.EndedJob{}, gone(j.Job)
	}
	past, err := s.broker.History(name).Read(ctx, seq)
	if err == nil {
		setPast(&j, past)
	} else if !errors.Is(err, queue.ErrNotFound) {
		return api.EndedJob{}, translate(err)
	}
	end, err := s.broker.Results().Read(ctx, name, seq)
	switch {
	case errors.Is(err, queue.ErrNotFound) && j.ID > 0:
		return j, nil
	case errors.Is(err, queue.ErrNotFound):
		return api.EndedJob{}, gone(j.Job)
	case err != nil:
		return api.EndedJob{}, translate(err)
	case !end.Accepted.Equal(j.AcceptedAt):
		j = api.EndedJob{Job: j.Job} // of a former policy of the name
	}
	j.State, j.AcceptedAt = string(end.How), end.Accepted
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
		return api.EndedJob{}, translate(err)
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
	case api.Job:
		return j.State, j.AcceptedAt, err
	case api.EndedJob:
		return j.State, j.AcceptedAt, err
	}
	return "", accepted, err
}

func (s *Service) WholeJobOrEnd(ctx context.Context, policy string, seq uint64) (any, error) {
	return s.orEnd(ctx, s.WholeJob, policy, seq)
}

func (s *Service) orEnd(ctx context.Context,
	look func(ctx context.Context, policy string, seq uint64) (api.Job, error),
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
