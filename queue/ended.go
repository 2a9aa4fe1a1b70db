package queue

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
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

const (
	// maxEnded bounds each of the two tables of ended jobs, some 20 MB; the oldest records go first.
	maxEnded = 100_000
	// endedTTL is how long it is remembered that a job ended without success: as long as its dead letter stays.
	endedTTL = deadMaxAge
)

// Ended is what became of a job that has left its stream, or is about to.
type Ended struct {
	V        int       `json:"v"`
	How      End       `json:"how"`
	Letter   uint64    `json:"letter,omitempty"` // dead, replayed: the ID of its dead letter
	Job      uint64    `json:"job,omitempty"`    // replayed: the sequence of the job that was made of the letter
	Accepted time.Time `json:"accepted"`         // when the job was stored: a stream that is made anew repeats sequences
	Sum      string    `json:"sum,omitempty"`    // of its payload, as in [HeaderSum]; empty when that is not known
}

func endedKey(policy string, seq uint64) string { return policy + "." + strconv.FormatUint(seq, 10) }

// Ended reads what became of a job. It is remembered for 14 days of every dead letter, and of cancelled and purged jobs
// with an Idempotency-Key; and of a done job with an Idempotency-Key, in memory, while its policy recognizes repeats, for
// at most 100,000 jobs of each kind. A job that is not remembered, or has not ended, is [ErrNotFound].
func (b *Broker) Ended(ctx context.Context, policy string, seq uint64) (Ended, error) {
	e, err := readEnded(ctx, b.ended, policy, seq)
	if errors.Is(err, ErrNotFound) {
		e, err = readEnded(ctx, b.done, policy, seq)
	}
	if errors.Is(err, ErrNoStream) { // a single server that starts again has lost what it held in memory
		if err = b.ensureStream(ctx, b.done.config(b.replicas, 0)); err == nil {
			err = ErrNotFound
		}
	}
	if err != nil {
		return Ended{}, fmt.Errorf("end of job %s:%d: %w", policy, seq, err)
	}
	return e, nil
}

func readEnded(ctx context.Context, t *Table, policy string, seq uint64) (Ended, error) {
	record, err := t.Read(ctx, endedKey(policy, seq))
	if err != nil {
		return Ended{}, err
	}
	var e Ended
	if err := json.Unmarshal(record.Value, &e); err != nil || e.V != formatVersion {
		return Ended{}, fmt.Errorf("%w: record %s", ErrVersion, record.Key)
	}
	return e, nil
}

// NoteEnded remembers how a job ended that did not succeed, until 14 days from now. Call it before the job's
// acknowledgement, and repeat it on any error.
func (b *Broker) NoteEnded(ctx context.Context, policy string, seq uint64, e Ended) error {
	if err := b.ended.setFor(ctx, endedKey(policy, seq), e.encode(), endedTTL); err != nil {
		return fmt.Errorf("note the end of job %s:%d: %w", policy, seq, err)
	}
	return nil
}

// NoteDone remembers for some time that a job with an Idempotency-Key is done. It does not wait for the server, and what
// is lost is missed little: a repeat of the job is then recognized without its payload being compared.
func (b *Broker) NoteDone(policy string, seq uint64, e Ended, ttl time.Duration) error {
	e.How = EndDone
	m := &nats.Msg{Subject: b.done.prefix + endedKey(policy, seq), Data: e.encode(),
		Header: nats.Header{headerTTL: {max(ttl, time.Second).Truncate(time.Second).String()}}}
	if err := b.nc.PublishMsg(m); err != nil {
		return fmt.Errorf("note that job %s:%d is done: %w", policy, seq, translate(err))
	}
	return nil
}

func (e Ended) encode() []byte {
	e.V = formatVersion
	data, err := json.Marshal(e)
	if err != nil {
		panic(fmt.Sprintf("queue: encode the end of a job: %v", err)) // strings, numbers and an instant: cannot fail
	}
	return data
}

// PayloadSum is what tells whether two jobs of one Idempotency-Key are the same: a sum of body, [HeaderMethod] and
// [HeaderPath]. A stored job may carry it in [HeaderSum].
func PayloadSum(h nats.Header, body []byte) string {
	if sum := headerValue(h, HeaderSum); sum != "" {
		return sum
	}
	hash := sha256.New()
	for _, name := range []string{HeaderMethod, HeaderPath} {
		value := strings.TrimSpace(headerValue(h, name))
		hash.Write(binary.AppendUvarint(nil, uint64(len(value))))
		hash.Write([]byte(value))
	}
	hash.Write(body)
	return base64.RawURLEncoding.EncodeToString(hash.Sum(nil)[:16])
}

// headerValue reads a header whatever its case.
func headerValue(h nats.Header, name string) string {
	for key, values := range h {
		if len(values) > 0 && strings.EqualFold(key, name) {
			return values[0]
		}
	}
	return ""
}
