package jet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/internal/queue/kv"
	"github.com/penstock-mq/penstock/queue"
)

// Letters are a policy's dead letters. [Letters.Bury] adds one, [Producer.Replay] makes one a job.
type Letters struct {
	js     *jsapi.Conn
	names  Names
	bounds *bounds
	ends   Results
	policy string
}

// Letters returns the dead letters of a policy, which may not exist.
func (b *Broker) Letters(policy string) Letters {
	return Letters{b.js, b.names, b.bounds, b.Results(), policy}
}

// LetterCounts returns the policies with dead letters, those with most first.
func (b *Broker) LetterCounts(ctx context.Context) ([]api.DeadPolicy, error) {
	counts := []api.DeadPolicy{}
	err := b.js.EachStream(ctx, b.names.dead("*", ">"), func(info *jetstream.StreamInfo) {
		policy, ours := strings.CutPrefix(info.Config.Name, b.names.DeadStream(""))
		if s := info.State; ours && s.Msgs > 0 {
			counts = append(counts, api.DeadPolicy{Policy: policy, Letters: s.Msgs,
				OldestAt: s.FirstTime, NewestAt: s.LastTime})
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list the streams of dead letters: %w", err)
	}
	slices.SortFunc(counts, func(a, b api.DeadPolicy) int {
		return cmp.Or(cmp.Compare(b.Letters, a.Letters), cmp.Compare(a.Policy, b.Policy))
	})
	return counts, nil
}

const maxLetters = 10_000

// lettersEvery is the pause before letters are read again; an election takes time.
const lettersEvery = 50 * time.Millisecond

// List returns, in order and without bodies, up to limit (at most 10,000) letters with an ID above
// after. Without a leader of the stream it tries again until ctx ends, or for 2 s.
func (l Letters) List(ctx context.Context, after uint64, limit int) (s []StoredLetter, err error) {
	defer errs.Annotate(&err, "dead letters of %s", l.policy)
	return l.list(ctx, "", after, min(limit, maxLetters))
}

func (l Letters) list(ctx context.Context, subject string, after uint64, limit int) (
	[]StoredLetter, error) {

	if limit <= 0 {
		return nil, nil
	}
	if _, bounded := ctx.Deadline(); !bounded {
		within, cancel := context.WithTimeout(ctx, l.js.Timeout)
		defer cancel()
		ctx = within
	}
	stream, err := l.stream()
	if err != nil {
		return nil, err
	}
	var letters []StoredLetter
	for {
		var failed error
		for m, err := range l.js.Messages(ctx, stream, subject, after+1, limit-len(letters)) {
			if failed = err; err != nil {
				break
			}
			letter := readLetter(m)
			letter.Body = nil
			letters, after = append(letters, letter), letter.ID
			if len(letters) == limit {
				return letters, nil
			}
		}
		switch {
		case failed == nil || errors.Is(failed, ErrNoStream):
			return letters, nil
		case !errors.Is(failed, ErrUnavailable) || jsapi.Pause(ctx, lettersEvery) != nil:
			return nil, failed
		}
	}
}

// Read returns a dead letter, or ErrNotFound.
func (l Letters) Read(ctx context.Context, id uint64) (letter StoredLetter, err error) {
	defer errs.Annotate(&err, "dead letter %d of %s", id, l.policy)
	stream, err := l.stream()
	var m jsapi.Message
	if err == nil {
		m, err = l.js.MessageAt(ctx, stream, id)
	}
	if errors.Is(err, ErrNoStream) {
		err = fmt.Errorf("%w: the policy has none", ErrNotFound)
	}
	if err != nil {
		return letter, err
	}
	return readLetter(m), nil
}

// Discard deletes a dead letter for good.
func (l Letters) Discard(ctx context.Context, id uint64) (err error) {
	defer errs.Annotate(&err, "discard")
	if _, err = l.Read(ctx, id); err == nil {
		_, err = l.delete(ctx, id)
	}
	return err
}

func (l Letters) delete(ctx context.Context, id uint64) (deleted bool, err error) {
	stream := l.names.DeadStream(l.policy)
	err = l.js.DeleteMessage(ctx, stream, id)
	if err == nil {
		return true, nil
	}
	if _, readErr := l.js.MessageAt(ctx, stream, id); errors.Is(readErr, ErrNotFound) {
		// A refusal means that another caller deleted it; without an answer, this one probably did.
		return !jsapi.IsRefusal(err), nil
	}
	return false, fmt.Errorf("delete dead letter %d: %w", id, err)
}

// Discarded returns the total number of letters that made room for newer ones.
func (l Letters) Discarded(ctx context.Context) (discarded uint64, err error) {
	defer errs.Annotate(&err, "dead letters of %s", l.policy)
	stream, err := l.stream()
	if err != nil {
		return 0, err
	}
	info, err := l.js.StreamInfo(ctx, stream, "")
	if err != nil {
		return 0, unlessGone(err)
	}
	return uint64(metaNumber(info.Config.Metadata, metaDiscarded)), nil
}

// DropEmpty deletes an empty stream of dead letters. The policy must be deleted, or about to be.
func (l Letters) DropEmpty(ctx context.Context) error {
	info, err := l.js.StreamInfo(ctx, l.names.DeadStream(l.policy), "")
	if err == nil && info.State.Msgs == 0 {
		err = l.js.DeleteStream(ctx, info.Config.Name)
	}
	return unlessGone(err)
}

func (l Letters) stream() (string, error) {
	if l.policy == "" || strings.Contains(l.policy, ".") || !kv.ValidKey(l.policy) {
		return "", fmt.Errorf("%w: %q is not a policy's name", ErrNotFound, l.policy)
	}
	return l.names.DeadStream(l.policy), nil
}

// DeadLetterFilter selects dead letters that match every field.
type DeadLetterFilter struct {
	Keyed         bool // only the bucket Key
	Key           queue.Key
	Reason        queue.Reason // empty: any
	Since, Before time.Time    // of burial; zero: unbounded
	Through       uint64       // up to this ID; 0: any
}

func (s DeadLetterFilter) has(l StoredLetter) bool {
	return (!s.Keyed || l.Key == s.Key) && (s.Reason == "" || string(s.Reason) == l.Reason) &&
		!l.Buried.Before(s.Since) && (s.Before.IsZero() || l.Buried.Before(s.Before))
}

// each calls do for the selected letters that exist now, in order, in pages.
func (l Letters) each(ctx context.Context, some DeadLetterFilter,
	do func(StoredLetter) error) error {
	info, err := l.js.StreamInfo(ctx, l.names.DeadStream(l.policy), "")
	if err != nil {
		return unlessGone(err)
	}
	last := info.State.LastSeq
	if some.Through > 0 {
		last = min(last, some.Through)
	}
	subject := ""
	if _, err := queue.ParseKey(string(some.Key)); some.Keyed && err == nil {
		subject = l.names.dead(l.policy, some.Key)
	}
	for after := uint64(0); after < last; {
		letters, err := l.list(ctx, subject, after, lettersPage)
		if err != nil || len(letters) == 0 {
			return err
		}
		for _, letter := range letters {
			if after = letter.ID; after > last {
				break
			}
			if !some.has(letter) {
				continue
			}
			if err := do(letter); err != nil {
				return err
			}
		}
	}
	return nil
}

// DiscardSome deletes the selected letters, and returns their number, also after an error. A
// selection by ID, or of all, goes at once.
func (l Letters) DiscardSome(ctx context.Context,
	some DeadLetterFilter) (discarded uint64, err error) {
	defer errs.Annotate(&err, "discard dead letters of %s", l.policy)
	stream, err := l.stream()
	if err != nil {
		return 0, err
	}
	if some == (DeadLetterFilter{Through: some.Through}) {
		discarded, err = l.js.Purge(ctx, stream, "", some.Through)
		return discarded, unlessGone(err)
	}
	err = l.each(ctx, some, func(letter StoredLetter) error {
		deleted, err := l.delete(ctx, letter.ID)
		if deleted {
			discarded++
		}
		return err
	})
	return discarded, err
}

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
	headerDeadAttempts  = "Penstock-Dead-Attempts" // attempts that counted
	headerDeadJob       = "Penstock-Dead-Job"      // <policy>:<stream sequence>
	headerDeadStored    = "Penstock-Dead-Stored"   // acceptance, RFC 3339
	headerDeadPartition = "Penstock-Dead-Partition"
	// "left-out" if the policy keeps no bodies
	headerDeadBody = "Penstock-Dead-Body"

	headerDeadIdempotency = "Penstock-Dead-Idempotency-Key" // of its runs
)

// DeadLetter is a job that will not be tried again.
type DeadLetter struct {
	Policy    string
	Key       queue.Key
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
func (l Letters) config() jetstream.StreamConfig {
	return recordConfig(l.bounds.replicas, l.names.DeadStream(l.policy),
		l.names.dead(l.policy, ">"), "jobs of policy "+l.policy+" that will not be tried again",
		jetstream.StreamConfig{
			Discard: jetstream.DiscardNew, MaxAge: deadMaxAge, MaxMsgs: -1, MaxBytes: -1,
			Duplicates: deadDuplicates})
}

func recordConfig(replicas int, name, subject, holds string,
	c jetstream.StreamConfig) jetstream.StreamConfig {
	c.Name, c.Subjects, c.Description = name, []string{subject}, "Penstock: "+holds
	c.Retention, c.Storage, c.Replicas = jetstream.LimitsPolicy, jetstream.FileStorage, replicas
	c.AllowDirect = true
	c.Metadata = map[string]string{jsapi.MetaVersion: jsapi.Layout}
	return c
}

// Bury stores a dead letter and the job's end (see [Results]); acknowledge the job only afterwards.
// Repeat it on any error: within 10 minutes that stores no second letter. Without room, it discards
// the policy's oldest letters and returns their number. A letter that is too large is stored
// without its body.
func (l Letters) Bury(ctx context.Context, d DeadLetter) (discarded uint64, err error) {
	d.Policy = l.policy
	m := l.message(d)
	for nothing := 0; ; {
		letter, err := l.js.Publish(ctx, m)
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			err = l.bounds.ensure(ctx, l.policy, l.config())
		case errors.Is(err, ErrStreamFull) && nothing < 8: // other callers take the room, too
			var n uint64
			n, err = l.discardOldest(ctx, uint64(m.Size())+letterOverhead)
			if discarded += n; n == 0 {
				nothing++
			}
		case err == nil:
			e := job.Ended{How: queue.EndDead, Letter: letter.Seq, Accepted: d.Stored}
			if job.HeaderValue(d.Header, job.HeaderIdempotencyKey) != "" {
				e.Sum = job.PayloadSum(d.Header, d.Body)
			}
			return discarded, l.ends.Note(ctx, l.policy, d.Seq, e)
		}
		if errors.Is(err, ErrTooLarge) && !d.Bodyless {
			d.Bodyless = true
			m, err = l.message(d), nil
		}
		if err != nil {
			return discarded, fmt.Errorf("bury job %s: %w", job.ID(d.Policy, d.Seq), err)
		}
	}
}

func (l Letters) message(d DeadLetter) *nats.Msg {
	m := nats.NewMsg(l.names.dead(d.Policy, d.Key))
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
	m.Header.Set(headerDeadAttempts, strconv.Itoa(d.Attempts))
	m.Header.Set(headerDeadJob, job.ID(d.Policy, d.Seq))
	m.Header.Set(headerDeadStored, d.Stored.UTC().Format(time.RFC3339Nano))
	m.Header.Set(headerDeadPartition, strconv.Itoa(d.Partition))
	if d.IdempotencyKey != "" {
		m.Header.Set(headerDeadIdempotency, d.IdempotencyKey)
	}
	if d.Bodyless {
		m.Header.Set(headerDeadBody, bodyLeftOut)
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
	l.Policy, l.Key, l.Body = name, queue.Key(key), m.Data
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
	l.IdempotencyKey = h.Get(headerDeadIdempotency)
	l.Bodyless = h.Get(headerDeadBody) != ""
	l.Reason, l.Error = h.Get(HeaderDeadReason), h.Get(HeaderDeadError)
	l.Attempts, _ = strconv.Atoi(h.Get(headerDeadAttempts))
	l.Partition, _ = strconv.Atoi(h.Get(headerDeadPartition))
	l.Stored, _ = time.Parse(time.RFC3339Nano, h.Get(headerDeadStored))
	_, l.Seq, _ = job.ParseID(h.Get(headerDeadJob))
	return l
}

// discardOldest makes room for a letter of that size, at least an eighth of the bound. It returns
// [ErrTooLarge] if the letter can never fit.
func (l Letters) discardOldest(ctx context.Context, bytes uint64) (discarded uint64, err error) {
	stream := l.names.DeadStream(l.policy)
	err = l.bounds.locked(ctx, deadInfix+l.policy, func(ctx context.Context) error {
		for {
			info, err := l.js.StreamInfo(ctx, stream, "")
			if err != nil {
				return err
			}
			bound := uint64(max(info.Config.MaxBytes, 0))
			if bytes > bound {
				return fmt.Errorf("%w: %d bytes, and all dead letters may take %d", ErrTooLarge,
					bytes, bound)
			}
			most, room := bound-bytes, min(bound-bytes, bound/8*7)
			if info.State.Bytes <= room || discarded == 0 && info.State.Bytes <= most {
				return nil
			}
			// Letters differ in size: purge by the average and look again.
			average := info.State.Bytes/info.State.Msgs + 1
			through := info.State.FirstSeq + (info.State.Bytes-room)/average
			n, err := l.js.Purge(ctx, stream, "", through)
			discarded += n
			if err != nil {
				return err
			}
			info.Config.Metadata[metaDiscarded] = strconv.FormatInt(
				metaNumber(info.Config.Metadata, metaDiscarded)+int64(n), 10)
			if err := l.js.UpdateStream(ctx, info.Config); err != nil {
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
