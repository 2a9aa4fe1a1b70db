package answer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/queue/job"
)

var errForeign = errors.New("the answer is not an admitter's")

// ReadSubmitted reads the answer to an accepted job, without its quota.
func ReadSubmitted(body []byte) (admission.Outcome, error) {
	var a struct {
		api.Accepted
		End string `json:"end"`
	}
	if err := json.Unmarshal(body, &a); err != nil || a.Job == "" {
		return admission.Outcome{}, fmt.Errorf("%w: %.100q", errForeign, body)
	}
	o := admission.Outcome{Verdict: admission.Verdict(a.Verdict), Job: a.Job,
		Duplicate: a.Duplicate, Depth: a.Depth, NoResult: a.NoResult, Remaining: -1}
	if a.Position != nil {
		o.Position = *a.Position
	}
	if a.DelayMS != nil {
		o.Delay, o.DelayKnown = time.Duration(*a.DelayMS)*time.Millisecond, true
	}
	if a.End != "" { // it was waited for
		told, err := job.ParseDocument(body)
		if err != nil {
			return o, fmt.Errorf("%w: %w", errForeign, err)
		}
		o.Verdict, o.Result = admission.Allowed, &told
	}
	return o, nil
}

// ReadError returns the error that an answer of a status other than 2xx stands for: one of
// admission's, a [*admission.RefusedError], or one that quotes a foreign answer.
func ReadError(status int, retryAfter string, body []byte) error {
	var a api.Rejected
	if json.Unmarshal(body, &a) != nil || a.Title == "" {
		err := fmt.Errorf("%w: %d %.100q", errForeign, status, body)
		switch status {
		case http.StatusRequestEntityTooLarge, http.StatusRequestHeaderFieldsTooLarge:
			err = fmt.Errorf("%w: %w", admission.ErrTooLarge, err) // a proxy's: it stays so
		}
		return err
	}
	seconds, _ := strconv.ParseInt(retryAfter, 10, 64)
	pause := time.Duration(cmp.Or(a.RetryAfterMS, seconds*1000)) * time.Millisecond
	read := &readError{text: cmp.Or(a.Detail, a.Title)}
	switch {
	case a.Ended != "":
		return &admission.EndedError{Job: a.Job, How: a.Ended, Letter: a.Letter}
	case status == http.StatusBadRequest && a.Field != "":
		return &admission.RequestError{Field: a.Field, Reason: a.Reason}
	case status == http.StatusTooManyRequests:
		return readRefusal(a.Problem, pause)
	case a.Reason != "":
		read.text += " (" + a.Reason + ")"
	}
	for _, row := range errorStatus {
		if row.status != status {
			continue
		}
		if read.kind == nil || strings.HasPrefix(a.Detail, row.kind.Error()) {
			read.kind = row.kind
		}
	}
	return read
}

type readError struct {
	text string
	kind error
}

func (e *readError) Error() string { return e.text }
func (e *readError) Unwrap() error { return e.kind }

func readRefusal(p api.Problem, pause time.Duration) error {
	e := &admission.RefusedError{Reason: admission.ErrRateLimited, RetryAfter: pause}
	if len(p.ViolatedPolicies) > 0 {
		e.Policy, _, _ = strings.Cut(p.ViolatedPolicies[0], "/")
	}
	for reason, of := range refusals {
		if of.Reason == p.Reason {
			e.Reason = reason
		}
	}
	return e
}
