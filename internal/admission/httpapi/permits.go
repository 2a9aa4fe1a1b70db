package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/admission/answer"
	"github.com/penstock-mq/penstock/internal/admission/permits"
	"github.com/penstock-mq/penstock/internal/queue/job"
)

// Permits returns the client that acquires permits of a policy.
type Permits func(policy string) (*permits.Client, error)

func (h *handler) acquire(r *http.Request, at place) (answer.Answer, error) {
	client, err := h.permits(at.policy)
	if err != nil {
		return answer.Answer{}, err
	}
	c := permits.Request{Policy: at.policy, Key: at.key.Raw()}
	if c.Wait, err = at.wait(); err != nil {
		return answer.Answer{}, err
	}
	// Costs in the body are another spelling of the headers.
	var asked api.PermitRequest
	if err := h.document(r, at, &asked); err != nil {
		return answer.Answer{}, err
	}
	header := r.Header.Clone()
	set := func(name string, n json.Number) {
		if n != "" {
			header.Set(name, n.String())
		}
	}
	set(job.HeaderCost, asked.Cost)
	set(job.HeaderPriority, asked.Priority)
	for name, n := range asked.Costs {
		set(job.HeaderCost+"-"+name, n)
	}
	if c.Cost, c.Costs, c.Priority, err = admit.ReadCallHeader(header); err != nil {
		return answer.Answer{}, err
	}
	p, err := client.Lend(r.Context(), c)
	if err != nil {
		return answer.Answer{}, err
	}
	a := answer.JSON(http.StatusOK, api.Permit{Permit: p.ID, LeaseMS: p.Lease.Milliseconds(),
		StartWithinMS: time.Until(p.StartBy).Milliseconds(), MaxDelayMS: p.MaxDelay.Milliseconds()})
	a.Late = true
	return a, nil
}

// settle reports the progress or end of a call; DELETE: it did not begin.
func (h *handler) settle(r *http.Request, at place) (answer.Answer, error) {
	client, err := h.permits(at.policy)
	if err != nil {
		return answer.Answer{}, err
	}
	settled := api.Settlement{Status: job.SettledReturned}
	if r.Method == http.MethodPut {
		settled.Status = nil
		if err := h.document(r, at, &settled); err != nil {
			return answer.Answer{}, err
		}
	}
	op, of, err := settlement(settled)
	if err != nil {
		return answer.Answer{}, err
	}
	id := at.query.Get("permit")
	if !permit.MatchString(id) {
		return answer.Answer{}, bad("permit", "want the permit in the answer to POST")
	}
	if err := client.Tell(at.policy, at.key, id, op, of); err != nil {
		return answer.Answer{}, err
	}
	return answer.Answer{Status: http.StatusNoContent}, nil
}

// settlement reads a report, whose status may be that of HTTP.
func settlement(of api.Settlement) (op string, s job.Settlement, err error) {
	header := http.Header{}
	for name, value := range of.Headers {
		header.Set(name, value)
	}
	if of.RetryAfterMS > 0 {
		header.Set("Retry-After-Ms", strconv.FormatInt(of.RetryAfterMS, 10))
	}
	status, named := of.Status.(string)
	number, _ := of.Status.(float64)
	code := int(number)
	if status == job.SettledThrottled {
		code = http.StatusTooManyRequests
	}
	ended := permits.ResultOf(code, header)
	if !named && float64(code) == number && code >= 100 && code <= 599 {
		status = string(ended.Status)
		if of.Answer == "" && ended.Unanswered {
			of.Answer = job.SettledUnanswered
		}
		of.Answer = cmp.Or(of.Answer, job.SettledAnswered)
	}
	op, s = job.OpSettle, job.Settlement{Status: status, Error: of.Error, Used: of.Used,
		Answer: of.Answer, RetryAfterMS: max(of.RetryAfterMS, ended.RetryAfter.Milliseconds())}
	switch status {
	case job.OpProgress, job.OpAnswered:
		op, s.Status = status, ""
	case job.SettledDone, job.SettledFailed, job.SettledUnavailable, job.SettledUnreached,
		job.SettledThrottled, job.SettledReturned:
	default:
		return "", s, bad("status", "want progress, answered, done, fail, unavailable, "+
			"unreached, retry-after, returned or an HTTP status")
	}
	switch of.Answer {
	case "", job.SettledAnswered, job.SettledUnanswered, job.SettledUnsent:
	default:
		return "", s, bad("answer", "want seen, none or unsent")
	}
	if of.RetryAfterMS < 0 {
		return "", s, bad("retry_after_ms", "must not be negative")
	}
	for cost, n := range of.Used {
		if n < 0 {
			return "", s, bad("used", "%.64q must not be negative", cost)
		}
	}
	return op, s, nil
}

func (h *handler) document(r *http.Request, at place, into any) error {
	body, held, err := h.read(r, at, smallBody)
	defer h.options.Budget.Release(at.from, held)
	switch {
	case err != nil:
		return bodyLeft{err}
	case len(body) == 0:
		return nil
	}
	if err := decode(body, into); err != nil {
		return bad("body", "%v", err)
	}
	return nil
}

// decode refuses unknown and repeated names.
func decode(text []byte, into any) error {
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(into); err != nil {
		return errors.New(unreadable(err))
	}
	if len(spaced(text[in.InputOffset():])) > 0 {
		return errors.New("is followed by unexpected data")
	}
	if name := twice(json.NewDecoder(bytes.NewReader(text)), true); name != "" {
		return fmt.Errorf("%.64q is given twice", name)
	}
	return nil
}

// twice returns a name that an object of valid JSON, or one in it, has twice in any case.
// Jobs' bodies may have such names, and others read the policies and overrides.
func twice(in *json.Decoder, top bool) string {
	begin, _ := in.Token()
	if _, inside := begin.(json.Delim); !inside {
		return ""
	}
	for names := map[string]bool{}; in.More(); {
		name := ""
		if begin == json.Delim('{') {
			text, _ := in.Token()
			name, _ = text.(string)
			if name = strings.ToLower(name); names[name] {
				return name
			}
			names[name] = true
		}
		if top && (name == "body" || name == "policy" || name == "override") {
			_ = in.Decode(new(json.RawMessage))
		} else if name := twice(in, false); name != "" {
			return name
		}
	}
	_, _ = in.Token() // its end
	return ""
}

// unreadable describes an error of encoding/json without Go's types.
func unreadable(err error) string {
	of, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err.Error()
	}
	return strings.TrimPrefix(of.Field+": has the wrong type, "+of.Value, ": ")
}

// permit matches IDs, which are tokens of subjects.
var permit = regexp.MustCompile(`^[A-Za-z0-9]{1,64}$`)

func (h *handler) permits(policy string) (*permits.Client, error) {
	if h.options.Permits == nil {
		return nil, admission.ErrNotFound
	}
	return h.options.Permits(policy)
}
