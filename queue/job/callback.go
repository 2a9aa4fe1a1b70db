package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// HeaderCallback is the URL that a job's outcome is posted to.
	HeaderCallback = "Penstock-Callback"
	// HeaderCallbackTo is that URL in the job that posts it. Drainers set it.
	HeaderCallbackTo = "Penstock-Callback-To"
)

const maxCallback = 2048

// ParseCallback parses a [HeaderCallback]: an HTTP URL without a password, because it is shown with
// the job.
func ParseCallback(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	port, bad := uint64(1), error(nil)
	if err == nil && u.Port() != "" {
		port, bad = strconv.ParseUint(u.Port(), 10, 16)
	}
	switch {
	case err != nil, len(text) > maxCallback, strings.ContainsFunc(text, isControlOr(" ")):
		return nil, fmt.Errorf("%.80q: want a URL of at most %d bytes", text, maxCallback)
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return nil, fmt.Errorf("%.80q: want http://HOST or https://HOST", text)
	case bad != nil, port == 0:
		return nil, fmt.Errorf("%.80q: the port must be 1 to 65535", text)
	case u.User != nil:
		return nil, errors.New("must not contain a user name or password")
	case u.Fragment != "":
		return nil, errors.New("must not contain a fragment")
	}
	return u, nil
}

type resultDocument struct {
	Job      string         `json:"job"`
	End      End            `json:"end"`
	Reason   Reason         `json:"reason,omitempty"`
	Error    string         `json:"error,omitempty"`
	Attempts int            `json:"attempts"`
	Reply    *replyDocument `json:"reply,omitempty"`
}

type replyDocument struct {
	Status int                 `json:"status,omitempty"`
	Header map[string][]string `json:"header,omitempty"`
	Body   *string             `json:"body,omitempty"` // if UTF-8
	Bytes  []byte              `json:"body_base64,omitempty"`
	Cut    bool                `json:"body_too_large,omitempty"`
}

func (t Result) Document() []byte {
	d := resultDocument{t.Job, t.End, t.Reason, t.Error, t.Attempts, nil}
	if r := t.Reply; r != nil {
		d.Reply = &replyDocument{Status: r.Status, Header: r.Header, Cut: r.Cut}
		switch body := string(r.Body); {
		case r.Cut: // the rest is for the history
		case utf8.ValidString(body):
			d.Reply.Body = &body
		default:
			d.Reply.Bytes = r.Body
		}
	}
	return encode(d)
}

// ParseDocument undoes [Result.Document].
func ParseDocument(data []byte) (Result, error) {
	var d resultDocument
	if err := json.Unmarshal(data, &d); err != nil {
		return Result{}, err
	}
	t := Result{V: FormatVersion, Job: d.Job, End: d.End, Reason: d.Reason, Error: d.Error,
		Attempts: d.Attempts}
	if r := d.Reply; r != nil {
		t.Reply = &Reply{Status: r.Status, Header: r.Header, Body: r.Bytes, Cut: r.Cut}
		if r.Body != nil {
			t.Reply.Body = []byte(*r.Body)
		}
	}
	return t, nil
}
