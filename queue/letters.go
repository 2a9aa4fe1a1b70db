package queue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// StoredLetter is a dead letter as it lies in the stream of dead letters.
type StoredLetter struct {
	DeadLetter
	ID     uint64    // in the stream of the policy's dead letters
	Buried time.Time // when it was stored there
	Size   int       // bytes of the body, also where Body was left out
}

// maxLetters bounds one page of [Broker.DeadLetters].
const maxLetters = 10_000

// lettersEvery is the pause before letters are looked for again that a server did not have.
const lettersEvery = 50 * time.Millisecond

// DeadLetters lists a policy's dead letters in the order in which they were stored, without bodies: at most limit (up
// to 10,000) of those whose ID is greater than after. A policy that nobody knows has none.
func (b *Broker) DeadLetters(ctx context.Context, policy string, after uint64, limit int) ([]StoredLetter, error) {
	letters, err := b.deadLetters(ctx, policy, after, min(limit, maxLetters))
	if err != nil {
		return nil, fmt.Errorf("dead letters of %s: %w", policy, err)
	}
	return letters, nil
}

func (b *Broker) deadLetters(ctx context.Context, policy string, after uint64, limit int) ([]StoredLetter, error) {
	if limit <= 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	stream, err := b.deadStream(policy)
	if err != nil {
		return nil, err
	}
	var letters []StoredLetter
	for {
		page, err := b.someLetters(ctx, stream, after, limit-len(letters))
		if err != nil {
			return nil, err
		}
		letters = append(letters, page...)
		if len(letters) >= limit {
			return letters, nil
		}
		if len(page) > 0 {
			after = page[len(page)-1].ID
		}
		// A server that catches up has not all of them, and needs a while.
		next, err := b.nextStored(ctx, stream, nil, after+1)
		if errors.Is(err, ErrNoStream) || err == nil && next == math.MaxUint64 {
			return letters, nil
		}
		if err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, translate(ctx.Err())
		case <-time.After(lettersEvery):
		}
	}
}

// someLetters lists dead letters as one server has them.
func (b *Broker) someLetters(
	ctx context.Context, stream string, after uint64, limit int,
) ([]StoredLetter, error) {
	consumer, err := b.js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Name:              "list-" + newID(),
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       after + 1,
		AckPolicy:         jetstream.AckNonePolicy,
		HeadersOnly:       true,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: 10 * time.Second,
	})
	if hasCode(err, codeStreamNotFound) {
		return nil, nil // it never had one
	}
	if err != nil {
		return nil, translate(err)
	}
	info := consumer.CachedInfo()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout/4)
		defer cancel()
		_ = b.js.DeleteConsumer(ctx, info.Stream, info.Name) // the server would do so after some seconds
	}()
	want := min(uint64(limit), info.NumPending)
	letters := make([]StoredLetter, 0, want)
	for uint64(len(letters)) < want {
		batch, err := consumer.FetchNoWait(int(want) - len(letters))
		if err != nil {
			return nil, translate(err)
		}
		got := len(letters)
		for m := range batch.Messages() {
			letter, err := b.letter(m)
			if err != nil {
				return nil, err
			}
			letters = append(letters, letter)
		}
		if err := batch.Error(); err != nil {
			return nil, translate(err)
		}
		if len(letters) == got {
			break // some were discarded since
		}
		if err := ctx.Err(); err != nil {
			return nil, translate(err)
		}
	}
	return letters, nil
}

