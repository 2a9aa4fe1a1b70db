package job

import (
	"encoding/json"
	"fmt"
)

// HeaderWaiter of a stored job is the token of who waits for its outcome. Admitters set it, and it
// says nothing else: the subject that the outcome goes to is made of it, below the prefix.
const HeaderWaiter = "Penstock-Waiter"

// waiterToken is how long a token is: 128 random bits, in letters and digits.
const waiterToken = 26

// IsWaiter reports whether a [HeaderWaiter] is a token, and so one of a subject.
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

// KeptReply is how many bytes of a reply's body the history of a policy keeps.
const KeptReply = 1 << 10

// Reply is what ran a job, such as the target of its policy, has to say to who waits for it. Nobody
// keeps more of it than a history does, see [KeptReply].
type Reply struct {
	// Status is that of an HTTP target; 0 where nothing has one.
	Status int `json:"status,omitempty"`
	// Header holds what an HTTP target answered, but for what belongs to its connection.
	Header map[string][]string `json:"header,omitempty"`
	// Body is at most [MaxReply] bytes.
	Body []byte `json:"-"`
	// Cut: the body was larger, or than a message, and is left out.
	Cut bool `json:"body_too_large,omitempty"`
}

// Told is how a job ended, for who waits for it.
type Told struct {
	V      int    `json:"v"`
	Job    string `json:"job"` // its id
	End    End    `json:"end"` // [EndDone], [EndDead] or [EndCancelled]
	Reason Reason `json:"reason,omitempty"`
	Error  string `json:"error,omitempty"`
	// Attempts that failed, the last one included.
	Attempts int    `json:"attempts,omitempty"`
	Reply    *Reply `json:"reply,omitempty"`
}

// Encode returns what [DecodeTold] reads; the body of a reply is not among it.
func (t Told) Encode() []byte {
	t.V = FormatVersion
	data, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("job: encode an outcome: %v", err)) // strings and numbers: cannot fail
	}
	return data
}

// DecodeTold reads how a job ended. The error is [ErrVersion] for another format.
func DecodeTold(data []byte) (t Told, err error) {
	if err = json.Unmarshal(data, &t); err == nil && t.V != FormatVersion {
		err = fmt.Errorf("%w: %d", ErrVersion, t.V)
	}
	return t, err
}
