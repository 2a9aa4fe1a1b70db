// Package answer encodes the answers of the admission service for HTTP and NATS. Three tables hold
// the HTTP knowledge: verdictStatus, errorStatus (problem.go), and the headers of a quota
// (headers.go).
package answer

import (
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/queue/job"
)

// Answer is the answer to a request, over HTTP or NATS.
type Answer struct {
	Status int
	Header []Field
	Body   []byte
	// Late: the request may have waited longer than a server's write timeout.
	Late bool
	// Stream, if not nil, must be called to write the body.
	Stream func(w io.Writer, flush func())
}

// Field is a header field.
type Field struct{ Name, Value string }

const (
	contentJSON    = "application/json"
	contentProblem = "application/problem+json"
)

var verdictStatus = map[admission.Verdict]int{
	admission.Allowed:  202,
	admission.Queued:   202,
	admission.Rejected: 429,
}

// appendAccepted appends an [api.Accepted] without encoding/json, as the most frequent answer. Ids
// need no escapes.
func appendAccepted(body []byte, o admission.Outcome) []byte {
	body = append(append(body, `{"verdict":"`...), o.Verdict...)
	body = append(append(append(body, `","job":"`...), o.Job...), '"')
	if o.DelayKnown {
		body = appendMember(body, `,"delay_ms":`, milliseconds(o.Delay))
	} else if o.Depth > 0 {
		body = appendMember(body, `,"position":`, int64(o.Position))
		body = appendMember(body, `,"depth":`, int64(o.Depth))
	}
	if o.Duplicate {
		body = append(body, `,"duplicate":true`...)
	}
	if o.NoResult != "" {
		body = append(append(append(body, `,"no_result":"`...), o.NoResult...), '"')
	}
	if o.Progress != "" {
		body = append(append(body, `,"progress":`...), encode(o.Progress)...)
	}
	return append(body, '}')
}

func appendMember(body []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(body, name...), n, 10)
}

// Submitted answers a job: 200 or 202 with its place, or a refusal with the time to return.
func Submitted(o admission.Outcome) Answer {
	state := quotaState{o.Quota, o.Remaining, o.ResetAfter, o.RetryAfter,
		o.Verdict == admission.Rejected}
	status := verdictStatus[o.Verdict]
	if o.Verdict == admission.Rejected {
		return state.refusal(api.Rejected{Problem: state.violated(refusals[o.Refused]),
			Verdict: string(o.Verdict), RetryAfterMS: milliseconds(o.RetryAfter),
			ExpectedStart: o.Unreachable.UTC().Truncate(time.Millisecond)})
	}
	fields := state.fields(contentJSON)
	if o.Result != nil {
		return Answer{Status: 200, Header: fields, Body: job.Document(*o.Result), Late: true}
	}
	if o.Duplicate {
		fields = append(fields, Field{"Idempotent-Replayed", "true"})
	}
	return Answer{Status: status, Header: fields, Late: o.NoResult != "",
		Body: appendAccepted(make([]byte, 0, 160), o)}
}

// Checked answers a check: 200, or 429 if it was refused.
func Checked(c admission.Checked) Answer {
	state := quotaState{c.Quota, c.Remaining, c.ResetAfter, c.RetryAfter, !c.Allowed}
	decision := api.Decision{Allowed: c.Allowed, Limit: c.Limit, Remaining: c.Remaining,
		DelayMS: milliseconds(c.Delay), RetryAfterMS: milliseconds(c.RetryAfter),
		ResetAfterMS: milliseconds(c.ResetAfter)}
	if !c.Allowed {
		return state.refusal(api.Refused{Problem: state.violated(quotaExceeded),
			Decision: decision})
	}
	return Answer{Status: 200, Header: state.fields(contentJSON), Body: encode(decision)}
}

// Refunded answers a refund.
func Refunded() Answer { return Answer{Status: 204} }

