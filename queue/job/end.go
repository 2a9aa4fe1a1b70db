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
