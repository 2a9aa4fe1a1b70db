package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/queue/kv"
)

// Letters are a policy's dead letters. [Broker.Bury] adds one, [Producer.Replay] makes one a job.
type Letters struct {
	b      *Broker
	policy string
}

// Letters returns the dead letters of a policy, which may not exist.
func (b *Broker) Letters(policy string) Letters { return Letters{b, policy} }

// LetterCount is the dead letters of a policy.
type LetterCount struct {
	Policy         string
	Letters        uint64
	Oldest, Newest time.Time
}

// LetterCounts returns the policies with dead letters, those with most first.
func (b *Broker) LetterCounts(ctx context.Context) ([]LetterCount, error) {
	var counts []LetterCount
	err := b.js.EachStream(ctx, b.names.Dead("*", ">"), func(info *jetstream.StreamInfo) {
		policy, ours := strings.CutPrefix(info.Config.Name, b.names.DeadStream(""))
		if s := info.State; ours && s.Msgs > 0 {
			counts = append(counts, LetterCount{policy, s.Msgs, s.FirstTime, s.LastTime})
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list the streams of dead letters: %w", err)
	}
	slices.SortFunc(counts, func(a, b LetterCount) int {
		return cmp.Or(cmp.Compare(b.Letters, a.Letters), cmp.Compare(a.Policy, b.Policy))
	})
	return counts, nil
}

const maxLetters = 10_000

// lettersEvery is the pause before messages that a server lacks are read again.
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
		within, cancel := context.WithTimeout(ctx, l.b.js.Timeout)
		defer cancel()
		ctx = within
	}
	stream, err := l.stream()
	if err != nil {
		return nil, err
	}
	var letters []StoredLetter
	for limit > len(letters) {
		got := len(letters)
		next, err := l.b.js.NextStored(ctx, stream, subject, after+1)
		switch {
		case errors.Is(err, ErrNoStream) || err == nil && next == math.MaxUint64:
			return letters, nil
		case err == nil:
			for m, failed := range l.b.js.Messages(ctx, stream, subject, next, limit-got) {
				if err = failed; err != nil || len(letters) == limit {
					break
				}
				letter := readLetter(m)
				letter.Body = nil
				letters, after = append(letters, letter), letter.ID
			}
		}
		if err != nil && !errors.Is(err, ErrUnavailable) {
			return nil, err
		}
		// A server that catches up lacks some, and an election takes time.
		if len(letters) == got {
			if ended := jsapi.Pause(ctx, lettersEvery); ended != nil {
				return nil, cmp.Or(err, ended)
			}
		}
	}
	return letters, nil
}

// Read returns a dead letter, or ErrNotFound.
func (l Letters) Read(ctx context.Context, id uint64) (letter StoredLetter, err error) {
	defer errs.Annotate(&err, "dead letter %d of %s", id, l.policy)
	stream, err := l.stream()
	var m jsapi.Message
	if err == nil {
		m, err = l.b.messageBySeq(ctx, stream, id)
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
	stream := l.b.names.DeadStream(l.policy)
	err = l.b.deleteMessage(ctx, stream, id)
	if err == nil {
		return true, nil
	}
	if _, readErr := l.b.messageBySeq(ctx, stream, id); errors.Is(readErr, ErrNotFound) {
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
	info, err := l.b.js.StreamInfo(ctx, stream, "")
	if err != nil {
		return 0, unlessGone(err)
	}
	return uint64(metaNumber(info.Config.Metadata, metaDiscarded)), nil
}

// DropEmpty deletes an empty stream of dead letters. The policy must be deleted, or about to be.
func (l Letters) DropEmpty(ctx context.Context) error {
	info, err := l.b.js.StreamInfo(ctx, l.b.names.DeadStream(l.policy), "")
	if err == nil && info.State.Msgs == 0 {
		err = l.b.js.DeleteStream(ctx, info.Config.Name)
	}
	return unlessGone(err)
}

func (l Letters) stream() (string, error) {
	if l.policy == "" || strings.Contains(l.policy, ".") || !kv.ValidKey(l.policy) {
		return "", fmt.Errorf("%w: %q is not a policy's name", ErrNotFound, l.policy)
	}
	return l.b.names.DeadStream(l.policy), nil
}

// DeadLetterFilter selects dead letters that match every field.
type DeadLetterFilter struct {
	Keyed         bool // only the bucket Key
	Key           job.Key
	Reason        job.Reason // empty: any
	Since, Before time.Time  // of burial; zero: unbounded
	Through       uint64     // up to this ID; 0: any
}

func (s DeadLetterFilter) has(l StoredLetter) bool {
	return (!s.Keyed || l.Key == s.Key) && (s.Reason == "" || string(s.Reason) == l.Reason) &&
		!l.Buried.Before(s.Since) && (s.Before.IsZero() || l.Buried.Before(s.Before))
}

// each calls do for the selected letters that exist now, in order, in pages.
func (l Letters) each(ctx context.Context, some DeadLetterFilter,
	do func(StoredLetter) error) error {
	info, err := l.b.js.StreamInfo(ctx, l.b.names.DeadStream(l.policy), "")
	if err != nil {
		return unlessGone(err)
	}
	last := info.State.LastSeq
	if some.Through > 0 {
		last = min(last, some.Through)
	}
	subject := ""
	if _, err := job.ParseKey(string(some.Key)); some.Keyed && err == nil {
		subject = l.b.names.Dead(l.policy, some.Key)
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
		discarded, err = l.b.purge(ctx, stream, "", some.Through)
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
