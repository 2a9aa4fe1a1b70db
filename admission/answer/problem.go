package answer

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/seldom"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// Types of draft-ietf-httpapi-ratelimit-headers-11, and our own.
const (
	typeQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeUnreachable     = "urn:penstock:problem:deadline-unreachable"
	typeReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

const unavailableRetry = "1"

// RFC 9457
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`

	// The invalid field and why, or the reason of a refusal or a 503.
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason,omitempty"`

	Problems []fieldProblem `json:"problems,omitempty"`

	// The job that this request repeats.
	Job    string `json:"job,omitempty"`
	Ended  string `json:"ended,omitempty"`
	Letter uint64 `json:"letter,omitempty"`

	ViolatedPolicies []string `json:"violated-policies,omitempty"`
}

type fieldProblem struct {
	Field  string `json:"field,omitempty"` // empty: the whole document
	Reason string `json:"reason"`
}

// Clients see only texts marked shown.
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
	{admission.ErrTooLarge, http.StatusRequestHeaderFieldsTooLarge, true}, // by net/http
	{admission.ErrTooSlow, http.StatusRequestTimeout, true},
	{admission.ErrNoDrainer, http.StatusServiceUnavailable, true},
	{queue.ErrStorage, http.StatusInsufficientStorage, false},
	{admission.ErrUnavailable, http.StatusServiceUnavailable, false},
}

var quotaExceeded = problem{
	Type:   typeQuotaExceeded,
	Title:  "Quota exceeded",
	Status: http.StatusTooManyRequests,
	Detail: "come back after the time in Retry-After",
}

var refusals = map[error]problem{
	admission.ErrQueueFull:   quotaExceeded.because("queue-full"),
	admission.ErrRateLimited: quotaExceeded.because("rate-limited"),
	admission.ErrDeadlineUnreachable: {
		Type:   typeUnreachable,
		Title:  "Deadline unreachable",
		Status: http.StatusTooManyRequests,
		Detail: admission.ErrDeadlineUnreachable.Error(),
		Reason: "deadline-unreachable",
	},
	admission.ErrTooLate:    quotaExceeded.because("too-late"),
	admission.ErrPaused:     quotaExceeded.because("paused"),
	admission.ErrTargetDown: quotaExceeded.because("target-down"),
}

func (p problem) because(reason string) problem {
	p.Reason = reason
	return p
}

func refusal(s quotaState, p problem, more []byte) Answer {
	p.ViolatedPolicies = []string{s.quota.Policy}
	if name, bytes := strings.CutSuffix(s.quota.Policy, "/max_bytes"); bytes {
		p.Detail = "the jobs of " + name + " take all bytes that they may: its max_bytes, or its " +
			"share of the store; " + p.Detail
	}
	body := encode(p)
	body = append(append(body[:len(body)-1], ','), more[1:]...) // one object of the two
	return Answer{Status: p.Status, Header: s.fields(contentProblem), Body: body}
}

func Problem(status int, detail string, more ...Field) Answer {
	return problem{Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: detail}.answer(more...)
}

// Unavailable encodes a temporary error with its reason: 503, or 507 for lack of space.
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

type Errors struct {
	log    *slog.Logger
	seldom *seldom.Log // by reason
}

func NewErrors(log *slog.Logger) *Errors { return &Errors{log: log, seldom: seldom.New(log)} }

// Answer logs unexpected errors, which become a plain 500, and temporary ones once in ten seconds
// per reason.
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
	if refused, ok := errors.AsType[*admission.RefusedError](err); ok {
		p := refusals[refused.Reason]
		p.ViolatedPolicies = []string{refused.Policy}
		return p.answer(
			Field{"Retry-After", strconv.FormatInt(ceil(refused.RetryAfter, time.Second), 10)},
			Field{"Retry-After-Ms", strconv.FormatInt(milliseconds(refused.RetryAfter), 10)})
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
		// the client went away, or the process is stopping
		return Unavailable(http.StatusServiceUnavailable, "", err)
	}
	e.log.Error("a request ended in an unexpected error", "error", err)
	return Problem(http.StatusInternalServerError, "")
}

// warn leaves out reasons that are logged elsewhere, and clients that went away.
func (e *Errors) warn(err error) {
	reason := admission.Reason(err)
	if reason == admission.ReasonStore || reason == admission.ReasonDrainer ||
		errors.Is(err, queue.ErrNotSent) || errors.Is(err, context.Canceled) {
		return
	}
	e.seldom.Log(reason, slog.LevelWarn, "requests are refused for now", "reason", reason, "error",
		err)
}

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

func (e *Errors) Panicked(value any, stack []byte) Answer {
	e.log.Error("handling a request panicked", "panic", value, "stack", string(stack))
	return Problem(http.StatusInternalServerError, "")
}
