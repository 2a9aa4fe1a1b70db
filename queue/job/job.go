// Package job defines stored jobs: their keys and headers, their states at a valve, and their
// ends. It knows no stream and does no I/O.
package job

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// FormatVersion is the version of every stored format: stream layout, policy records, messages to
// valves.
const FormatVersion = 1

// ErrVersion says that a stored record has a format version unknown to this program, or that the
// server is older than package queue needs.
var ErrVersion = errors.New("unsupported version")

// Arrived is a stored job as a partition's backlog delivers it.
type Arrived struct {
	Seq       uint64    // in the policy's stream
	Key       Key       // the bucket
	Partition int       // that holds the bucket
	Stored    time.Time // when JetStream stored it, by the server's clock
	Size      int       // bytes of the body, also when Body was left out

	// Values of the headers; see DESIGN.md "The stored job".
	Deadline  time.Time        // zero: none
	NotBefore time.Time        // zero: none
	Cost      int64            // at least 1
	Costs     map[string]int64 // by name, for limits that count a named cost; nil: none
	Priority  int              // higher goes first, default 0

	// Malformed is why the headers or the subject are unreadable; such a job becomes a dead
	// letter.
	Malformed error

	Header map[string][]string // nil when there is none
	Body   []byte              // nil when the backlog delivers headers only
	Lean   bool                // Body was left out: read it with Backlog.Body before the job starts
}

// ID returns a job's public id, "policy:sequence".
func ID(policy string, seq uint64) string { return policy + ":" + strconv.FormatUint(seq, 10) }

// ParseID splits an id, and reports whether it is valid.
func ParseID(id string) (policy string, seq uint64, ok bool) {
	policy, digits, _ := strings.Cut(id, ":")
	seq, err := strconv.ParseUint(digits, 10, 64)
	return policy, seq, err == nil
}

// IdempotencyKey returns the Idempotency-Key that the runs of a job carry: its own, or a unique
// one, which includes the stream's creation because a recreated stream repeats sequences.
func IdempotencyKey(header map[string][]string, policy string, created time.Time,
	seq uint64) string {
	if own := HeaderValue(header, HeaderIdempotencyKey); own != "" {
		return own
	}
	return policy + "-" + strconv.FormatInt(created.UnixMilli(), 10) + "-" +
		strconv.FormatUint(seq, 10)
}
