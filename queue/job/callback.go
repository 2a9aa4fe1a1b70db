package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/penstock-mq/penstock/api"
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

// Document is a result for users, with the reply's body.
func (t Result) Document() []byte {
	d := api.Outcome{Job: t.Job, End: string(t.End), Reason: string(t.Reason), Error: t.Error,
		Attempts: t.Attempts}
	if r := t.Reply; r != nil {
		d.Reply = &api.Reply{Status: r.Status, Header: r.Header, BodyTooLarge: r.Cut}
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
	var d api.Outcome
	if err := json.Unmarshal(data, &d); err != nil {
		return Result{}, err
	}
	t := Result{V: FormatVersion, Job: d.Job, End: End(d.End), Reason: Reason(d.Reason),
		Error: d.Error, Attempts: d.Attempts}
	if r := d.Reply; r != nil {
		t.Reply = &Reply{Status: r.Status, Header: r.Header, Body: r.Bytes, Cut: r.BodyTooLarge}
		if r.Body != nil {
			t.Reply.Body = []byte(*r.Body)
		}
	}
	return t, nil
}
