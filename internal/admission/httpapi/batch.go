package httpapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/admission/answer"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
)

// It applies to jobs without one.
var ipHeader = http.CanonicalHeaderKey(admit.IPHeader)

const tellEvery = 50 * time.Millisecond

// submitBatch reads the whole batch first, because a slow queue must not count as a slow client.
func (h *handler) submitBatch(r *http.Request, at place) (answer.Answer, error) {
	for name := range r.Header {
		if name == job.HeaderIdempotencyKey ||
			name != ipHeader && job.HasPrefixFold(name, job.HeaderPrefix) {
			return answer.Answer{}, bad(name,
				"applies to a single job: put it into the headers of each job")
		}
	}
	if at.proxy != nil {
		return answer.Answer{}, at.proxy
	}
	body, held, err := h.read(r, at, admit.MaxBatchBytes)
	release := func() { h.options.Budget.Release(at.from, held) }
	if err != nil {
		release()
		return answer.Answer{}, bodyLeft{err}
	}
	// Decoded jobs and those in flight take as much again.
	if err := h.options.Budget.Reserve(at.from, held); err != nil {
		release()
		return answer.Answer{}, err
	}
	held *= 2
	if len(bytes.TrimSpace(body)) == 0 {
		release()
		return answer.Answer{}, bad("body", "contains no job")
	}
	return answer.Lines(func(w io.Writer, flush func()) {
		defer release()
		out := bufio.NewWriterSize(w, 32<<10)
		n, told := 0, time.Now()
		var line []byte
		// The only error is that the client has stopped reading.
		_ = h.service.SubmitBatch(r.Context(), h.jobs(r, at.client, at.ip, body),
			func(o admission.Outcome, err error) error {
				n++
				if err != nil {
					line = h.errors.Answer(err).AppendLine(line[:0], n)
				} else {
					line = answer.AppendSubmitted(line[:0], n, o)
				}
				if _, err := out.Write(line); err != nil {
					return err
				}
				if now := time.Now(); now.Sub(told) >= tellEvery {
					told = now
					if err := out.Flush(); err != nil {
						return err
					}
					flush()
				}
				return nil
			})
		_ = out.Flush()
	}), nil
}

func (h *handler) jobs(r *http.Request, client *access.Client, from string,
	body []byte) iter.Seq2[admit.SubmitRequest, error] {

	return func(yield func(admit.SubmitRequest, error) bool) {
		n := 0
		for text, err := range texts(body) {
			var request admit.SubmitRequest
			if n++; n > admit.MaxBatch {
				yield(request, fmt.Errorf("%w: a batch has at most %d jobs; this one and all "+
					"after it were not accepted", admission.ErrTooLarge, admit.MaxBatch))
				return
			}
			if err == nil {
				request, err = h.job(r, from, text)
			}
			if err == nil {
				err = permitSubmit(client, request)
			}
			if !yield(request, err) {
				return
			}
		}
	}
}

// A list ends where it is unreadable; lines continue after an error.
func texts(body []byte) iter.Seq2[[]byte, error] {
	if trimmed := bytes.TrimSpace(body); trimmed[0] == '[' {
		return elements(trimmed)
	}
	return func(yield func([]byte, error) bool) {
		for line := range bytes.Lines(body) {
			if line = bytes.TrimSpace(line); len(line) > 0 && !yield(line, nil) {
				return
			}
		}
	}
}

func elements(list []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		in := json.NewDecoder(bytes.NewReader(list))
		_, err := in.Token()
		for err == nil && in.More() {
			var element json.RawMessage
			if err = in.Decode(&element); err == nil && !yield(element, nil) {
				return
			}
		}
		if err == nil {
			_, err = in.Token()
		}
		if err == nil && in.InputOffset() < int64(len(list)) {
			err = fmt.Errorf("unexpected data after the list")
		}
		if err != nil {
			yield(nil, bad("body", "the rest of the list cannot be read: %v", err))
		}
	}
}

// plainJob reads {"policy":"…","key":"…","body":…} without escapes several times as fast as
// encoding/json.
func plainJob(text []byte) (j api.BatchJob, plain bool) {
	rest, plain := bytes.CutPrefix(text, []byte("{"))
	for named := false; plain; {
		var name, value []byte
		if name, rest, plain = plainString(rest); !plain {
			break
		}
		if rest, plain = bytes.CutPrefix(spaced(rest), []byte(":")); !plain {
			break
		}
		if string(name) == "body" {
			rest, plain = bytes.CutSuffix(rest, []byte("}"))
			j.Body = bytes.Trim(rest, jsonSpace)
			return j, plain && json.Valid(j.Body)
		}
		if value, rest, plain = plainString(rest); !plain {
			break
		}
		switch {
		case string(name) == "policy" && !named:
			j.Policy, named = string(value), true
		case string(name) == "key" && j.Key == nil:
			key := string(value)
			j.Key = &key
		default:
			return j, false
		}
		rest, plain = bytes.CutPrefix(spaced(rest), []byte(","))
	}
	return j, false
}

// plainString reads a string of printable ASCII without escapes.
func plainString(text []byte) (s, rest []byte, plain bool) {
	if text, plain = bytes.CutPrefix(spaced(text), []byte(`"`)); !plain {
		return nil, nil, false
	}
	for i, c := range text {
		switch {
		case c == '"':
			return text[:i], text[i+1:], true
		case c < ' ' || c > '~' || c == '\\':
			return nil, nil, false
		}
	}
	return nil, nil, false
}

const jsonSpace = " \t\r\n"

func spaced(text []byte) []byte { return bytes.TrimLeft(text, jsonSpace) }

func readJob(text []byte) (j api.BatchJob, err error) {
	if j, plain := plainJob(text); plain {
		return j, nil
	}
	if err := decode(text, &j); err != nil {
		return j, bad("job", "cannot be read: %v", err)
	}
	return j, nil
}

func (h *handler) job(r *http.Request, from string,
	text []byte) (request admit.SubmitRequest, err error) {

	j, err := readJob(text)
	if err != nil {
		return request, err
	}
	request.Policy = j.Policy
	if j.Key == nil {
		return request, bad("key", `is missing; use "" for the empty key`)
	}
	if request.Key, err = queue.EncodeKey(*j.Key); err != nil {
		return request, admit.InvalidKey(err)
	}
	given := r.Header[ipHeader]
	var header http.Header
	if len(j.Headers)+len(given) > 0 {
		header = make(http.Header, len(j.Headers)+1)
	}
	for name, value := range j.Headers {
		if !job.IsToken(name) {
			return request, bad("headers", "%.64q is not a header name", name)
		}
		header.Add(name, value)
	}
	if given != nil && header[ipHeader] == nil {
		header[ipHeader] = given
	}
	request.Header, request.IP = header, from
	if len(header[ipHeader]) > 0 {
		if _, err := h.client(r.RemoteAddr, header); err != nil {
			return request, err
		}
	}
	request.Body, err = bodyOf(&j)
	request.JSON = j.Body != nil
	return request, err
}

func bodyOf(j *api.BatchJob) (body []byte, err error) {
	given := 0
	if j.Body != nil {
		given, body = given+1, j.Body
	}
	if j.Text != nil {
		given, body = given+1, []byte(*j.Text)
	}
	if j.Base64 != nil {
		given, body = given+1, j.Base64
	}
	if given > 1 {
		return nil, bad("body", "must be given only once, as body, text or base64")
	}
	return body, nil
}