// JSON panics if a document cannot be encoded.
func JSON(status int, document any) Answer {
	return Answer{Status: status, Header: []Field{{"Content-Type", contentJSON}},
		Body: encode(document)}
}

// Text answers with lines of plain text.
func Text(status int, lines ...string) Answer {
	return Answer{Status: status,
		Header: []Field{{"Content-Type", "text/plain; charset=utf-8"}},
		Body:   []byte(strings.Join(lines, "\n") + "\n")}
}

// Lines answers with JSON documents, one per line, which stream writes until it returns.
func Lines(stream func(w io.Writer, flush func())) Answer {
	return Answer{Status: 200, Header: []Field{{"Content-Type", "application/x-ndjson"}},
		Stream: stream}
}

// Events answers with server-sent events, which stream writes until it returns.
func Events(stream func(w io.Writer, flush func())) Answer {
	return Answer{Status: 200, Header: []Field{{"Content-Type", "text/event-stream"},
		{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}}, Stream: stream}
}

// AppendSubmitted appends the body of [Submitted] as the answer to the n-th line of a batch.
func AppendSubmitted(line []byte, n int, o admission.Outcome) []byte {
	if o.Verdict == admission.Rejected {
		return Submitted(o).AppendLine(line, n)
	}
	line = strconv.AppendInt(append(line, `{"n":`...), int64(n), 10)
	line = strconv.AppendInt(append(line, `,"status":`...), int64(verdictStatus[o.Verdict]), 10)
	start := len(line)
	line = appendAccepted(line, o)
	line[start] = ',' // in place of the brace
	return append(line, '\n')
}

// AppendLine appends a problem as the answer to the n-th line of a batch.
func (a Answer) AppendLine(line []byte, n int) []byte {
	line = strconv.AppendInt(append(line, `{"n":`...), int64(n), 10)
	return append(append(append(line, ','), a.Body[1:]...), '\n')
}

// milliseconds rounds up: a client must not return too early.
func milliseconds(d time.Duration) int64 { return ceil(d, time.Millisecond) }

func ceil(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// encode cannot fail: bodies hold strings, numbers and booleans.
func encode(body any) []byte {
	data, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return data
}

// maxInteger is the largest integer of structured fields (RFC 9651, 3.3.1).
const maxInteger = 999_999_999_999_999

type quotaState struct {
	quota     admission.Quota
	remaining int64
	reset     time.Duration
	retry     time.Duration
	refused   bool
}

// fields returns X-Ratelimit-…, Retry-After, and the structured fields of
// draft-ietf-httpapi-ratelimit-headers-11, without unknown remaining units.
func (s quotaState) fields(contentType string) []Field {
	fields := make([]Field, 0, 7)
	add := func(name, value string) { fields = append(fields, Field{name, value}) }

	add("Content-Type", contentType)
	add("X-Ratelimit-Limit", strconv.FormatInt(s.quota.Units, 10))
	if s.remaining >= 0 {
		add("X-Ratelimit-Remaining", strconv.FormatInt(s.remaining, 10))
	}
	// The draft requires t and Retry-After to mean the same instant.
	until := seconds(s.reset)
	if s.refused {
		until = max(1, seconds(s.retry))
		retry := strconv.FormatInt(until, 10)
		add("X-Ratelimit-Retry-After", retry)
		add("Retry-After", retry)
	}
	var room [128]byte
	name := append(append(append(room[:0], '"'), s.quota.Policy...), '"')
	described := integer(append(name, ";q="...), s.quota.Units)
	if s.quota.Window > 0 {
		described = integer(append(described, ";w="...), seconds(s.quota.Window))
	}
	add("RateLimit-Policy", string(described))
	if s.remaining >= 0 {
		state := integer(append(name, ";r="...), s.remaining)
		add("RateLimit", string(integer(append(state, ";t="...), until)))
	}
	return fields
}

func integer(text []byte, n int64) []byte { return strconv.AppendInt(text, min(n, maxInteger), 10) }

func seconds(d time.Duration) int64 { return ceil(d, time.Second) }
