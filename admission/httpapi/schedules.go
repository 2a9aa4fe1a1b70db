package httpapi

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/access"
	"github.com/penstock-mq/penstock/admission/answer"
	"github.com/penstock-mq/penstock/admission/schedules"
	"github.com/penstock-mq/penstock/queue"
)

// What makes jobs at times of its own.

func (h *handler) schedules() (*schedules.Service, error) {
	if h.options.Schedules == nil {
		return nil, fmt.Errorf("%w: there are no schedules here", admission.ErrNotFound)
	}
	return h.options.Schedules, nil
}

// putSchedule is like a job, with headers that say when.
func (h *handler) putSchedule(r *http.Request, at place) (answer.Answer, error) {
	s, err := h.schedules()
	if err != nil {
		return answer.Answer{}, bodyLeft{err}
	}
	if r.URL.RawQuery != "" || r.URL.ForceQuery {
		return answer.Answer{}, bodyLeft{&admission.RequestError{Field: "query",
			Reason: "a schedule has no query parameters; a question mark in a key is written %3F"}}
	}
	body, held, err := h.read(r, at, queue.MaxScheduledBody)
	defer h.options.Budget.Release(at.from, held)
	if err != nil {
		return answer.Answer{}, bodyLeft{err}
	}
	header := r.Header.Clone()
	for name := range header {
		if strings.HasPrefix(name, queue.HeaderSchedule) {
			delete(header, name)
		}
	}
	made, err := s.Put(r.Context(), schedules.Request{
		SubmitRequest: admission.SubmitRequest{Policy: at.policy, Key: at.key, Header: header,
			Body: body},
		Name: r.Header.Get(queue.HeaderScheduleName), When: r.Header.Get(queue.HeaderSchedule),
		Zone: r.Header.Get(queue.HeaderScheduleZone), By: at.client.Name,
		Manages: at.client.MayKey(access.Operate, at.policy, at.key.Raw())})
	if err != nil {
		return answer.Answer{}, err
	}
	return answer.JSON(http.StatusCreated, made), nil
}

func (h *handler) listSchedules(r *http.Request, at place) (answer.Answer, error) {
	s, err := h.schedules()
	if err != nil {
		return answer.Answer{}, err
	}
	all, err := s.List(r.Context(), at.policy)
	return document(map[string]any{"schedules": all}, err)
}

func (at place) schedule() string {
	if name := at.query.Get("name"); name != "" {
		return name
	}
	return schedules.DefaultName
}

func (h *handler) getSchedule(r *http.Request, at place) (answer.Answer, error) {
	s, err := h.schedules()
	if err != nil {
		return answer.Answer{}, err
	}
	return document(s.Get(r.Context(), at.policy, at.key, at.schedule()))
}

func (h *handler) changeSchedule(r *http.Request, at place) (answer.Answer, error) {
	s, err := h.schedules()
	if err != nil {
		return answer.Answer{}, err
	}
	if err := noBody(r); err != nil {
		return answer.Answer{}, err
	}
	paused := at.query.Get("paused")
	if paused != "0" && paused != "1" {
		return answer.Answer{}, &admission.RequestError{Field: "paused",
			Reason: "want 1 to pause the schedule, or 0 to let it go on"}
	}
	return document(s.SetPaused(r.Context(), at.policy, at.key, at.schedule(), paused == "1"))
}

func (h *handler) deleteSchedule(r *http.Request, at place) (answer.Answer, error) {
	s, err := h.schedules()
	if err == nil {
		err = noBody(r)
	}
	if err == nil {
		err = s.Remove(r.Context(), at.policy, at.key, at.schedule())
	}
	return answer.Answer{Status: http.StatusNoContent}, err
}
