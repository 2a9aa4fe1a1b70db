package job

import (
	"encoding/json"
	"fmt"
	"strings"
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
