package job

import (
	"encoding/json"
	"fmt"
)

// HeaderWaiter of a stored job is the token of its waiting submitter, set by admitters.
const HeaderWaiter = "Penstock-Waiter"

// waiterToken is the length of a token: 128 random bits, in letters and digits.
const waiterToken = 26

// IsWaiter reports whether a [HeaderWaiter] is a valid token, and so a token of a subject.
func IsWaiter(token string) bool {
	for i := range len(token) {
		if c := token[i]; (c < 'A' || c > 'Z') && (c < '2' || c > '7') {
			return false
		}
	}
	return len(token) == waiterToken
}

// MaxReply is the largest body of a [Reply], in bytes.
const MaxReply = 1 << 20

// KeptReply is the number of bytes of a reply's body kept in the policy's history.
const KeptReply = 1 << 10

// MaxProgress is the largest report of a running job's progress, in bytes.
const MaxProgress = 256

// Reply is the reply of a job's run, such as an HTTP target's, to the waiting submitter. Only a
// history keeps any of it, see [KeptReply].
type Reply struct {
	// Status is the status of an HTTP target; otherwise 0.
	Status int `json:"status,omitempty"`
	// Header holds an HTTP target's response headers, except its connection's.
	Header map[string][]string `json:"header,omitempty"`
	// Body is at most [MaxReply] bytes.
	Body []byte `json:"-"`
	// Cut: the body was left out because it exceeded MaxReply or the size of a message.
	Cut bool `json:"body_too_large,omitempty"`
}

// roomForHeaders is the space of a message reserved for its headers.
const roomForHeaders = 64 << 10

// Within returns the reply as it fits a message of most bytes. A larger body is cut to what a
// history keeps, and larger headers are left out.
func (r Reply) Within(most int64) Reply {
	if int64(len(r.Body)) > most-roomForHeaders {
		r.Body, r.Cut = r.Body[:min(len(r.Body), KeptReply)], true
	}
	if len(encode(r)) > roomForHeaders/2 { // a target's headers can be of any size
		r.Header = nil
	}
	return r
}

// Result is the end of a job, as published to its waiting submitter.
type Result struct {
	V      int    `json:"v"`
	Job    string `json:"job"` // its id
	End    End    `json:"end"` // [EndDone], [EndDead] or [EndCancelled]
	Reason Reason `json:"reason,omitempty"`
	Error  string `json:"error,omitempty"`
	// Attempts is the number of failed attempts, the last one included.
	Attempts int    `json:"attempts,omitempty"`
	Reply    *Reply `json:"reply,omitempty"`
}

// Encode returns the input of [DecodeResult]; it leaves out the body of a reply.
func (t Result) Encode() []byte {
	t.V = FormatVersion
	return encode(t)
}

// DecodeResult parses an encoded Result. It returns [ErrVersion] for another format.
func DecodeResult(data []byte) (t Result, err error) {
	if err = json.Unmarshal(data, &t); err == nil && t.V != FormatVersion {
		err = fmt.Errorf("%w: %d", ErrVersion, t.V)
	}
	return t, err
}
