package queue

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	deadMaxAge = 14 * 24 * time.Hour

	// deadDuplicates is how long a letter that was stored and not confirmed is recognised when it comes again: long
	// enough for a crash and a takeover.
	deadDuplicates = 10 * time.Minute

	// deadErrorBytes bounds the error text: with the other headers it fits the room that streams of jobs leave below the
	// server's largest message.
	deadErrorBytes = 4096
)

// Headers of a dead letter, besides the job's own.
const (
	HeaderDeadReason    = "Penstock-Dead-Reason"    // one word, such as "malformed" or "deadline"
	HeaderDeadError     = "Penstock-Dead-Error"     // the last error's text, at most 4 KiB
	HeaderDeadAttempts  = "Penstock-Dead-Attempts"  // attempts that counted
	HeaderDeadJob       = "Penstock-Dead-Job"       // <policy>:<stream sequence>
	HeaderDeadStored    = "Penstock-Dead-Stored"    // when the job was accepted, RFC 3339
	HeaderDeadPartition = "Penstock-Dead-Partition" // the partition that held it

	HeaderDeadIdempotency = "Penstock-Dead-Idempotency-Key" // that its runs carried
)

// DeadLetter is a job that will not be tried again, with the reason.
type DeadLetter struct {
	Policy    string
	Key       Key
	Seq       uint64 // of the job in its policy's stream
	Partition int
	Stored    time.Time // when JetStream stored the job
	Reason    string    // one word
	Error     string    // the last error; cut to 4 KiB
	Attempts  int
	// Idempotency is what the runs of the job carried as their Idempotency-Key, for its replay; empty when it never ran.
	Idempotency string
	Header      nats.Header // the job's headers, kept but for the server's own
	Body        []byte
}

func (b *Broker) deadConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        b.names.DeadStream(),
		Description: "Penstock: jobs that will not be tried again",
		Subjects:    []string{b.names.lower + ".dead.>"},
		Retention:   jetstream.LimitsPolicy,
		Storage:     jetstream.FileStorage,
		Discard:     jetstream.DiscardOld,
		MaxAge:      deadMaxAge,
		MaxMsgs:     -1,
		MaxBytes:    -1,
		Duplicates:  deadDuplicates,
		Replicas:    b.replicas,
		AllowDirect: true,
	}
}

// Bury stores a dead letter, and how the job ended (see [Broker.Ended]), and returns when both are confirmed; only then may
// the job be acknowledged. The same job buried again within 10 minutes is still one letter, so repeat it on any error.
func (b *Broker) Bury(ctx context.Context, d DeadLetter) error {
	m := nats.NewMsg(b.names.Dead(d.Policy, d.Key))
	for name, values := range d.Header {
		if !hasPrefixFold(name, "Nats-") && !hasPrefixFold(name, "Penstock-Dead-") {
			m.Header[name] = values
		}
	}
	seq := strconv.FormatUint(d.Seq, 10)
	m.Header.Set(HeaderDeadReason, d.Reason)
	if d.Error != "" {
		m.Header.Set(HeaderDeadError, headerText(d.Error))
	}
	m.Header.Set(HeaderDeadAttempts, strconv.Itoa(d.Attempts))
	m.Header.Set(HeaderDeadJob, d.Policy+":"+seq)
	m.Header.Set(HeaderDeadStored, d.Stored.UTC().Format(time.RFC3339Nano))
	m.Header.Set(HeaderDeadPartition, strconv.Itoa(d.Partition))
	if d.Idempotency != "" {
		m.Header.Set(HeaderDeadIdempotency, d.Idempotency)
	}
	// A recreated stream counts from 1 again: the instant tells the two jobs apart.
	m.Header.Set(jetstream.MsgIDHeader, d.Policy+"/"+seq+"/"+strconv.FormatInt(d.Stored.UnixNano(), 36))
	m.Data = d.Body

	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := b.nc.RequestMsgWithContext(ctx, m)
	var ack pubAck
	if err == nil {
		ack, err = parsePubAck(answer.Data)
	}
	if err != nil {
		return fmt.Errorf("bury job %s:%s: %w", d.Policy, seq, translate(err))
	}
	e := Ended{How: EndDead, Letter: ack.Seq, Accepted: d.Stored}
	if headerValue(d.Header, HeaderIdempotencyKey) != "" {
		e.Sum = PayloadSum(d.Header, d.Body)
	}
	return b.NoteEnded(ctx, d.Policy, d.Seq, e)
}

// headerText makes any text fit a header line.
func headerText(s string) string {
	if len(s) > deadErrorBytes {
		cut := deadErrorBytes
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut]
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7F {
			return ' '
		}
		return r
	}, s))
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
