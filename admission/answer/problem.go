package answer

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/seldom"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// The problem types of draft-ietf-httpapi-ratelimit-headers-11. Every other problem is
// "about:blank": its status says all.
const (
	typeQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeUnreachable     = "urn:penstock:problem:deadline-unreachable"
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

	// Of a bad request: what is wrong, and why, in words. Of something unavailable Reason is one of
	// admission's words.
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason,omitempty"`

	// Of a policy or an override that cannot be: everything that is wrong with it.
	Problems []fieldProblem `json:"problems,omitempty"`

	// Of the repeat of a job that is gone.
	Job    string `json:"job,omitempty"`
	Ended  string `json:"ended,omitempty"`
	Letter uint64 `json:"letter,omitempty"`

	// Of quota-exceeded.
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
}

// fieldProblem is one thing that is wrong with a document.
type fieldProblem struct {
	Field  string `json:"field,omitempty"` // empty: the document as a whole
	Reason string `json:"reason"`
}

// errorStatus is the second table. The texts of the kinds marked shown are made for clients; of all
// others a client sees the status alone.
var errorStatus = []struct {
	kind   error
	status int
	shown  bool
}{
	{admission.ErrForbidden, http.StatusForbidden, true},
	{admission.ErrUnknownPolicy, http.StatusNotFound, true},
	{admission.ErrNotFound, http.StatusNotFound, true},
	{admission.ErrConflict, http.StatusConflict, true},
	{admission.ErrPrecondition, http.StatusPreconditionFailed, true},
	{admission.ErrOtherPayload, http.StatusUnprocessableEntity, true},
	{admission.ErrTooLarge, http.StatusRequestEntityTooLarge, true},
	{admission.ErrTooSlow, http.StatusRequestTimeout, true},
	{admission.ErrNoDrainer, http.StatusServiceUnavailable, true},
	{queue.ErrStorage, http.StatusInsufficientStorage, false},
	{admission.ErrUnavailable, http.StatusServiceUnavailable, false},
}

// refusal answers a question whose answer is no, with the members of more, a JSON object, added to
// the problem.
func refusal(s quotaState, more []byte) Answer {
	p := problem{
		Type:             typeQuotaExceeded,
		Title:            "Quota exceeded",
		Status:           http.StatusTooManyRequests,
		Detail:           "come back after the time in Retry-After",
		ViolatedPolicies: []string{s.quota.Policy},
	}
	body := encode(p)
	body = append(append(body[:len(body)-1], ','), more[1:]...) // one object of the two
	return Answer{Status: p.Status, Header: s.fields(contentProblem), Body: body}
}

// unreachable refuses a job whose deadline its bucket cannot meet.
func unreachable(s quotaState, o admission.Outcome) Answer {
	body := encode(struct {
		problem
		rejected
		ExpectedStart time.Time `json:"expected_start"`
	}{problem{
		Type:   typeUnreachable,
		Title:  "Deadline unreachable",
		Status: http.StatusTooManyRequests,
		Detail: "the job would start after its deadline",
		Reason: "deadline-unreachable", ViolatedPolicies: []string{o.Quota.Policy},
	}, rejected{o.Verdict, milliseconds(o.RetryAfter)},
		o.Unreachable.UTC().Truncate(time.Millisecond)})
	return Answer{Status: http.StatusTooManyRequests, Header: s.fields(contentProblem), Body: body}
}

// Problem answers with a status and, in words for the client, what was wrong. More header fields
// may follow. What is unavailable for now has a reason: [Unavailable].
func Problem(status int, detail string, more ...Field) Answer {
	return problem{Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: detail}.answer(more...)
}

// Unavailable answers that something cannot be done now, with the reason that [admission.Reason]
// finds in err, and when to come back. The status is 503, or 507 when there is no room; detail is
// for the client.
func Unavailable(status int, detail string, err error) Answer {
	return problem{
		Type:   typeReducedCapacity,
		Title:  "Temporarily reduced capacity",
		Status: status,
		Detail: detail,
		Reason: admission.Reason(err),
	}.answer(Field{"Retry-After", unavailableRetry})
}

func (p problem) answer(more ...Field) Answer {
	return Answer{Status: p.Status,
		Header: append([]Field{{"Content-Type", contentProblem}}, more...), Body: encode(p)}
}

// Errors turns errors into answers and logs what an operator must know.
type Errors struct {
	log    *slog.Logger
	seldom *seldom.Log // by reason
}

// NewErrors logs to log.
func NewErrors(log *slog.Logger) *Errors { return &Errors{log: log, seldom: seldom.New(log)} }

// Answer is the answer to a question that ended in an error. An unexpected error is logged with its
// chain and becomes a bare 500. That something is unavailable is logged once in ten seconds for
// each reason, or one outage would fill the disk.
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
	if gone, ok := errors.AsType[*admission.EndedError](err); ok {
		return problem{
			Type:   "about:blank",
			Title:  http.StatusText(http.StatusConflict),
			Status: http.StatusConflict,
			Detail: gone.Error(),
			Job:    gone.Job,
			Ended:  gone.How,
			Letter: gone.Letter,
		}.answer()
	}
	if invalid, ok := errors.AsType[*policy.InvalidError](err); ok {
		return refusedDocument(err, invalid)
	}
	for _, row := range errorStatus {
		if !errors.Is(err, row.kind) {
			continue
		}
		detail := row.kind.Error()
		if row.shown {
			detail = err.Error()
		}
		if row.status < http.StatusInternalServerError {
			return Problem(row.status, detail)
		}
		e.warn(err)
		return Unavailable(row.status, detail, err)
	}
	if errors.Is(err, context.Canceled) {
		// the client went away, or the process is about to
		return Unavailable(http.StatusServiceUnavailable, "", err)
	}
	e.log.Error("a request ended in an unexpected error", "error", err)
	return Problem(http.StatusInternalServerError, "")
}

// warn logs that requests are refused, unless that is known: what watches the store of limits or
// NATS logs it, and the operator who asked sees that no drainer answered.
func (e *Errors) warn(err error) {
	reason := admission.Reason(err)
	if reason == admission.ReasonStore || reason == admission.ReasonDrainer ||
		errors.Is(err, queue.ErrNotSent) {
		return
	}
	e.seldom.Log(reason, slog.LevelWarn, "requests are refused for now", "reason", reason, "error",
		err)
}

// refusedDocument answers with all that is wrong with a policy or an override: by itself, or, as a
// conflict, as a change.
func refusedDocument(err error, invalid *policy.InvalidError) Answer {
	status := http.StatusBadRequest
	if errors.Is(err, admission.ErrConflict) {
		status = http.StatusConflict
	}
	p := problem{Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: invalid.Error()}
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
