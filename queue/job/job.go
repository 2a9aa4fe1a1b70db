// Package job says what a stored job is: its key and headers, how it stands at its valve, how it
// ends. It knows no stream and does no I/O.
package job

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// FormatVersion is the version of everything that Penstock stores: stream layout, policy records,
// messages to valves.
const FormatVersion = 1

// ErrVersion says that something stored carries a format version this program does not know, or
// that the server is older than package queue needs.
var ErrVersion = errors.New("unsupported version")

// Arrived is a stored job as a partition's backlog delivers it.
type Arrived struct {
	Seq       uint64    // in the policy's stream
	Key       Key       // the bucket
	Partition int       // which holds the bucket
	Stored    time.Time // when JetStream stored it, by the server's clock
	Size      int       // bytes of the body, also when Body was left out

	// What the headers say; see DESIGN.md "The stored job".
	Deadline  time.Time        // zero: none
	NotBefore time.Time        // zero: none
	Cost      int64            // at least 1
	Costs     map[string]int64 // of limits that count another, by its name; nil: none
	Priority  int              // higher goes first, default 0

	// Malformed says why the headers or the subject cannot be understood; such a job becomes a dead
	// letter.
	Malformed error

	Header map[string][]string // nil when there is none
	Body   []byte              // nil when the backlog delivers headers only
	Lean   bool                // Body was left out: read it with Backlog.Body before the job starts
}

// ID is what users call a job: "policy:sequence".
func ID(policy string, seq uint64) string { return policy + ":" + strconv.FormatUint(seq, 10) }

// ParseID takes an id apart, and reports whether it is one.
func ParseID(id string) (policy string, seq uint64, ok bool) {
	policy, digits, _ := strings.Cut(id, ":")
	seq, err := strconv.ParseUint(digits, 10, 64)
	return policy, seq, err == nil
}

// IdempotencyKey is the Idempotency-Key that the runs of a job carry: its own, or one that no other
// job has. A stream that was made again repeats sequences, so the second in which it was made is
// part of it.
func IdempotencyKey(header map[string][]string, policy string, created time.Time,
	seq uint64) string {
	if own := HeaderValue(header, HeaderIdempotencyKey); own != "" {
		return own
	}
	return policy + "-" + strconv.FormatInt(created.Unix(), 10) + "-" +
		strconv.FormatUint(seq, 10)
}
