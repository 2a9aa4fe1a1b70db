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
		return nil, fmt.Errorf("%.80q: want a URL of at most %d bytes, without spaces", text,
			maxCallback)
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

// resultDocument is a result for users: without a version, and with the reply's body.
type resultDocument struct {
	Result
	V        int            `json:"v,omitzero"`
	Attempts int            `json:"attempts"`
	Reply    *replyDocument `json:"reply,omitempty"`
}

type replyDocument struct {
	Reply
	Body  *string `json:"body,omitempty"` // if UTF-8
	Bytes []byte  `json:"body_base64,omitempty"`
}

func (t Result) Document() []byte {
	d := resultDocument{Result: t, Attempts: t.Attempts}
	if r := t.Reply; r != nil {
		d.Reply = &replyDocument{Reply: *r}
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
	t := d.Result
	t.V, t.Attempts = FormatVersion, d.Attempts
	if r := d.Reply; r != nil {
		t.Reply = &r.Reply
		if t.Reply.Body = r.Bytes; r.Body != nil {
			t.Reply.Body = []byte(*r.Body)
		}
	}
	return t, nil
}
