package schedules

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
)

// Unknown is the outcome of a job that neither its drainer nor a record knows.
const Unknown = "unknown"

func shown(s jet.Schedule, run jet.LastRun) api.Schedule {
	one := api.Schedule{Policy: s.Policy, Key: s.Key.Raw(), Name: s.Name, When: asWritten(s.When),
		Zone: s.Zone, Paused: s.Paused, Bytes: len(s.Body), Set: s.Set,
		NextAt: s.Next(time.Now(), run)}
	switch {
	case run.Missed != "":
		one.Last = &api.ScheduleRun{At: run.At, Outcome: Missed, Reason: run.Missed}
	case run.Job > 0:
		one.Last = &api.ScheduleRun{At: run.At, Outcome: string(run.End),
			Job: job.ID(s.Policy, run.Job)}
	}
	return one
}

// Filter selects schedules of a list.
type Filter struct {
	Policy string                   // "*" for all
	May    func(policy string) bool // nil: all
	Most   int                      // 0: all
}

// List lists schedules by policy, name and key, those first whose last job is dead or missed.
func (s *Service) List(ctx context.Context, f Filter) (api.Schedules, error) {
	names, err := s.schedules.Names(ctx, f.Policy)
	if err != nil {
		return api.Schedules{}, translate(err)
	}
	if len(names) == 0 && f.Policy != "*" { // a deleted policy may have left some
		if err := s.jobs.Known(f.Policy); err != nil {
			return api.Schedules{}, err
		}
	}
	if f.May != nil {
		names = slices.DeleteFunc(names, func(s jet.Schedule) bool { return !f.May(s.Policy) })
	}
	runs, err := s.runs.Last(ctx, names...)
	if err != nil {
		return api.Schedules{}, translate(err)
	}
	well := func(s jet.Schedule) int {
		if run := runs[s.ID()]; run.Missed != "" || run.End == queue.EndDead {
			return 0
		}
		return 1
	}
	slices.SortFunc(names, func(a, b jet.Schedule) int {
		return cmp.Or(cmp.Compare(well(a), well(b)), cmp.Compare(a.ID(), b.ID()))
	})
	total := len(names)
	if f.Most > 0 {
		names = names[:min(f.Most, total)]
	}
	found, err := s.schedules.ReadAll(ctx, names)
	listed := make([]api.Schedule, len(found))
	for i, one := range found {
		listed[i] = shown(one, runs[one.ID()])
	}
	s.outcomes(ctx, listed, found, runs)
	return api.Schedules{Schedules: listed, Total: total}, translate(err)
}

const (
	statesAtOnce   = 16
	statesPatience = 2 * time.Second
)

// outcomes completes last runs of which no record says how they ended.
func (s *Service) outcomes(ctx context.Context, all []api.Schedule, of []jet.Schedule,
	runs map[string]jet.LastRun) {

	ctx, cancel := context.WithTimeout(ctx, statesPatience)
	defer cancel()
	places := make(chan struct{}, statesAtOnce)
	var asking sync.WaitGroup
	for i, one := range all {
		if one.Last == nil || one.Last.Outcome != "" {
			continue
		}
		places <- struct{}{}
		asking.Go(func() {
			one.Last.Outcome = s.outcome(ctx, one.Policy, runs[of[i].ID()])
			<-places
		})
	}
	asking.Wait()
}

// noteDelay is how much later than its run a job may be stored by other clocks.
const noteDelay = time.Minute

func (s *Service) outcome(ctx context.Context, policyName string, run jet.LastRun) string {
	state, accepted, err := s.options.State(ctx, policyName, run.Job)
	if err != nil || accepted.After(run.Noted.Add(noteDelay)) { // of a later policy of the name
		return Unknown
	}
	return state
}

// Get returns a schedule with its coming times.
func (s *Service) Get(ctx context.Context, policyName string, key queue.Key,
	name string) (api.ScheduleDetail, error) {
	found, err := s.schedules.Read(ctx, policyName, key, name)
	if err != nil {
		return api.ScheduleDetail{}, translate(err)
	}
	runs, err := s.runs.Last(ctx, found)
	if err != nil {
		return api.ScheduleDetail{}, translate(err)
	}
	one := []api.Schedule{shown(found, runs[found.ID()])}
	s.outcomes(ctx, one, []jet.Schedule{found}, runs)
	d := api.ScheduleDetail{Schedule: one[0], Header: found.Header}
	if utf8.Valid(found.Body) {
		d.Body = new(string(found.Body))
	} else {
		d.Base64 = found.Body
	}
	return d, nil
}
