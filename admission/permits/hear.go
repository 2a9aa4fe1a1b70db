package permits

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/internal/base/answers"
)

// begin returns what decides of an answer's body besides its status and header, read first, at most
// [answers.MostRead]. later: only its end decides, as reading it would hold up a stream: a success
// of unknown or larger size.
func (s Sender) begin(a *http.Response) (text []byte, later bool) {
	if !s.Rules.Reads(a.StatusCode) || a.Body == nil || a.StatusCode < http.StatusOK {
		return nil, false
	}
	kind, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	failed := a.StatusCode >= http.StatusMultipleChoices
	short := a.ContentLength >= 0 && a.ContentLength <= answers.MostRead
	isJSON := kind == "application/json" || strings.HasSuffix(kind, "+json")
	if kind != "text/event-stream" && (failed || short || s.Hold && isJSON) {
		return Peek(a), false
	}
	return nil, true
}

func (s Sender) judge(status int, header http.Header, text []byte) answers.Verdict {
	if coding := header.Get("Content-Encoding"); s.Decode != nil && len(text) > 0 {
		if plain, err := s.Decode(bytes.NewReader(text), coding); err == nil {
			text, _ = io.ReadAll(io.LimitReader(plain, answers.MostRead)) // a part matches no rule
		}
	}
	return s.Rules.Judge(status, header, text, time.Now())
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
