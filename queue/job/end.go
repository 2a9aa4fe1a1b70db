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

// The ends of a job. One that was replayed had become a dead letter, of which another job was made.
const (
	EndDone      End = "done"
	EndDead      End = "dead"
	EndCancelled End = "cancelled"
	EndPurged    End = "purged"
	EndReplayed  End = "replayed"
)

// Ended is what became of a job that has left its stream, or is about to.
type Ended struct {
	V      int    `json:"v"`
	How    End    `json:"how"`
	Letter uint64 `json:"letter,omitempty"` // dead, replayed: the ID of its dead letter
	// replayed: the sequence of the job that was made of the letter
	Job uint64 `json:"job,omitempty"`
	// when the job was stored: a stream that is made again repeats sequences
	Accepted time.Time `json:"accepted"`
	// of its payload, as in [HeaderSum]; empty when that is not known
	Sum string `json:"sum,omitempty"`
}

// Encode returns the record of it.
func (e Ended) Encode() []byte {
	e.V = FormatVersion
	data, err := json.Marshal(e)
	if err != nil {
		// strings, numbers and an instant: cannot fail
		panic(fmt.Sprintf("job: encode the end of a job: %v", err))
	}
	return data
}

// PayloadSum shows whether two jobs of one Idempotency-Key are the same: a sum of body,
// [HeaderMethod] and [HeaderPath]. A stored job may carry it in [HeaderSum].
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
	hash.Write(body)
	return base64.RawURLEncoding.EncodeToString(hash.Sum(nil)[:16])
}

// HeaderValue returns a header whatever its case.
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
	// its headers or its key cannot be understood, or it costs more than its bucket's capacity
	ReasonMalformed Reason = "malformed"
	ReasonCrashed   Reason = "crashed" // its drainer crashed while it ran, three times
)

// Reasons are all of them.
var Reasons = []Reason{ReasonPermanent, ReasonAttempts, ReasonDeadline, ReasonMalformed,
	ReasonCrashed}
