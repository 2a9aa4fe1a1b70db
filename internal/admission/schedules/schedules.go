// Package schedules submits jobs at the ticks of JetStream's schedules. A tick's Idempotency-Key is
// derived from the schedule and the instant. The last instant is also stored, because a killed
// server loses such keys.
package schedules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// Outcomes of a tick, in [jet.EventTicked].
const (
	Submitted = "submitted" // its job is stored
	Refused   = "refused"   // the bucket is full; retried until the next tick
	Missed    = "missed"
)

// DefaultName is the name of a schedule that has none.
const DefaultName = "default"

const (
	// while submitting fails
	again = time.Second
	// for a one-time tick
	patience = time.Hour
)

// Options of a Service.
type Options struct {
	Sink queue.Sink
	// Note reports a change of a schedule; see [manage.Service.NoteTried]. Nil: none is reported.
	Note func(ctx context.Context, err error, what string, args ...any)
	// State returns a job's state, or how it ended; see [manage.Service.State]. Nil: unknown.
	State func(ctx context.Context, policy string, seq uint64) (string, time.Time, error)
	// for ticks without a job
	Logger *slog.Logger
}

// Service is safe for concurrent use.
type Service struct {
	broker    *jet.Broker
	schedules *jet.Schedules
	runs      jet.Runs
	jobs      *admit.Service
	options   Options
}

// New returns a service that submits to jobs.
func New(broker *jet.Broker, jobs *admit.Service, o Options) *Service {
	o.Sink = queue.Sinks{o.Sink}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Note == nil {
		o.Note = func(context.Context, error, string, ...any) {}
	}
	if o.State == nil {
		o.State = func(context.Context, string, uint64) (s string, accepted time.Time, err error) {
			return s, accepted, admission.ErrNotFound
		}
	}
	return &Service{broker, broker.Schedules(), broker.Runs(), jobs, o}
}

// note reports a change, and returns its translated error; a zero schedule means no schedule.
func (s *Service) note(ctx context.Context, err error, what string,
	of, before, after jet.Schedule) error {

	err = translate(err)
	var changed inforce.Changes
	for _, f := range []struct {
		name     string
		was, now any
	}{
		{"when", asWritten(before.When), asWritten(after.When)}, {"zone", before.Zone, after.Zone},
		{"paused", before.Paused, after.Paused}, {"bytes", len(before.Body), len(after.Body)},
	} {
		if f.was != f.now {
			changed = append(changed, fmt.Sprintf("%s %v → %v", f.name, f.was, f.now))
		}
	}
	if len(changed) == 0 && !sameJobs(before, after) {
		changed = append(changed, "headers or body")
	}
	s.options.Note(ctx, err, what, "policy", of.Policy, "key", of.Key.Raw(), "schedule", of.Name,
		"changed", changed)
	return err
}

// Request creates or replaces a schedule.
type Request struct {
	admit.SubmitRequest
	Name, When, Zone string
	// Without Manages, By may replace only its own schedules.
	By      string
	Manages bool
}

// Put stores a schedule, or replaces one and keeps its pause. Errors are of package admission.
func (s *Service) Put(ctx context.Context, r Request) (api.Schedule, error) {
	made, err := r.schedule(s.jobs.Sound)
	if err != nil {
		return api.Schedule{}, err
	}
	before, err := s.schedules.Read(ctx, made.Policy, made.Key, made.Name)
	switch {
	case err == nil && !r.Manages && before.By != r.By:
		return api.Schedule{}, fmt.Errorf("%w: the schedule belongs to another client: replacing "+
			"it requires the right operate", admit.ErrForbidden)
	case err != nil && !errors.Is(err, jet.ErrNotFound):
		return api.Schedule{}, translate(err)
	}
	made.By, made.Paused = r.By, before.Paused
	err = s.note(ctx, s.schedules.Put(ctx, made), "schedule written", made, before, made)
	if err != nil {
		return api.Schedule{}, err
	}
	return shown(made, jet.LastRun{}), nil
}

