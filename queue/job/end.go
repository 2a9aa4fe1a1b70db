package job

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// End says how a job ended.
type End string

// The ends of a job. EndReplayed: the job became a dead letter, from which another job was made.
const (
	EndDone      End = "done"
	EndDead      End = "dead"
	EndCancelled End = "cancelled"
	EndPurged    End = "purged"
	EndReplayed  End = "replayed"
)

// Ended is the end of a job that has left its stream, or is about to.
type Ended struct {
	V      int    `json:"v"`
	How    End    `json:"how"`
	Letter uint64 `json:"letter,omitempty"` // dead, replayed: the ID of its dead letter
	// replayed: the sequence of the new job
	Job uint64 `json:"job,omitempty"`
	// when the job was stored: a recreated stream repeats sequences
	Accepted time.Time `json:"accepted"`
	// of its payload, as in [HeaderSum]; empty when unknown
	Sum string `json:"sum,omitempty"`
}

// Encode returns e's stored record.
func (e Ended) Encode() []byte {
	e.V = FormatVersion
	return encode(e)
}

// encode returns a value of numbers, strings and times as JSON.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("job: encode %T: %v", v, err))
	}
	return data
}

// PayloadSum shows whether two jobs with the same Idempotency-Key are the same: a sum of body,
// [HeaderMethod] and [HeaderPath]. A stored job may carry it in [HeaderSum]. An encoded body is not
// in it, because encryption makes another one of the same payload each time.
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

// HeaderValue returns the value of a header, ignoring the case of its name.
func HeaderValue(h map[string][]string, name string) string {
	for key, values := range h {
		if len(values) > 0 && strings.EqualFold(key, name) {
			return values[0]
		}
	}
	return ""
}

// Reason says why a job became a dead letter.
type Reason string

// The reasons of dead letters.
const (
	ReasonPermanent Reason = "permanent" // the target or handler said that no attempt can succeed
	ReasonAttempts  Reason = "attempts"  // all attempts failed
	// its deadline passed, or it waited longer than the policy's max_age
	ReasonDeadline Reason = "deadline"
	// its headers or key are unreadable, or it costs more than its bucket's capacity
	ReasonMalformed Reason = "malformed"
	ReasonCrashed   Reason = "crashed" // its drainer crashed while it ran, three times
)

// Reasons lists every reason.
var Reasons = []Reason{ReasonPermanent, ReasonAttempts, ReasonDeadline, ReasonMalformed,
	ReasonCrashed}
