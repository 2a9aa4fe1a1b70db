package answer

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/policy"
)

// The problem types of draft-ietf-httpapi-ratelimit-headers-11. Every other problem is "about:blank": its status says
// all.
const (
	typeQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// unavailableRetry is when to come back after a 503, in seconds.
const unavailableRetry = "1"

// problem is an RFC 9457 problem.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`

	// Of a bad request.
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason,omitempty"`

	// Of a policy or an override that cannot be: everything that is wrong with it.
	Problems []fieldProblem `json:"problems,omitempty"`

	// Of quota-exceeded.
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
}

// fieldProblem is one thing that is wrong with a document.
type fieldProblem struct {
	Field  string `json:"field,omitempty"` // empty: the document as a whole
	Reason string `json:"reason"`
}

// errorStatus is the second table. The texts of the kinds marked told are made for clients; of all others a client sees
// the status alone.
var errorStatus = []struct {
	kind   error
	status int
	told   bool
}{
	{admission.ErrUnknownPolicy, http.StatusNotFound, true},
	{admission.ErrNotFound, http.StatusNotFound, true},
	{admission.ErrConflict, http.StatusConflict, true},
	{admission.ErrTooLarge, http.StatusRequestEntityTooLarge, true},
	{admission.ErrNoDrainer, http.StatusServiceUnavailable, true},
	{admission.ErrUnavailable, http.StatusServiceUnavailable, false},
}

// refusal answers a question whose answer is no, with the members of more added to the problem.
func refusal(s quotaState, more any) Answer {
	p := problem{
		Type:             typeQuotaExceeded,
		Title:            "Quota exceeded",
		Status:           http.StatusTooManyRequests,
		Detail:           "come back after the time in Retry-After",
		ViolatedPolicies: []string{s.quota.Policy},
	}
	body, extra := encode(p), encode(more)
	body = append(append(body[:len(body)-1], ','), extra[1:]...) // one object of the two
	return Answer{p.Status, s.fields(contentProblem), body}
}

// Problem answers with a status and, in words for the client, what was wrong. More header fields may follow.
func Problem(status int, detail string, more ...Field) Answer {
	p := problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
	if status == http.StatusServiceUnavailable {
		p.Type, p.Title = typeReducedCapacity, "Temporarily reduced capacity"
		more = append(more, Field{"Retry-After", unavailableRetry})
	}
	return p.answer(more...)
}

func (p problem) answer(more ...Field) Answer {
	return Answer{p.Status, append([]Field{{"Content-Type", contentProblem}}, more...), encode(p)}
}

// Errors turns errors into answers and logs what an operator must know.
type Errors struct {
	log  *slog.Logger
	last atomic.Int64 // when an unavailability was last logged, Unix nanoseconds
}

// NewErrors logs to log.
func NewErrors(log *slog.Logger) *Errors { return &Errors{log: log} }

// Answer is the answer to a question that ended in an error. An unexpected error is logged with its chain and becomes a
// bare 500. That something is unavailable is logged once a second at most, or one outage would fill the disk.
func (e *Errors) Answer(err error) Answer {
	if bad, ok := errors.AsType[*admission.RequestError](err); ok {
		return problem{
			Type:   "about:blank",
			Title:  http.StatusText(http.StatusBadRequest),
			Status: http.StatusBadRequest,
			Detail: bad.Error(),
			Field:  bad.Field,
			Reason: bad.Reason,
		}.answer()
	}
	if invalid, ok := errors.AsType[*policy.InvalidError](err); ok {
		return refusedDocument(err, invalid)
	}
	for _, row := range errorStatus {
		if !errors.Is(err, row.kind) {
			continue
		}
		if row.told {
			return Problem(row.status, err.Error())
		}
		now, last := time.Now().UnixNano(), e.last.Load()
		if !errors.Is(err, admission.ErrStore) && now-last >= int64(time.Second) && e.last.CompareAndSwap(last, now) {
			e.log.Warn("requests are refused for now", "error", err)
		}
		return Problem(row.status, row.kind.Error())
	}
	if errors.Is(err, context.Canceled) {
		return Problem(http.StatusServiceUnavailable, "") // the client went away, or the process is about to
	}
	e.log.Error("a request ended in an unexpected error", "error", err)
	return Problem(http.StatusInternalServerError, "")
}

// refusedDocument answers with all that is wrong with a policy or an override: by itself, or, as a conflict, as a change.
func refusedDocument(err error, invalid *policy.InvalidError) Answer {
	status := http.StatusBadRequest
	if errors.Is(err, admission.ErrConflict) {
		status = http.StatusConflict
	}
	p := problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: invalid.Error()}
	for _, found := range invalid.Problems {
		p.Problems = append(p.Problems, fieldProblem{found.Field, found.Reason})
	}
	p.Field, p.Reason = p.Problems[0].Field, p.Problems[0].Reason
	return p.answer()
}

// Panicked answers a request whose handling panicked, and logs the panic.
func (e *Errors) Panicked(value any, stack []byte) Answer {
	e.log.Error("handling a request panicked", "panic", value, "stack", string(stack))
	return Problem(http.StatusInternalServerError, "")
}
