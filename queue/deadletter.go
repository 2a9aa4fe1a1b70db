package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

const (
	deadMaxAge = 14 * 24 * time.Hour

	// deadDuplicates exceeds the time of a crash and a takeover, when a letter is sent again.
	deadDuplicates = 10 * time.Minute

	// letterOverhead exceeds the server's overhead per message.
	letterOverhead = 64

	// deadErrorBytes bounds the error text, because all headers must fit into headroom.
	deadErrorBytes = 4096
)

// Headers of a dead letter, beside those of its job.
const (
	HeaderDeadReason    = "Penstock-Dead-Reason"   // one word
	HeaderDeadError     = "Penstock-Dead-Error"    // at most 4 KiB
	HeaderDeadAttempts  = "Penstock-Dead-Attempts" // attempts that counted
	HeaderDeadJob       = "Penstock-Dead-Job"      // <policy>:<stream sequence>
	HeaderDeadStored    = "Penstock-Dead-Stored"   // acceptance, RFC 3339
	HeaderDeadPartition = "Penstock-Dead-Partition"
	// "left-out" if the policy keeps no bodies
	HeaderDeadBody = "Penstock-Dead-Body"

	HeaderDeadIdempotency = "Penstock-Dead-Idempotency-Key" // of its runs
)

// DeadLetter is a job that will not be tried again.
type DeadLetter struct {
	Policy    string
	Key       job.Key
	Seq       uint64 // in the policy's stream
	Partition int
	Stored    time.Time // acceptance
	Reason    string
	Error     string // cut to 4 KiB
	Attempts  int
	// IdempotencyKey is the key of the job's runs, kept for a replay.
	IdempotencyKey string
	Header         nats.Header // without the server's own
	Body           []byte
	// without a body the letter cannot be replayed
	Bodyless bool
}

// StoredLetter is a dead letter in its stream.
type StoredLetter struct {
	DeadLetter
	ID     uint64 // in the stream of dead letters
	Buried time.Time
	Size   int // of the body, even if Body was left out
}

const bodyLeftOut = "left-out"

// The stream refuses a letter beyond its bound in bytes: Bury discards the oldest letters, and
// counts them.
func (b *Broker) deadConfig(policy string) jetstream.StreamConfig {
	return b.recordConfig(b.names.DeadStream(policy), b.names.Dead(policy, ">"),
		"jobs of policy "+policy+" that will not be tried again", jetstream.StreamConfig{
			Discard: jetstream.DiscardNew, MaxAge: deadMaxAge, MaxMsgs: -1, MaxBytes: -1,
			Duplicates: deadDuplicates})
}

func (b *Broker) recordConfig(name, subject, holds string,
	c jetstream.StreamConfig) jetstream.StreamConfig {
	c.Name, c.Subjects, c.Description = name, []string{subject}, "Penstock: "+holds
	c.Retention, c.Storage, c.Replicas = jetstream.LimitsPolicy, jetstream.FileStorage, b.replicas
	c.AllowDirect = true
	c.Metadata = map[string]string{jsapi.MetaVersion: jsapi.Layout}
	return c
}

// Bury stores a dead letter and the job's end (see [Results]); acknowledge the job only afterwards.
// Repeat it on any error: within 10 minutes that stores no second letter. Without room, it discards
// the policy's oldest letters and returns their number. A letter that is too large is stored
// without its body.
func (b *Broker) Bury(ctx context.Context, d DeadLetter) (discarded uint64, err error) {
	m := b.deadMessage(d)
	for nothing := 0; ; {
		letter, err := b.js.Publish(ctx, m)
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			err = b.createMissing(ctx, d.Policy, b.deadConfig(d.Policy))
		case errors.Is(err, ErrStreamFull) && nothing < 8: // other callers take the room, too
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
	// A recreated stream counts from 1 again.
	m.Header.Set(jetstream.MsgIDHeader,
		d.Policy+"/"+seq+"/"+strconv.FormatInt(d.Stored.UnixNano(), 36))
	return m
}

// Unreadable headers stay zero: a letter must be visible to be discarded.
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

func (b *Broker) createMissing(ctx context.Context, policy string,
	config jetstream.StreamConfig) error {
	err := b.createBounded(ctx, policy, config)
	if jsapi.HasCode(err, jsapi.CodeNameInUse) {
		return nil
	}
	return err
}

// discardOldest makes room for a letter of that size, at least an eighth of the bound. It returns
// [ErrTooLarge] if the letter can never fit.
func (b *Broker) discardOldest(ctx context.Context, policy string,
	bytes uint64) (discarded uint64, err error) {
	// One at a time: most callers find room afterwards.
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
			// Letters differ in size: purge by the average and look again.
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

// metaDiscarded counts the letters discarded to make room.
const metaDiscarded = "penstock.discarded"

func headerText(s string) string {
	if len(s) > deadErrorBytes {
		s = strings.ToValidUTF8(s[:deadErrorBytes], "")
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7F {
			return ' '
		}
		return r
	}, s))
}
