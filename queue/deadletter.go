package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

const (
	deadMaxAge = 14 * 24 * time.Hour

	// deadDuplicates is the window in which a letter that is sent again is recognized: longer than
	// a crash and a takeover.
	deadDuplicates = 10 * time.Minute

	// letterOverhead exceeds the server's overhead per stored message.
	letterOverhead = 64

	// deadErrorBytes bounds the error text, so that all headers fit into headroom.
	deadErrorBytes = 4096
)

// Headers of a dead letter, besides its job's.
const (
	HeaderDeadReason    = "Penstock-Dead-Reason"    // one word, such as "malformed" or "deadline"
	HeaderDeadError     = "Penstock-Dead-Error"     // the last error's text, at most 4 KiB
	HeaderDeadAttempts  = "Penstock-Dead-Attempts"  // attempts that counted
	HeaderDeadJob       = "Penstock-Dead-Job"       // <policy>:<stream sequence>
	HeaderDeadStored    = "Penstock-Dead-Stored"    // when the job was accepted, RFC 3339
	HeaderDeadPartition = "Penstock-Dead-Partition" // the partition that held it
	// "left-out" when the policy keeps no bodies
	HeaderDeadBody = "Penstock-Dead-Body"

	HeaderDeadIdempotency = "Penstock-Dead-Idempotency-Key" // that its runs carried
)

// DeadLetter is a job that will not be tried again, with the reason.
type DeadLetter struct {
	Policy    string
	Key       job.Key
	Seq       uint64 // of the job in its policy's stream
	Partition int
	Stored    time.Time // when JetStream stored the job
	Reason    string    // one word
	Error     string    // the last error; cut to 4 KiB
	Attempts  int
	// IdempotencyKey is the one that the job's runs carried, kept for its replay.
	IdempotencyKey string
	Header         nats.Header // the job's headers, without the server's own
	Body           []byte
	// the policy keeps no bodies of dead letters, so the letter cannot be replayed
	Bodyless bool
}

// StoredLetter is a dead letter as stored.
type StoredLetter struct {
	DeadLetter
	ID     uint64    // in the stream of the policy's dead letters
	Buried time.Time // when it was stored there
	Size   int       // bytes of the body, also where Body was left out
}

const bodyLeftOut = "left-out"

// deadConfig configures the stream of a policy's dead letters. The stream refuses a letter beyond
// its bound in bytes, so that Bury discards the oldest letters and can count them.
func (b *Broker) deadConfig(policy string) jetstream.StreamConfig {
	return b.recordConfig(b.names.DeadStream(policy), b.names.Dead(policy, ">"),
		"jobs of policy "+policy+" that will not be tried again", jetstream.StreamConfig{
			Discard: jetstream.DiscardNew, MaxAge: deadMaxAge, MaxMsgs: -1, MaxBytes: -1,
			Duplicates: deadDuplicates})
}

// recordConfig completes the configuration of a stream of records about jobs.
func (b *Broker) recordConfig(name, subject, holds string,
	c jetstream.StreamConfig) jetstream.StreamConfig {
	c.Name, c.Subjects, c.Description = name, []string{subject}, "Penstock: "+holds
	c.Retention, c.Storage, c.Replicas = jetstream.LimitsPolicy, jetstream.FileStorage, b.replicas
	c.AllowDirect = true
	c.Metadata = map[string]string{jsapi.MetaVersion: strconv.Itoa(job.FormatVersion)}
	return c
}

// Bury stores a dead letter and the job's end (see [Results]); only then may the job be
// acknowledged. Burying the same job again within 10 minutes creates no second letter, so repeat
// Bury on any error. When there is no room, Bury discards the policy's oldest letters and returns
// their number. A letter larger than the whole room, or than the server's limit, is stored without
// its body.
func (b *Broker) Bury(ctx context.Context, d DeadLetter) (discarded uint64, err error) {
	m := b.deadMessage(d)
	for nothing := 0; ; {
		letter, err := b.js.Publish(ctx, m)
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			err = b.createMissing(ctx, d.Policy, b.deadConfig(d.Policy))
		case errors.Is(err, ErrStreamFull) && nothing < 8: // others take the room, too
			var n uint64
			n, err = b.discardOldest(ctx, d.Policy, uint64(m.Size())+letterOverhead)
			if discarded += n; n == 0 {
				nothing++
			}
		case err == nil:
			e := job.Ended{How: job.EndDead, Letter: letter.Seq, Accepted: d.Stored}
			if job.HeaderValue(d.Header, job.HeaderIdempotencyKey) != "" {
				e.Sum = job.PayloadSum(d.Header, d.Body)
			}
			return discarded, b.Results().Note(ctx, d.Policy, d.Seq, e)
		}
		if errors.Is(err, ErrTooLarge) && !d.Bodyless {
			d.Bodyless = true
			m, err = b.deadMessage(d), nil
		}
		if err != nil {
			return discarded, fmt.Errorf("bury job %s: %w", job.ID(d.Policy, d.Seq), err)
		}
	}
}

