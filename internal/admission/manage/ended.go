package manage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/base/redact"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// History lists jobs that ended before a history id (0: the last ones), of one key or of all. The
// search is bounded, so a page may be short.
func (s *Service) History(ctx context.Context, name string, key queue.Key, before uint64,
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

func setPast(j *api.EndedJob, p jet.HistoryEntry) {
	key := p.Key.Raw()
	j.Key, j.State, j.AcceptedAt, j.EndedAt, j.ID = &key, string(p.How), p.Accepted, &p.Ended, p.ID
	j.Reason, j.LastError, j.Status = string(p.Reason), p.Error, p.Status
	if failed := p.Attempt; failed > 0 {
		if p.How == queue.EndDone {
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

// Ended returns an ended job, or admission.ErrNotFound.
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
	} else if !errors.Is(err, jet.ErrNotFound) {
		return api.EndedJob{}, translate(err)
	}
	end, err := s.broker.Results().Read(ctx, name, seq)
	switch {
	case errors.Is(err, jet.ErrNotFound) && j.ID > 0:
		return j, nil
	case errors.Is(err, jet.ErrNotFound):
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
	if end.How != queue.EndDead {
		return j, nil
	}
	found, err := s.broker.Letters(name).Read(ctx, end.Letter)
	switch {
	case errors.Is(err, jet.ErrNotFound):
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

// JobOrEnd returns a job ([api.Job]), or how it ended ([api.EndedJob]).
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

// WholeJobOrEnd is JobOrEnd with the job's body.
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

// DeadPolicies lists policies with dead letters, which outlive their policies; most letters first.
func (s *Service) DeadPolicies(ctx context.Context, may func(policy string) bool) (
	api.DeadPolicies, error) {

	ctx, cancel := s.bounded(ctx)
	defer cancel()
	all, err := s.broker.LetterCounts(ctx)
	all = slices.DeleteFunc(all, func(p api.DeadPolicy) bool { return !may(p.Policy) })
	return api.DeadPolicies{Policies: all}, translate(err)
}

// lettered also accepts a former policy that has dead letters.
func (s *Service) lettered(ctx context.Context, name string) (inforce.Entry, error) {
	entry, err := s.queued(ctx, name)
	if err == nil || errors.Is(err, admission.ErrUnavailable) || !policy.IsName(name) {
		return entry, err
	}
	switch found, lookErr := s.broker.Letters(name).List(ctx, 0, 1); {
	case lookErr != nil:
		return entry, translate(lookErr)
	case len(found) == 0:
		return entry, err
	}
	return entry, nil
}

func letter(l jet.StoredLetter) api.DeadLetter {
	return api.DeadLetter{ID: l.ID, Key: l.Key.Raw(), Job: job.ID(l.Policy, l.Seq),
		Reason: l.Reason, Error: l.Error, Attempts: l.Attempts,
		AcceptedAt: l.Stored, DeadAt: l.Buried, Tags: job.Tags(l.Header), Size: l.Size}
}

// DeadLetters lists a policy's dead letters from the oldest, at most limit, after one's id.
func (s *Service) DeadLetters(ctx context.Context, name string, after uint64,
	limit int) (api.DeadLetters, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if _, err := s.lettered(ctx, name); err != nil {
		return api.DeadLetters{}, err
	}
	found, err := s.broker.Letters(name).List(ctx, after, limit+1)
	if err != nil {
		return api.DeadLetters{}, translate(err)
	}
	discarded, err := s.broker.Letters(name).Discarded(ctx)
	if err != nil {
		return api.DeadLetters{}, translate(err)
	}
	page := api.DeadLetters{Letters: make([]api.DeadLetter, 0, len(found)), Discarded: discarded}
	for i, l := range found {
		if i == limit {
			page.Next = &page.Letters[limit-1].ID
			break
		}
		page.Letters = append(page.Letters, letter(l))
	}
	return page, nil
}

// DeadLetter returns a dead letter with its body, or admission.ErrNotFound.
func (s *Service) DeadLetter(ctx context.Context, name string, id uint64) (api.DeadLetter, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if _, err := s.lettered(ctx, name); err != nil {
		return api.DeadLetter{}, err
	}
	found, err := s.broker.Letters(name).Read(ctx, id)
	if err != nil {
		return api.DeadLetter{}, noLetter(err, name, id)
	}
	l := letter(found)
	l.Header = redact.Header(found.Header)
	l.Body, l.Bytes = shown(found.Body)
	return l, nil
}

func noLetter(err error, name string, id uint64) error {
	if errors.Is(err, jet.ErrNotFound) {
		return fmt.Errorf("%w: policy %q has no dead letter %d", admission.ErrNotFound, name, id)
	}
	return translate(err)
}

// Replay makes a dead letter a new job at the end of its bucket, without asking a limiter.
// ErrConflict: it cannot be a job, or the policy is draining.
func (s *Service) Replay(ctx context.Context, name string, id uint64) (admission.Outcome, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	entry, err := s.lettered(ctx, name)
	if err == nil {
		err = takesJobs(entry, name)
	}
	if err != nil {
		return admission.Outcome{}, err
	}
	outcome := admission.Outcome{Quota: admission.Quota{Policy: name,
		Units: entry.Policy.QueueCapacity()}, Remaining: -1}
	switch receipt, err := s.producer.Replay(ctx, name, id); {
	case err == nil:
		s.Note(ctx, "dead letter replayed", "policy", name, "letter", id, "job",
			job.ID(name, receipt.Seq))
		outcome.Verdict, outcome.Job = admission.Queued, job.ID(name, receipt.Seq)
		return outcome, nil
	case errors.Is(err, jet.ErrFull), errors.Is(err, jet.ErrStreamFull):
		outcome.Verdict, outcome.RetryAfter = admission.Rejected, time.Second
		outcome.Refused = admission.ErrQueueFull
		return outcome, nil
	case errors.Is(err, jet.ErrUnfit):
		return admission.Outcome{},
			fmt.Errorf("%w: dead letter %d cannot be replayed: its key or headers are "+
				"malformed", admission.ErrConflict, id)
	default:
		err = noLetter(retired(err, name), name, id)
		s.NoteTried(ctx, err, "dead letter replayed", "policy", name, "letter", id)
		return admission.Outcome{}, err
	}
}

func takesJobs(entry inforce.Entry, name string) error {
	if entry.Draining || entry.Policy.Name == "" {
		return fmt.Errorf("%w: policy %q no longer accepts jobs", admission.ErrConflict, name)
	}
	return nil
}

func retired(err error, name string) error {
	if errors.Is(err, jet.ErrNoStream) {
		return takesJobs(inforce.Entry{}, name)
	}
	return err
}

// A full bucket does not hold up others.
func (s *Service) ReplaySome(ctx context.Context, name string, some jet.DeadLetterFilter) (
	api.Replayed, error) {

	ctx, cancel := s.boundedBulk(ctx)
	defer cancel()
	entry, err := s.lettered(ctx, name)
	if err == nil {
		err = takesJobs(entry, name)
	}
	if err != nil {
		return api.Replayed{}, err
	}
	r, err := s.producer.ReplaySome(ctx, name, some)
	s.Note(ctx, "dead letters replayed", "policy", name, "replayed", r.Replayed, "full", r.Full,
		"unfit", r.Unfit, "error", err)
	if err != nil && r.Replayed == 0 {
		return api.Replayed{}, translate(retired(err, name))
	}
	return r, nil
}

// Discard deletes a dead letter for good.
func (s *Service) Discard(ctx context.Context, name string, id uint64) (api.Discarded, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if _, err := s.lettered(ctx, name); err != nil {
		return api.Discarded{}, err
	}
	err := noLetter(s.broker.Letters(name).Discard(ctx, id), name, id)
	s.NoteTried(ctx, err, "dead letter discarded", "policy", name, "letter", id)
	return api.Discarded{Discarded: 1}, err
}

// DiscardSome deletes the dead letters that a filter names, as many as it can in time.
func (s *Service) DiscardSome(ctx context.Context, name string, some jet.DeadLetterFilter) (
	api.Discarded, error) {

	ctx, cancel := s.boundedBulk(ctx)
	defer cancel()
	if _, err := s.lettered(ctx, name); err != nil {
		return api.Discarded{}, err
	}
	n, err := s.broker.Letters(name).DiscardSome(ctx, some)
	s.NoteTried(ctx, translate(err), "dead letters discarded", "policy", name, "discarded", n,
		"through", some.Through, "reason", some.Reason)
	if err != nil && n == 0 {
		return api.Discarded{}, translate(err)
	}
	done := api.Discarded{Discarded: n, Incomplete: err != nil}
	if _, err := s.entry(ctx, name); errors.Is(err, admission.ErrUnknownPolicy) {
		if err := s.broker.Letters(name).DropEmpty(ctx); err != nil {
			return api.Discarded{}, translate(err)
		}
	}
	return done, nil
}
