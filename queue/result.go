package queue

// MaxReply bounds the body of a [Reply], in bytes.
const MaxReply = 1 << 20

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
