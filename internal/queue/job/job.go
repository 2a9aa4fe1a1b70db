// Package job defines stored jobs: their keys and headers, their states at a valve, and their ends.
// It does no I/O.
package job

import (
	"errors"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

// FormatVersion is the version of every stored or exchanged format.
const FormatVersion = 1

// ErrVersion: a record has an unknown format, or the server is too old.
var ErrVersion = errors.New("unsupported version")

// Arrived is a stored job as its backlog delivers it.
type Arrived struct {
	Seq       uint64 // in the policy's stream
	Key       queue.Key
	Partition int
	Stored    time.Time // by the server's clock
	Size      int       // of the body, even if Body was left out

	// Of the headers; see DESIGN.md "The stored job".
	Deadline  time.Time        // may be zero
	NotBefore time.Time        // may be zero
	Cost      int64            // at least 1
	Costs     map[string]int64 // by name
	Priority  int              // higher goes first

	// Malformed is why it becomes a dead letter.
	Malformed error

	Header map[string][]string
	Body   []byte
	Lean   bool // Body was left out: see Backlog.Bodies
}

// ID is the id of a job, POLICY:SEQUENCE.
func ID(policy string, seq uint64) string {
	var room [64]byte
	return string(strconv.AppendUint(append(append(room[:0], policy...), ':'), seq, 10))
}

// ParseID returns the parts of an [ID].
func ParseID(id string) (policy string, seq uint64, ok bool) {
	policy, digits, _ := strings.Cut(id, ":")
	seq, err := strconv.ParseUint(digits, 10, 64)
	return policy, seq, err == nil
}

// IdempotencyKey returns the key of a job's runs: its own, or one with the stream's creation,
// because a recreated stream repeats sequences.
func IdempotencyKey(header map[string][]string, policy string, created time.Time,
	seq uint64) string {
	if own := HeaderValue(header, HeaderIdempotencyKey); own != "" {
		return own
	}
	return policy + "-" + strconv.FormatInt(created.UnixMilli(), 10) + "-" +
		strconv.FormatUint(seq, 10)
}

// Partition is the server's partition() of a published subject: its FNV-1a hash.
func Partition(subject string, partitions int) int {
	if partitions <= 1 {
		return 0
	}
	h := fnv.New32a()
	h.Write([]byte(subject))
	return int(h.Sum32() % uint32(partitions))
}
