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

// MaxReply bounds the body of a [Reply], in bytes.
const MaxReply = 1 << 20

// KeptReply bounds the part of it that a history keeps, in bytes.
const KeptReply = 1 << 10

// MaxProgress bounds a report of progress, in bytes.
const MaxProgress = 256

// Reply is the reply of a job's run to the waiting submitter.
type Reply struct {
	// Status of an HTTP target, or 0.
	Status int `json:"status,omitempty"`
	// Header of an HTTP target's answer, without its connection's.
	Header map[string][]string `json:"header,omitempty"`
	// Body is at most [MaxReply] bytes.
	Body []byte `json:"-"`
	// Cut: the body exceeded MaxReply or the size of a message.
	Cut bool `json:"body_too_large,omitempty"`
}

const roomForHeaders = 64 << 10

// Within returns the reply for messages of most bytes: it cuts a larger body to [KeptReply], and
// omits larger headers.
func (r Reply) Within(most int64) Reply {
	if int64(len(r.Body)) > most-roomForHeaders {
		r.Body, r.Cut = r.Body[:min(len(r.Body), KeptReply)], true
	}
	if len(encode(r)) > roomForHeaders/2 {
		r.Header = nil
	}
	return r
}

// Result is the end of a job, for its waiting submitter.
type Result struct {
	V      int    `json:"v"`
	Job    string `json:"job"`
	End    End    `json:"end"`
	Reason Reason `json:"reason,omitempty"`
	Error  string `json:"error,omitempty"`
	// Attempts counts failed attempts.
	Attempts int    `json:"attempts,omitempty"`
	Reply    *Reply `json:"reply,omitempty"`
}

// Encode omits the reply's body.
func (t Result) Encode() []byte {
	t.V = FormatVersion
	return encode(t)
}

// DecodeResult undoes Encode; [ErrVersion] for another format.
func DecodeResult(data []byte) (t Result, err error) {
	if err = json.Unmarshal(data, &t); err == nil && t.V != FormatVersion {
		err = fmt.Errorf("%w: %d", ErrVersion, t.V)
	}
	return t, err
}

// End is how a job ended.
type End string

// EndReplayed: the dead letter became another job.
const (
	EndDone      End = "done"
	EndDead      End = "dead"
	EndCancelled End = "cancelled"
	EndPurged    End = "purged"
	EndReplayed  End = "replayed"
)

// Ended is the stored end of a job.
type Ended struct {
	V      int    `json:"v"`
	How    End    `json:"how"`
	Letter uint64 `json:"letter,omitempty"` // dead, replayed: of the dead letter
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

// Reason says why a job is a dead letter.
type Reason string

const (
	ReasonPermanent Reason = "permanent" // by the target or handler
	ReasonAttempts  Reason = "attempts"  // all attempts failed
	// of the job, or the policy's max_age
	ReasonDeadline Reason = "deadline"
	// its headers or key; or it costs more than its bucket's capacity
	ReasonMalformed Reason = "malformed"
	// of three drainers that ran it, one after the other
	ReasonCrashed Reason = "crashed"
)

// Reasons are all reasons.
var Reasons = []Reason{ReasonPermanent, ReasonAttempts, ReasonDeadline, ReasonMalformed,
	ReasonCrashed}

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
