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
)

// ErrUnfit says that a dead letter cannot be replayed: as a job it would become the same dead letter again.
var ErrUnfit = errors.New("not fit to be a job")

// errReplayedAlready says that a letter is a job again, and that somebody else deleted it.
var errReplayedAlready = errors.New("replayed by somebody else at the same time")

// replayPrefix begins the message ids of replays. It holds an escape that is none, so that no message id made of a key
// and an idempotency key begins with it.
const replayPrefix = "%!replay/"

// replayPage is how many letters ReplayAll lists at a time.
const replayPage = 500

// Replay submits a dead letter as a new job of its bucket, behind those that wait there, and deletes the letter when
// the job is stored. A door policy's limiter is not asked: it let the job in once. The job keeps its headers. It also
// keeps the Idempotency-Key that its runs carried, even if that was made for it, so that a target that knows the key can
// tell that the two are one. A deadline that has passed is left out, one given as a duration counts from now; a
// Penstock-Not-Before counts from when the first job was accepted.
//
// Replaying the same letter again within the policy's duplicate window, after an answer that was lost, is still one job. The errors are
// those of [Producer.Publish], with which the letter stays, [ErrNotFound], and [ErrUnfit] for one that was malformed.
func (p *Producer) Replay(ctx context.Context, policy string, id uint64) (Receipt, error) {
	entry, err := p.b.Policy(ctx, policy)
	if errors.Is(err, ErrNotFound) || err == nil && entry.Retired {
		err = fmt.Errorf("%w: there is no policy %s any more", ErrNoStream, policy)
	}
	var receipt Receipt
	if err == nil {
		receipt, err = p.replay(ctx, policy, entry.Policy.Door(), id)
	}
	if errors.Is(err, errReplayedAlready) {
		err = nil
	}
	if err != nil {
		return Receipt{}, fmt.Errorf("replay: %w", err)
	}
	return receipt, nil
}

func (p *Producer) replay(ctx context.Context, policy string, admitted bool, id uint64) (Receipt, error) {
	letter, err := p.b.DeadLetter(ctx, policy, id)
	if err != nil {
		return Receipt{}, err
	}
	header, err := replayHeader(letter, time.Now())
	if err != nil {
		return Receipt{}, fmt.Errorf("dead letter %d of %s: %w", id, policy, err)
	}
	s := Submission{Policy: policy, Key: letter.Key, Admitted: admitted, Body: letter.Body}
	receipt, err := p.submit(ctx, s, header)
	if err != nil {
		return Receipt{}, err
	}
	e := Ended{How: EndReplayed, Letter: id, Job: receipt.Seq, Accepted: letter.Stored,
		Sum: PayloadSum(letter.Header, letter.Body)}
	if err := p.b.NoteEnded(ctx, policy, letter.Seq, e); err != nil {
		return Receipt{}, err
	}
	deleted, err := p.b.deleteLetter(ctx, policy, id)
	if err == nil && !deleted {
		err = errReplayedAlready
	}
	return receipt, err
}

// replayHeader is the header of the job that a letter becomes.
func replayHeader(l StoredLetter, now time.Time) (nats.Header, error) {
	if _, err := ParseKey(string(l.Key)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnfit, err)
	}
	if l.Bodyless {
		return nil, fmt.Errorf("%w: its body was left out", ErrUnfit)
	}
	h := make(nats.Header, len(l.Header)+2)
	for name, values := range l.Header {
		if len(values) == 1 {
			deadline, notBefore := strings.EqualFold(name, HeaderDeadline), strings.EqualFold(name, HeaderNotBefore)
			value := strings.TrimSpace(values[0])
			if at, err := instant(value, now, 1); deadline && err == nil && !at.After(now) {
				continue
			}
			if at, err := instant(value, l.Stored, 0); notBefore && err == nil {
				if !at.After(now) {
					continue
				}
				values = []string{at.UTC().Format(time.RFC3339Nano)}
			}
		}
		h[name] = values
	}
	if l.Idempotency != "" && headerValue(h, HeaderIdempotencyKey) == "" {
		h[HeaderIdempotencyKey] = []string{l.Idempotency}
	}
	if a := ParseHeader(h, now); a.Malformed != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnfit, a.Malformed)
	}
	// A stream of dead letters that was made anew counts from 1 again: the instant tells two letters apart.
	id := replayPrefix + strconv.FormatUint(l.ID, 10) + "/" + strconv.FormatInt(l.Buried.UnixNano(), 36)
	h[jetstream.MsgIDHeader] = []string{id}
	return h, nil
}

// Replayed says what became of a policy's dead letters.
type Replayed struct {
	Replayed int // are jobs again
	Full     int // stay, because their buckets are full
	Unfit    int // stay, because they cannot be jobs: see ErrUnfit
}

// ReplayAll replays the dead letters that a policy has when it is called, in their order; those that come while it
// works are left for another time, or a job that fails at once would be replayed for ever. A full bucket keeps its
// letters from the first that did not fit, and holds up no other bucket. What has been done until an error, or until
// the context ended, is told beside it.
func (p *Producer) ReplayAll(ctx context.Context, policy string) (Replayed, error) {
	r, err := p.replayAll(ctx, policy)
	if err != nil {
		return r, fmt.Errorf("replay the dead letters of %s: %w", policy, err)
	}
	return r, nil
}

func (p *Producer) replayAll(ctx context.Context, policy string) (r Replayed, err error) {
	entry, err := p.b.Policy(ctx, policy)
	if errors.Is(err, ErrNotFound) || err == nil && entry.Retired {
		err = fmt.Errorf("%w: there is no such policy any more", ErrNoStream)
	}
	if err != nil {
		return r, err
	}
	info, err := p.b.streamInfo(ctx, p.b.names.DeadStream(policy), "")
	if hasCode(err, codeStreamNotFound) {
		return r, nil
	}
	if err != nil {
		return r, translate(err)
	}
	full := map[Key]bool{}
	for after, last := uint64(0), info.State.LastSeq; after < last; {
		letters, err := p.b.deadLetters(ctx, policy, after, replayPage)
		if err != nil || len(letters) == 0 {
			return r, err
		}
		for _, letter := range letters {
			if after = letter.ID; after > last {
				break
			}
			if full[letter.Key] {
				r.Full++
				continue
			}
			switch _, err := p.replay(ctx, policy, entry.Policy.Door(), letter.ID); {
			case err == nil:
				r.Replayed++
			case errors.Is(err, ErrFull):
				full[letter.Key] = true
				r.Full++
			case errors.Is(err, ErrUnfit):
				r.Unfit++
			case errors.Is(err, ErrNotFound), errors.Is(err, errReplayedAlready): // or discarded, by somebody else
			default:
				return r, err
			}
		}
	}
	return r, nil
}
