package permits

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/internal/answers"
)

// Listening says how [Hear] reads a body.
type Listening struct {
	// Hold reads JSON of unknown length before it is passed on.
	Hold bool
	// Decode reverses a content coding; nil: bodies are plain.
	Decode func(body io.Reader, coding string) (io.Reader, error)
}

// Heard is what an answer means, as far as it is known. An answer whose body decides, and is not
// read yet, is done until its end.
type Heard struct {
	answers.Verdict
	rules  answers.Set
	status int
	header http.Header
	with   Listening
	copy   *bytes.Buffer // of a body that is passed on; nil: decided
}

// Hear judges an answer. If a rule asks for the body, it is read first, at most
// [answers.MostRead], unless that would hold up a stream: a success of unknown or larger size.
// Then the body is copied while it is read.
func Hear(a *http.Response, rules answers.Set, with Listening) *Heard {
	h := &Heard{rules: rules, status: a.StatusCode, header: a.Header.Clone(), with: with}
	var text []byte
	if rules.Reads(a.StatusCode) && a.Body != nil && a.StatusCode >= http.StatusOK {
		kind, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
		failed := a.StatusCode >= http.StatusMultipleChoices
		short := a.ContentLength >= 0 && a.ContentLength <= answers.MostRead
		isJSON := kind == "application/json" || strings.HasSuffix(kind, "+json")
		if kind != "text/event-stream" && (failed || short || with.Hold && isJSON) {
			text = Peek(a)
		} else {
			h.copy = &bytes.Buffer{}
			a.Body = &copied{a.Body, h.copy}
		}
	}
	h.Verdict = h.judge(text)
	return h
}

// Partly reports whether the rest of the answer decides.
func (h *Heard) Partly() bool { return h.copy != nil }

// End judges by what has been read.
func (h *Heard) End() answers.Verdict {
	if h.copy != nil {
		h.Verdict, h.copy = h.judge(h.copy.Bytes()), nil
	}
	return h.Verdict
}

func (h *Heard) judge(text []byte) answers.Verdict {
	if coding := h.header.Get("Content-Encoding"); h.with.Decode != nil && len(text) > 0 {
		if plain, err := h.with.Decode(bytes.NewReader(text), coding); err == nil {
			text, _ = io.ReadAll(io.LimitReader(plain, answers.MostRead)) // a part matches no rule
		}
	}
	return h.rules.Judge(h.status, h.header, text, time.Now())
}

// Peek returns the begin of a body, at most [answers.MostRead], which stays readable.
func Peek(a *http.Response) []byte {
	text, _ := io.ReadAll(io.LimitReader(a.Body, answers.MostRead)) // a later read tells the error
	a.Body = readCloser{io.MultiReader(bytes.NewReader(text), a.Body), a.Body}
	return text
}

type readCloser struct {
	io.Reader
	io.Closer
}

type copied struct {
	io.ReadCloser
	to *bytes.Buffer
}

func (c *copied) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.to.Write(p[:min(n, max(0, answers.MostRead+1-c.to.Len()))])
	return n, err
}