func (r Request) schedule(sound func(admit.SubmitRequest) (map[string][]string, error)) (
	made jet.Schedule, err error) {
	r.Name = cmp.Or(r.Name, DefaultName)
	bad := func(field, reason string) error {
		return &admission.RequestError{Field: field, Reason: reason}
	}
	if !policy.IsName(r.Name) {
		return made, bad(jet.HeaderScheduleName, "want 1 to 32 characters of a-z, 0-9 and -")
	}
	if header, err := checkTimes(r.When, r.Zone); err != nil {
		return made, bad(header, err.Error())
	}
	if len(r.Body) > jet.MaxScheduledBody {
		return made, fmt.Errorf("%w: the body of a schedule's jobs has at most %d bytes",
			admission.ErrTooLarge, jet.MaxScheduledBody)
	}
	stored, err := sound(r.SubmitRequest)
	if err != nil {
		return made, err
	}
	if _, given := stored[job.HeaderIdempotencyKey]; given {
		return made, bad(job.HeaderIdempotencyKey,
			"applies only to single jobs: each tick of a schedule has its own")
	}
	for name := range r.Header {
		if strings.EqualFold(name, admit.WaitHeader) {
			return made, bad(name, "applies only to single jobs: nobody waits for a schedule's")
		}
	}
	return jet.Schedule{Policy: r.Policy, Key: r.Key, Name: r.Name, When: pattern(r.When),
		Zone: r.Zone, Header: stored, Body: r.Body}, nil
}

// SetPaused pauses or resumes a schedule. Missed ticks are not made up for.
func (s *Service) SetPaused(ctx context.Context, policyName string, key queue.Key, name string,
	paused bool) (api.Schedule, error) {
	found, err := s.schedules.Read(ctx, policyName, key, name)
	if err == nil && found.Paused != paused {
		before := found
		found.Paused = paused
		err = s.schedules.Put(ctx, found)
		return shown(found, jet.LastRun{}),
			s.note(ctx, err, "schedule paused or resumed", found, before, found)
	}
	return shown(found, jet.LastRun{}), translate(err)
}

// RunNow submits a job of a schedule, which may be paused. It does not change the schedule's times.
func (s *Service) RunNow(ctx context.Context, policyName string, key queue.Key, name string) (
	admission.Outcome, error) {

	found, err := s.schedules.Read(ctx, policyName, key, name)
	if err != nil {
		return admission.Outcome{}, translate(err)
	}
	now := time.Now()
	id := jet.RunID(found, found.Next(now, jet.LastRun{}))
	outcome, err := s.submit(ctx, found, id)
	if _, seq, stored := job.ParseID(outcome.Job); stored {
		ran := jet.Ran{At: now, Job: seq}
		if err := s.runs.Note(ctx, policyName, key, id, ran); err != nil {
			s.options.Logger.Warn("the last run of a schedule is not shown", "policy", policyName,
				"key", key.Raw(), "schedule", name, "error", err)
		}
	}
	if err != nil || outcome.Job != "" {
		s.options.Note(ctx, err, "schedule run", "policy", policyName, "key", key.Raw(),
			"schedule", name, "job", outcome.Job)
	}
	return outcome, err
}

func (s *Service) submit(ctx context.Context, of jet.Schedule, id string) (
	admission.Outcome, error) {

	header := nats.Header{}
	maps.Copy(header, of.Header)
	header[job.HeaderIdempotencyKey] = []string{id}
	return s.jobs.Submit(ctx, admit.SubmitRequest{Policy: of.Policy, Key: of.Key,
		Header: header, Body: of.Body})
}

