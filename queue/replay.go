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

	"github.com/penstock-mq/penstock/queue/job"
)

// ErrUnfit says that a replayed dead letter would become the same dead letter again.
var ErrUnfit = errors.New("not fit to be a job")

// errReplayedAlready reports that another caller replayed and deleted the letter.
var errReplayedAlready = errors.New("replayed by somebody else at the same time")

// replayPrefix begins the message ids of replays. It contains an invalid escape, as in ChainedID.
const replayPrefix = "%!replay/"

const lettersPage = 500

// Replay submits a dead letter as a new job at the back of its bucket, and deletes the letter when
// the job is stored. It bypasses a door policy's limiter, which has already admitted the job. The
// job keeps its headers and the Idempotency-Key that its runs carried, even a generated one. A
// deadline that has passed is dropped; a deadline given as a duration counts from now; a
// Penstock-Not-Before counts from the acceptance of the first job.
//
// Replaying the same letter again within the policy's duplicate window, after a lost answer, still
// creates one job. On the errors of [Producer.Publish] the letter stays. Other errors are
// [ErrNotFound], and [ErrUnfit] for a malformed job.
func (p *Producer) Replay(ctx context.Context, policy string, id uint64) (Receipt, error) {
	admitted, err := p.admitted(ctx, policy)
	var receipt Receipt
	if err == nil {
		receipt, err = p.replay(ctx, policy, admitted, id)
	}
	if err != nil && !errors.Is(err, errReplayedAlready) {
		return Receipt{}, fmt.Errorf("replay: %w", err)
	}
	return receipt, nil
}

// admitted reports whether a policy's stream takes only the jobs that the admitter let in.
func (p *Producer) admitted(ctx context.Context, policy string) (bool, error) {
	info, err := p.b.js.StreamInfo(ctx, p.b.names.Stream(policy), "")
	if err != nil {
		return false, err
	}
	transform := info.Config.SubjectTransform // also of a stream whose door is closed
	return transform != nil && transform.Source == p.b.names.doorAdmitted(policy), nil
}

func (p *Producer) replay(ctx context.Context, policy string, admitted bool,
	id uint64) (Receipt, error) {
	letter, err := p.b.Letters(policy).Read(ctx, id)
	if err != nil {
		return Receipt{}, err
	}
	header, err := replayHeader(letter, time.Now())
	if err != nil {
		return Receipt{}, fmt.Errorf("dead letter %d of %s: %w", id, policy, err)
	}
	s := Submission{Policy: policy, Key: letter.Key, Admitted: admitted, Body: letter.Body}
	receipt, err := p.send(ctx, &s, header)(ctx)
	if err != nil {
		return Receipt{}, err
	}
	e := job.Ended{How: job.EndReplayed, Letter: id, Job: receipt.Seq, Accepted: letter.Stored,
		Sum: job.PayloadSum(letter.Header, letter.Body)}
	if err := p.b.Results().Note(ctx, policy, letter.Seq, e); err != nil {
		return Receipt{}, err
	}
	deleted, err := p.b.Letters(policy).delete(ctx, id)
	if err == nil && !deleted {
		err = errReplayedAlready
	}
	return receipt, err
}

func replayHeader(l StoredLetter, now time.Time) (nats.Header, error) {
	if _, err := job.ParseKey(string(l.Key)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnfit, err)
	}
	if l.Bodyless {
		return nil, fmt.Errorf("%w: its body was left out", ErrUnfit)
	}
	h := make(nats.Header, len(l.Header)+2)
	for name, values := range l.Header {
		if len(values) == 1 {
			deadline := strings.EqualFold(name, job.HeaderDeadline)
			notBefore := strings.EqualFold(name, job.HeaderNotBefore)
			value := strings.TrimSpace(values[0])
			if at, err := job.ParseInstant(value, now, 1); deadline && err == nil &&
				!at.After(now) {
				continue
			}
			if at, err := job.ParseInstant(value, l.Stored, 0); notBefore && err == nil {
				if !at.After(now) {
					continue
				}
				values = []string{at.UTC().Format(time.RFC3339Nano)}
			}
		}
		h[name] = values
	}
	if l.IdempotencyKey != "" && job.HeaderValue(h, job.HeaderIdempotencyKey) == "" {
		h[job.HeaderIdempotencyKey] = []string{l.IdempotencyKey}
	}
	if a := job.ParseHeader(h, now); a.Malformed != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnfit, a.Malformed)
	}
	// A recreated stream of dead letters counts from 1: the time distinguishes two letters.
	id := replayPrefix + strconv.FormatUint(l.ID, 10) + "/" +
		strconv.FormatInt(l.Buried.UnixNano(), 36)
	h[jetstream.MsgIDHeader] = []string{id}
	return h, nil
}

// Replayed counts the outcomes of replaying a policy's dead letters.
type Replayed struct {
	Replayed int // became jobs
	Full     int // stayed, because their buckets are full
	Unfit    int // stayed, because they are unfit: see ErrUnfit
}

// ReplaySome replays, in order, the selected dead letters of a policy that exist when it is called;
// with later ones, a job that fails at once would be replayed without end. Once a bucket is full,
// it skips the bucket's other letters. The result covers the work done until an error or the end of
// the context.
func (p *Producer) ReplaySome(ctx context.Context, policy string,
	some DeadLetterFilter) (r Replayed, err error) {
	defer annotate(&err, "replay the dead letters of %s", policy)
	admitted, err := p.admitted(ctx, policy)
	if err != nil {
		return r, err
	}
	full := map[job.Key]bool{}
	err = p.b.Letters(policy).each(ctx, some, func(letter StoredLetter) error {
		if full[letter.Key] {
			r.Full++
			return nil
		}
		switch _, err := p.replay(ctx, policy, admitted, letter.ID); {
		case err == nil:
			r.Replayed++
		case errors.Is(err, ErrFull):
			full[letter.Key] = true
			r.Full++
		case errors.Is(err, ErrUnfit):
			r.Unfit++
		case errors.Is(err, ErrNotFound), errors.Is(err, errReplayedAlready):
			// or discarded, by another caller
		default:
			return err
		}
		return nil
	})
	return r, err
}
