package queue

import (
	"time"

	"github.com/nats-io/nats.go"
)

// Key is a bucket's identity: the subject form of the user's key (see [EncodeKey]).
type Key string

// Arrived is a stored job as a partition's backlog delivers it.
type Arrived struct {
	Seq       uint64    // in the policy's stream
	Key       Key       // the bucket
	Partition int       // which holds the bucket
	Stored    time.Time // when JetStream stored it, by the server's clock
	Size      int       // bytes of the body, also when Body was left out

	// What the headers say; see DESIGN.md "The stored job".
	Deadline  time.Time // zero: none
	NotBefore time.Time // zero: none
	Cost      int64     // at least 1
	Priority  int       // higher goes first, default 0

	// Malformed says why the headers or the subject cannot be understood; such a job becomes a dead letter.
	Malformed error

	Header nats.Header // nil when there is none
	Body   []byte      // nil when the backlog delivers headers only
	Lean   bool        // Body was left out: read it with Backlog.Body before the job starts
}