// letter reads a delivered dead letter without its body.
func (b *Broker) letter(m jetstream.Msg) (StoredLetter, error) {
	meta, err := m.Metadata()
	if err != nil {
		return StoredLetter{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	l := b.readLetter(storedMessage{Subject: m.Subject(), Seq: meta.Sequence.Stream, Time: meta.Timestamp,
		Header: m.Headers()})
	l.Size, _ = strconv.Atoi(serverSays(m.Headers(), headerSize))
	return l, nil
}

// DeadLetter reads one dead letter of a policy with its body; [ErrNotFound] when the policy has none with this ID.
func (b *Broker) DeadLetter(ctx context.Context, policy string, id uint64) (StoredLetter, error) {
	stream, err := b.deadStream(policy)
	var m storedMessage
	if err == nil {
		m, err = b.messageBySeq(ctx, stream, id)
	}
	if errors.Is(err, ErrNoStream) {
		err = fmt.Errorf("%w: the policy has none", ErrNotFound)
	}
	if err != nil {
		return StoredLetter{}, fmt.Errorf("dead letter %d of %s: %w", id, policy, err)
	}
	return b.readLetter(m), nil
}

// messageBySeq reads one message from a stream's leader. JetStream takes the sequence 0, which none has, for a bad
// request.
func (b *Broker) messageBySeq(ctx context.Context, stream string, seq uint64) (storedMessage, error) {
	if seq == 0 {
		return storedMessage{}, ErrNotFound
	}
	return b.storedMessage(ctx, stream, map[string]uint64{"seq": seq})
}

// readLetter undoes Bury. What it cannot read of the headers stays zero: a letter must be seen to be got rid of.
func (b *Broker) readLetter(m storedMessage) StoredLetter {
	l := StoredLetter{ID: m.Seq, Buried: m.Time, Size: len(m.Data)}
	_, tail, _ := strings.Cut(m.Subject, ".dead.")
	name, key, _ := strings.Cut(tail, ".")
	l.Policy, l.Key, l.Body = name, Key(key), m.Data
	for name, values := range m.Header {
		switch {
		case hasPrefixFold(name, "Nats-"):
		case !hasPrefixFold(name, "Penstock-Dead-"):
			if l.Header == nil {
				l.Header = nats.Header{}
			}
			l.Header[name] = values
		}
	}
	h := m.Header
	l.Idempotency = h.Get(HeaderDeadIdempotency)
	l.Bodyless = h.Get(HeaderDeadBody) != ""
	l.Reason, l.Error = h.Get(HeaderDeadReason), h.Get(HeaderDeadError)
	l.Attempts, _ = strconv.Atoi(h.Get(HeaderDeadAttempts))
	l.Partition, _ = strconv.Atoi(h.Get(HeaderDeadPartition))
	l.Stored, _ = time.Parse(time.RFC3339Nano, h.Get(HeaderDeadStored))
	_, seq, _ := strings.Cut(h.Get(HeaderDeadJob), ":")
	l.Seq, _ = strconv.ParseUint(seq, 10, 64)
	return l
}

// DiscardDeadLetter deletes a dead letter for good; [ErrNotFound] when the policy has none with this ID.
func (b *Broker) DiscardDeadLetter(ctx context.Context, policy string, id uint64) error {
	_, err := b.DeadLetter(ctx, policy, id)
	if err == nil {
		_, err = b.deleteLetter(ctx, policy, id)
	}
	if err != nil {
		return fmt.Errorf("discard: %w", err)
	}
	return nil
}

// deleteLetter deletes a letter and reports whether it did; one that is gone is no error.
func (b *Broker) deleteLetter(ctx context.Context, policy string, id uint64) (deleted bool, err error) {
	var answer struct{}
	request := map[string]any{"seq": id, "no_erase": true}
	err = b.call(ctx, "$JS.API.STREAM.MSG.DELETE."+b.names.DeadStream(policy), request, &answer)
	if err == nil {
		return true, nil
	}
	if _, readErr := b.messageBySeq(ctx, b.names.DeadStream(policy), id); errors.Is(readErr, ErrNotFound) {
		// A refusal says that somebody else deleted it. Without an answer it was most likely this call.
		var refusal *apiError
		return !errors.As(err, &refusal), nil
	}
	return false, fmt.Errorf("delete dead letter %d: %w", id, translate(err))
}

// DiscardDeadLetters deletes a policy's dead letters for good, those with an ID up to through, or all when that is 0,
// and answers how many there were.
func (b *Broker) DiscardDeadLetters(ctx context.Context, policy string, through uint64) (discarded uint64, err error) {
	stream, err := b.deadStream(policy)
	if err == nil {
		discarded, err = b.purge(ctx, stream, "", through)
	}
	if err != nil && !errors.Is(err, ErrNoStream) {
		return 0, fmt.Errorf("discard the dead letters of %s: %w", policy, err)
	}
	return discarded, nil
}

// LettersDiscarded is how many of a policy's dead letters were ever discarded to make room for newer ones, and how much
// of the bound those that are there take. A policy that never had any has none.
func (b *Broker) LettersDiscarded(ctx context.Context, policy string) (discarded uint64, fill Fill, err error) {
	stream, err := b.deadStream(policy)
	if err == nil {
		var info *jetstream.StreamInfo
		if info, err = b.streamInfo(ctx, stream, ""); err == nil {
			fill = Fill{int64(info.State.Bytes), max(0, info.Config.MaxBytes)}
			return metaCount(info.Config.Metadata, metaDiscarded), fill, nil
		}
		err = translate(err)
	}
	if errors.Is(err, ErrNoStream) {
		return 0, Fill{}, nil
	}
	return 0, Fill{}, fmt.Errorf("dead letters of %s: %w", policy, err)
}

// deadStream is the stream of a policy's dead letters; [ErrNotFound] for what cannot be a policy's name.
func (b *Broker) deadStream(policy string) (string, error) {
	if policy == "" || strings.Contains(policy, ".") || !validRecordKey(policy) {
		return "", fmt.Errorf("%w: %q is not a policy's name", ErrNotFound, policy)
	}
	return b.names.DeadStream(policy), nil
}

// StoredJob reads a job that waits, backs off or runs, from the leader of its policy's stream: where it lies, and what
// it holds. One that has finished, or never was, is [ErrNotFound]; a policy without a stream is [ErrNoStream].
func (b *Broker) StoredJob(ctx context.Context, policy string, seq uint64) (Arrived, error) {
	m, err := b.messageBySeq(ctx, b.names.Stream(policy), seq)
	if err != nil {
		return Arrived{}, fmt.Errorf("job %s:%d: %w", policy, seq, err)
	}
	return b.arrived(m, false), nil
}
