// Package job defines stored jobs: their keys and headers, their states at a valve, and their ends.
// It does no I/O.
package job

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// FormatVersion is the version of every stored or exchanged format.
const FormatVersion = 1

// ErrVersion: a record has an unknown format, or the server is too old.
var ErrVersion = errors.New("unsupported version")

// Arrived is a stored job as its backlog delivers it.
type Arrived struct {
	Seq       uint64 // in the policy's stream
	Key       Key
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

// Codec encodes payloads of jobs and results, for example to encrypt them. Its functions are called
// concurrently. A nil Encode changes nothing.
type Codec struct {
	Encode, Decode func([]byte) ([]byte, error)
}

// Encoding is the Content-Encoding of an encoded payload.
const Encoding = "penstock-codec"

const contentEncoding = "Content-Encoding"

// ErrNoCodec: this process cannot read the payload.
var ErrNoCodec = errors.New("the payload is encoded, and no Codec.Decode is set")

// IsEncoded reports whether a job with the headers was encoded by a [Codec].
func IsEncoded(h map[string][]string) bool { return HeaderValue(h, contentEncoding) == Encoding }

// Seal encodes a body, and returns headers that say so; without Encode it changes nothing.
func (c Codec) Seal(h map[string][]string, body []byte) (map[string][]string, []byte, error) {
	if c.Encode == nil {
		return h, body, nil
	}
	if already := HeaderValue(h, contentEncoding); already != "" {
		return nil, nil, fmt.Errorf("encode a payload that has Content-Encoding %q", already)
	}
	encoded, err := c.Encode(body)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the payload: %w", err)
	}
	if h = maps.Clone(h); h == nil {
		h = map[string][]string{}
	}
	h[contentEncoding] = []string{Encoding}
	return h, encoded, nil
}

// Open decodes a body if its headers say that it is encoded.
func (c Codec) Open(h map[string][]string, body []byte) ([]byte, error) {
	switch {
	case !IsEncoded(h):
		return body, nil
	case c.Decode == nil:
		return nil, ErrNoCodec
	}
	decoded, err := c.Decode(body)
	if err != nil {
		return nil, fmt.Errorf("decode the payload: %w", err)
	}
	return decoded, nil
}
