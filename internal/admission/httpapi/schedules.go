package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/admission/answer"
	"github.com/penstock-mq/penstock/internal/admission/manage"
	"github.com/penstock-mq/penstock/internal/admission/schedules"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
)

var errNoSchedules = fmt.Errorf("%w: this process has no schedules", admission.ErrNotFound)

// A schedule is a job's request with further headers.
func (h *handler) putSchedule(r *http.Request, at place) (answer.Answer, error) {
	s := h.options.Schedules
	if s == nil {
		return answer.Answer{}, bodyLeft{errNoSchedules}
	}
	body, held, err := h.read(r, at, jet.MaxScheduledBody)
	defer h.options.Budget.Release(at.from, held)
	if err != nil {
		return answer.Answer{}, bodyLeft{err}
	}
	header := r.Header.Clone()
	for name := range header {
		if strings.HasPrefix(name, jet.HeaderSchedule) {
			delete(header, name)
		}
	}
	ctx := manage.WithClient(r.Context(), at.client.Name, r.RemoteAddr)
	made, err := s.Put(ctx, schedules.Request{
		SubmitRequest: admit.SubmitRequest{Policy: at.policy, Key: at.key, Header: header,
			Body: body},
		Name: r.Header.Get(jet.HeaderScheduleName), When: r.Header.Get(jet.HeaderSchedule),
		Zone: r.Header.Get(jet.HeaderScheduleZone), By: at.client.Name,
		Manages: at.client.MayKey(access.Operate, at.policy, at.key.Raw())})
	if err != nil {
		return answer.Answer{}, err
	}
	return answer.JSON(http.StatusCreated, made), nil
}

func (h *handler) schedule(do func(ctx context.Context, s *schedules.Service, at place,
	name string) (any, error)) call {

	return look(func(ctx context.Context, at place) (any, error) {
		name, err := h.scheduleName(at)
		if err != nil {
			return nil, err
		}
		return do(ctx, h.options.Schedules, at, name)
	})
}

func (h *handler) scheduleName(at place) (name string, err error) {
	if h.options.Schedules == nil {
		return "", errNoSchedules
	}
	name = cmp.Or(at.query.Get("name"), schedules.DefaultName)
	// They become tokens of a subject: others could name more than the client's rights cover.
	if !policy.IsName(at.policy) || !policy.IsName(name) {
		return "", fmt.Errorf("%w: no such schedule", admission.ErrNotFound)
	}
	return name, nil
}

func (h *handler) allSchedules(ctx context.Context, at place) (any, error) {
	if h.options.Schedules == nil {
		return nil, errNoSchedules
	}
	return h.options.Schedules.List(ctx,
		schedules.Filter{Policy: "*", May: at.mayRead, Most: at.number("limit")})
}

func listSchedules(ctx context.Context, s *schedules.Service, at place, _ string) (any, error) {
	return s.List(ctx, schedules.Filter{Policy: at.policy})
}

func getSchedule(ctx context.Context, s *schedules.Service, at place, name string) (any, error) {
	return s.Get(ctx, at.policy, at.key, name)
}

func changeSchedule(ctx context.Context, s *schedules.Service, at place,
	name string) (any, error) {

	paused := at.query.Get("paused")
	if paused != "0" && paused != "1" {
		return nil, bad("paused", "want 1 to pause the schedule, or 0 to resume it")
	}
	return s.SetPaused(ctx, at.policy, at.key, name, paused == "1")
}

func removeSchedule(ctx context.Context, s *schedules.Service, at place,
	name string) (any, error) {

	return nil, s.Remove(ctx, at.policy, at.key, name)
}

func (h *handler) runSchedule(r *http.Request, at place) (answer.Answer, error) {
	name, err := h.scheduleName(at)
	if err == nil {
		err = noBody(r)
	}
	if err != nil {
		return answer.Answer{}, err
	}
	outcome, err := h.options.Schedules.RunNow(r.Context(), at.policy, at.key, name)
	return h.submitted(outcome), err
}
