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
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/base/seldom"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
)

// Types of draft-ietf-httpapi-ratelimit-headers-11, and our own.
const (
	typeQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeUnreachable     = "urn:penstock:problem:deadline-unreachable"
	typeReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

const unavailableRetry = "1"

// Clients see only texts marked shown.
var errorStatus = []struct {
	kind   error
	status int
	shown  bool
}{
	{admit.ErrForbidden, http.StatusForbidden, true},
	{admission.ErrUnknownPolicy, http.StatusNotFound, true},
	{admission.ErrNotFound, http.StatusNotFound, true},
	{admission.ErrConflict, http.StatusConflict, true},
	{admit.ErrPrecondition, http.StatusPreconditionFailed, true},
	{admission.ErrOtherPayload, http.StatusUnprocessableEntity, true},
	{admission.ErrTooLarge, http.StatusRequestEntityTooLarge, true},
	{admission.ErrTooLarge, http.StatusRequestHeaderFieldsTooLarge, true}, // by net/http
	{admit.ErrTooSlow, http.StatusRequestTimeout, true},
	{admission.ErrNoDrainer, http.StatusServiceUnavailable, true},
	{jet.ErrStorage, http.StatusInsufficientStorage, false},
	{admission.ErrUnavailable, http.StatusServiceUnavailable, false},
}

var quotaExceeded = api.Problem{
	Type:   typeQuotaExceeded,
	Title:  "Quota exceeded",
	Status: http.StatusTooManyRequests,
	Detail: "come back after the time in Retry-After",
}

var refusals = map[error]api.Problem{
	admission.ErrQueueFull:   because("queue-full"),
	admission.ErrRateLimited: because("rate-limited"),
	admission.ErrDeadlineUnreachable: {
		Type:   typeUnreachable,
		Title:  "Deadline unreachable",
		Status: http.StatusTooManyRequests,
		Detail: admission.ErrDeadlineUnreachable.Error(),
		Reason: "deadline-unreachable",
	},
	admission.ErrTooLate:    because("too-late"),
	admission.ErrPaused:     because("paused"),
	admission.ErrTargetDown: because("target-down"),
}

func because(reason string) api.Problem {
	p := quotaExceeded
	p.Reason = reason
	return p
}

// violated completes the problem of a refusal by a quota.
func (s quotaState) violated(p api.Problem) api.Problem {
	p.ViolatedPolicies = []string{s.quota.Policy}
	if name, bytes := strings.CutSuffix(s.quota.Policy, "/max_bytes"); bytes {
		p.Detail = "the jobs of " + name + " take all bytes that they may: its max_bytes, or its " +
			"share of the store; " + p.Detail
	}
	return p
}

func (s quotaState) refusal(document any) Answer {
	return Answer{Status: http.StatusTooManyRequests, Header: s.fields(contentProblem),
		Body: encode(document)}
}

// Problem answers with a problem document (RFC 9457) of a status; detail is for people.
func Problem(status int, detail string, more ...Field) Answer {
	return answered(plain(status, detail), more...)
}

func plain(status int, detail string) api.Problem {
	return api.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: detail}
}

// Unavailable encodes a temporary error with its reason: 503, or 507 for lack of space.
func Unavailable(status int, detail string, err error) Answer {
	return answered(api.Problem{
		Type:   typeReducedCapacity,
		Title:  "Temporarily reduced capacity",
		Status: status,
		Detail: detail,
		Reason: admit.Reason(err),
	}, Field{"Retry-After", unavailableRetry})
}

func answered(p api.Problem, more ...Field) Answer {
	return Answer{Status: p.Status,
		Header: append([]Field{{"Content-Type", contentProblem}}, more...), Body: encode(p)}
}

// Errors makes the answers to errors, and logs those that a client cannot mend.
type Errors struct {
	log    *slog.Logger
	seldom *seldom.Log // by reason
}

// NewErrors returns Errors that log to log.
func NewErrors(log *slog.Logger) *Errors { return &Errors{log: log, seldom: seldom.New(log)} }

// Answer logs unexpected errors, which become a plain 500, and temporary ones once in ten seconds
// per reason.
func (e *Errors) Answer(err error) Answer {
	if bad, ok := errors.AsType[*admission.RequestError](err); ok {
		p := plain(http.StatusBadRequest, bad.Error())
		p.Field, p.Reason = bad.Field, bad.Reason
		return answered(p)
	}
	if refused, ok := errors.AsType[*admission.RefusedError](err); ok {
		p := refusals[refused.Reason]
		p.ViolatedPolicies = []string{refused.Policy}
		return answered(p,
			Field{"Retry-After", strconv.FormatInt(ceil(refused.RetryAfter, time.Second), 10)},
			Field{"Retry-After-Ms", strconv.FormatInt(milliseconds(refused.RetryAfter), 10)})
	}
	if gone, ok := errors.AsType[*admission.EndedError](err); ok {
		p := plain(http.StatusConflict, gone.Error())
		p.Job, p.Ended, p.Letter = gone.Job, gone.How, gone.Letter
		return answered(p)
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
	reason := admit.Reason(err)
	if reason == admit.ReasonStore || reason == admit.ReasonDrainer ||
		errors.Is(err, jet.ErrNotSent) || errors.Is(err, context.Canceled) {
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
	p := plain(status, invalid.Error())
	for _, found := range invalid.Problems {
		p.Problems = append(p.Problems, api.FieldProblem{Field: found.Field,
			Reason: found.Reason})
	}
	p.Field, p.Reason = p.Problems[0].Field, p.Problems[0].Reason
	return answered(p)
}

// Panicked logs a recovered panic, and answers with status 500.
func (e *Errors) Panicked(value any, stack []byte) Answer {
	e.log.Error("handling a request panicked", "panic", value, "stack", string(stack))
	return Problem(http.StatusInternalServerError, "")
}