// Remove deletes a schedule; its jobs that wait stay.
func (s *Service) Remove(ctx context.Context, policyName string, key queue.Key, name string) error {
	before, err := s.schedules.Read(ctx, policyName, key, name)
	if err != nil {
		return translate(err)
	}
	return s.note(ctx, s.schedules.Remove(ctx, policyName, key, name), "schedule removed",
		before, before, jet.Schedule{})
}

func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jet.ErrSchedule):
		return &admission.RequestError{Field: jet.HeaderSchedule, Reason: err.Error()}
	case errors.Is(err, jet.ErrNotFound):
		return fmt.Errorf("%w: no such schedule", admission.ErrNotFound)
	case errors.Is(err, jet.ErrStreamFull):
		return fmt.Errorf("%w: %w", admission.ErrConflict, err)
	}
	return fmt.Errorf("%w: %w", admission.ErrUnavailable, err)
}

// Run submits the jobs of ticks until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	for {
		err := s.schedules.SetUp(ctx)
		if err == nil {
			err = s.schedules.Ticks(ctx, func(t jet.Tick) (time.Duration, bool) {
				return s.tick(ctx, t)
			})
		}
		if ctx.Err() != nil {
			return nil
		}
		s.options.Logger.Debug("ticks of schedules are not heard", "error", err)
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *Service) tick(ctx context.Context, t jet.Tick) (wait time.Duration, done bool) {
	if ctx.Err() != nil {
		return again, false
	}
	// Finish the tick even when stopping: a restarted server might accept its job again.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	switch noted, err := s.runs.Noted(ctx, t); {
	case err != nil:
		return again, false
	case noted:
		s.ticked(t, Submitted)
		return 0, true
	}
	outcome, err := s.submit(ctx, t.Schedule, t.ID)
	ended, repeated := errors.AsType[*admission.EndedError](err)
	if repeated {
		outcome.Job = ended.Job
	}
	switch {
	case outcome.Job != "":
		_, seq, _ := job.ParseID(outcome.Job)
		if s.noteTick(ctx, t, jet.Ran{Job: seq}) != nil {
			return again, false
		}
		s.ticked(t, Submitted)
		return 0, true
	case err == nil:
		return s.full(ctx, t, outcome.RetryAfter)
	case errors.Is(err, admission.ErrUnavailable), ctx.Err() != nil:
		return again, false
	}
	return s.missed(ctx, t, err.Error())
}

func (s *Service) noteTick(ctx context.Context, t jet.Tick, ran jet.Ran) error {
	ran.At = t.Stored
	return s.runs.Note(ctx, t.Policy, t.Key, t.ID, ran)
}

func (s *Service) full(ctx context.Context, t jet.Tick, retry time.Duration) (
	wait time.Duration, done bool) {

	s.ticked(t, Refused)
	until := t.Next
	if until.IsZero() {
		until = t.Stored.Add(patience)
	}
	if time.Now().Add(retry).After(until) {
		return s.missed(ctx, t, "the bucket is full, and the schedule's next tick comes first")
	}
	if t.First {
		s.tell(t, queue.EventScheduleRefused, "the bucket is full")
	}
	return retry, false
}

func (s *Service) missed(ctx context.Context, t jet.Tick, why string) (time.Duration, bool) {
	if s.noteTick(ctx, t, jet.Ran{Missed: why}) != nil {
		return again, false
	}
	s.ticked(t, Missed)
	s.options.Logger.Warn("a tick of a schedule became no job", "policy", t.Policy, "key",
		t.Key.Raw(), "schedule", t.Name, "reason", why)
	s.tell(t, queue.EventScheduleMissed, why)
	return 0, true
}

func (s *Service) ticked(t jet.Tick, outcome string) {
	s.options.Sink.Take(queue.Event{Type: jet.EventTicked, Policy: t.Policy, Name: outcome})
}

func (s *Service) tell(t jet.Tick, event, why string) {
	s.broker.Events().Publish(t.Policy, queue.Event{Type: event, Key: t.Key, Reason: t.Name + ": " +
		why})
}