func (b *Broker) deadMessage(d DeadLetter) *nats.Msg {
	m := nats.NewMsg(b.names.Dead(d.Policy, d.Key))
	for name, values := range d.Header {
		if !job.HasPrefixFold(name, "Nats-") && !job.HasPrefixFold(name, "Penstock-Dead-") {
			m.Header[name] = values
		}
	}
	seq := strconv.FormatUint(d.Seq, 10)
	m.Header.Set(HeaderDeadReason, d.Reason)
	if d.Error != "" {
		m.Header.Set(HeaderDeadError, headerText(d.Error))
	}
	m.Header.Set(HeaderDeadAttempts, strconv.Itoa(d.Attempts))
	m.Header.Set(HeaderDeadJob, job.ID(d.Policy, d.Seq))
	m.Header.Set(HeaderDeadStored, d.Stored.UTC().Format(time.RFC3339Nano))
	m.Header.Set(HeaderDeadPartition, strconv.Itoa(d.Partition))
	if d.IdempotencyKey != "" {
		m.Header.Set(HeaderDeadIdempotency, d.IdempotencyKey)
	}
	if d.Bodyless {
		m.Header.Set(HeaderDeadBody, bodyLeftOut)
	} else {
		m.Data = d.Body
	}
	// A recreated stream counts from 1 again: the time distinguishes the two jobs.
	m.Header.Set(jetstream.MsgIDHeader,
		d.Policy+"/"+seq+"/"+strconv.FormatInt(d.Stored.UnixNano(), 36))
	return m
}

// readLetter undoes Bury. Unreadable headers stay zero: a letter must be visible to be discarded.
func readLetter(m jsapi.Message) StoredLetter {
	l := StoredLetter{ID: m.Seq, Buried: m.Time, Size: len(m.Data)}
	_, tail, _ := strings.Cut(m.Subject, ".dead.")
	name, key, _ := strings.Cut(tail, ".")
	l.Policy, l.Key, l.Body = name, job.Key(key), m.Data
	for name, values := range m.Header {
		switch {
		case job.HasPrefixFold(name, "Nats-"):
		case !job.HasPrefixFold(name, "Penstock-Dead-"):
			if l.Header == nil {
				l.Header = nats.Header{}
			}
			l.Header[name] = values
		}
	}
	h := m.Header
	l.IdempotencyKey = h.Get(HeaderDeadIdempotency)
	l.Bodyless = h.Get(HeaderDeadBody) != ""
	l.Reason, l.Error = h.Get(HeaderDeadReason), h.Get(HeaderDeadError)
	l.Attempts, _ = strconv.Atoi(h.Get(HeaderDeadAttempts))
	l.Partition, _ = strconv.Atoi(h.Get(HeaderDeadPartition))
	l.Stored, _ = time.Parse(time.RFC3339Nano, h.Get(HeaderDeadStored))
	_, l.Seq, _ = job.ParseID(h.Get(HeaderDeadJob))
	return l
}

// createMissing is createBounded that accepts an existing stream, perhaps with another bound.
func (b *Broker) createMissing(ctx context.Context, policy string,
	config jetstream.StreamConfig) error {
	err := b.createBounded(ctx, policy, config)
	if jsapi.HasCode(err, jsapi.CodeNameInUse) {
		return nil
	}
	return err
}

// discardOldest makes room for a letter of the given bytes, at least an eighth of the policy's
// bound. [ErrTooLarge] means that the letter can never fit.
func (b *Broker) discardOldest(ctx context.Context, policy string,
	bytes uint64) (discarded uint64, err error) {
	// One at a time: most callers find room when their turn comes.
	gate, _ := b.discarding.LoadOrStore(policy, make(chan struct{}, 1))
	turn := gate.(chan struct{})
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return 0, jsapi.Translate(ctx.Err())
	}
	info, err := b.js.StreamInfo(ctx, b.names.DeadStream(policy), "")
	if err != nil {
		return 0, err
	}
	switch bound := uint64(max(info.Config.MaxBytes, 0)); {
	case bytes > bound:
		return 0, fmt.Errorf("%w: %d bytes, and all dead letters may take %d", ErrTooLarge, bytes,
			bound)
	case info.State.Bytes+bytes <= bound:
		return 0, nil
	}
	err = b.locked(ctx, deadInfix+policy, func(ctx context.Context) error {
		for {
			info, err := b.js.StreamInfo(ctx, b.names.DeadStream(policy), "")
			if err != nil {
				return err
			}
			bound := uint64(max(info.Config.MaxBytes, 0))
			room := min(bound/8*7, bound-min(bound, bytes))
			if info.State.Bytes <= room {
				return nil
			}
			// Letters differ in size: purge by the average, then look again.
			average := info.State.Bytes/info.State.Msgs + 1
			through := info.State.FirstSeq + (info.State.Bytes-room)/average
			n, err := b.purge(ctx, b.names.DeadStream(policy), "", through)
			discarded += n
			if err != nil {
				return err
			}
			info.Config.Metadata[metaDiscarded] = strconv.FormatInt(
				metaNumber(info.Config.Metadata, metaDiscarded)+int64(n), 10)
			if err := b.js.UpdateStream(ctx, info.Config); err != nil {
				return err
			}
		}
	})
	return discarded, err
}

// metaDiscarded is the metadata key that counts the letters discarded to make room.
const metaDiscarded = "penstock.discarded"

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
