package jet

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
)

// ErrUnfit: a replayed dead letter would become the same letter again.
var ErrUnfit = errors.New("not fit to be a job")

var errReplayedAlready = errors.New("replayed concurrently")

// replayPrefix contains an invalid escape, as in ChainedID.
const replayPrefix = "%!replay/"

const lettersPage = 500

// Replay submits a dead letter as a new job of its bucket, bypassing a door policy's limiter, and
// deletes the letter once the job is stored. The job keeps its headers and the Idempotency-Key of
// its runs. A past deadline is dropped; a deadline given as a duration counts from now, a
// Penstock-Not-Before from the first acceptance. Within the policy's duplicate window, repeating it
// creates one job. Errors: [Producer.Publish]'s, and the letter stays; [ErrNotFound], and
// [ErrUnfit] for a malformed job.
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

// admitted reports whether a policy's stream takes only admitted jobs.
func (p *Producer) admitted(ctx context.Context, policy string) (bool, error) {
	info, err := p.b.js.StreamInfo(ctx, p.b.names.Stream(policy), "")
	if err != nil {
		return false, err
	}
	transform := info.Config.SubjectTransform // also if the door is closed
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
	e := job.Ended{How: queue.EndReplayed, Letter: id, Job: receipt.Seq, Accepted: letter.Stored,
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
	if _, err := queue.ParseKey(string(l.Key)); err != nil {
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
	// A recreated stream counts from 1 again.
	id := replayPrefix + strconv.FormatUint(l.ID, 10) + "/" +
		strconv.FormatInt(l.Buried.UnixNano(), 36)
	h[jetstream.MsgIDHeader] = []string{id}
	return h, nil
}

// ReplaySome replays, in order, the selected dead letters that exist at the call, because a job
// that fails at once must not be replayed forever. It skips the rest of a full bucket. After an
// error the result covers the work done.
func (p *Producer) ReplaySome(ctx context.Context, policy string,
	some DeadLetterFilter) (r api.Replayed, err error) {
	defer func() { r.Complete = err == nil }()
	defer errs.Annotate(&err, "replay the dead letters of %s", policy)
	admitted, err := p.admitted(ctx, policy)
	if err != nil {
		return r, err
	}
	full := map[queue.Key]bool{}
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
		default:
			return err
		}
		return nil
	})
	return r, err
}
