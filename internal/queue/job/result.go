package job

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/queue"
)

// HeaderWaiter is the token of the waiting submitter, set by admitters.
const HeaderWaiter = "Penstock-Waiter"

// 128 random bits, in letters and digits
const waiterToken = 26

// IsWaiter reports whether a token is valid, and so valid in a subject.
func IsWaiter(token string) bool {
	return len(token) == waiterToken &&
		strings.Trim(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// KeptReply bounds the part of it that a history keeps, in bytes.
const KeptReply = 1 << 10

// MaxProgress bounds a report of progress, in bytes.
const MaxProgress = 256

const roomForHeaders = 64 << 10

// Within returns r for messages of most bytes: it cuts a larger body to [KeptReply], and omits
// larger headers.
func Within(r queue.Reply, most int64) queue.Reply {
	if int64(len(r.Body)) > most-roomForHeaders {
		r.Body, r.Cut = r.Body[:min(len(r.Body), KeptReply)], true
	}
	if len(encode(r)) > roomForHeaders/2 {
		r.Header = nil
	}
	return r
}

// EncodeResult omits the reply's body.
func EncodeResult(t queue.Result) []byte {
	t.V = FormatVersion
	return encode(t)
}

// DecodeResult undoes [EncodeResult]; [ErrVersion] for another format.
func DecodeResult(data []byte) (t queue.Result, err error) {
	if err = json.Unmarshal(data, &t); err == nil && t.V != FormatVersion {
		err = fmt.Errorf("%w: %d", ErrVersion, t.V)
	}
	return t, err
}

// Ended is the stored end of a job.
type Ended struct {
	V      int       `json:"v"`
	How    queue.End `json:"how"`
	Letter uint64    `json:"letter,omitempty"` // dead, replayed: of the dead letter
	// replayed: the new job's sequence
	Job uint64 `json:"job,omitempty"`
	// distinguishes sequences of a recreated stream
	Accepted time.Time `json:"accepted"`
	// see [PayloadSum]; empty: unknown
	Sum string `json:"sum,omitempty"`
}

// Encode returns the document, in the current format.
func (e Ended) Encode() []byte {
	e.V = FormatVersion
	return encode(e)
}

// encode marshals numbers, strings and times.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("job: encode %T: %v", v, err))
	}
	return data
}

// PayloadSum is a sum of body, [HeaderMethod] and [HeaderPath], or the [HeaderSum] of a stored job,
// which jobs with one Idempotency-Key have in common. It omits encoded bodies, which differ when
// encrypted.
func PayloadSum(h map[string][]string, body []byte) string {
	if sum := HeaderValue(h, HeaderSum); sum != "" {
		return sum
	}
	hash := sha256.New()
	for _, name := range []string{HeaderMethod, HeaderPath} {
		value := strings.TrimSpace(HeaderValue(h, name))
		hash.Write(binary.AppendUvarint(nil, uint64(len(value))))
		hash.Write([]byte(value))
	}
	if !IsEncoded(h) {
		hash.Write(body)
	}
	return base64.RawURLEncoding.EncodeToString(hash.Sum(nil)[:16])
}

// HeaderValue returns a header's value; the name's case does not matter.
func HeaderValue(h map[string][]string, name string) string {
	for key, values := range h {
		if len(values) > 0 && strings.EqualFold(key, name) {
			return values[0]
		}
	}
	return ""
}

// Reasons are all reasons.
var Reasons = []queue.Reason{queue.ReasonPermanent, queue.ReasonAttempts, queue.ReasonDeadline,
	queue.ReasonMalformed, queue.ReasonCrashed}

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

// Document encodes a result for users, with the reply's body.
func Document(t queue.Result) []byte {
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

// ParseDocument undoes [Document].
func ParseDocument(data []byte) (queue.Result, error) {
	var d api.Outcome
	if err := json.Unmarshal(data, &d); err != nil {
		return queue.Result{}, err
	}
	t := queue.Result{V: FormatVersion, Job: d.Job, End: queue.End(d.End),
		Reason: queue.Reason(d.Reason), Error: d.Error, Attempts: d.Attempts}
	if r := d.Reply; r != nil {
		t.Reply = &queue.Reply{Status: r.Status, Header: r.Header, Body: r.Bytes,
			Cut: r.BodyTooLarge}
		if r.Body != nil {
			t.Reply.Body = []byte(*r.Body)
		}
	}
	return t, nil
}
