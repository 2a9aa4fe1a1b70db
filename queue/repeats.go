package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

// maxReplays bounds how many replays of one job are followed.
const maxReplays = 16

// Repeated finds what became of the job whose Idempotency-Key a submission repeats, and returns the
// receipt of one that waits, runs or is done, which may be a replay of its dead letter. A job that
// is gone without success is an [*EndedError]: nothing would run for the repeat. [ErrOtherPayload]
// says that the two are not the same. A job of which nothing is known any more is taken for done.
func (p *Producer) Repeated(ctx context.Context, s Submission, r Receipt) (Receipt, error) {
	r.Duplicate = true
	sum := job.PayloadSum(s.Header, s.Body)
	var err error
	for gone, replays := false, 0; replays < maxReplays; {
		var e job.Ended
		if e, err = p.ended(ctx, s.Policy, r.Seq); err == nil {
			switch {
			case e.Sum != "" && e.Sum != sum:
				return Receipt{}, ErrOtherPayload
			case e.How == job.EndDone:
				return r, nil
			case e.How == job.EndReplayed:
				r.Seq, replays = e.Job, replays+1
				continue
			}
			return Receipt{}, &EndedError{s.Policy, r.Seq, e}
		}
		if !errors.Is(err, ErrNotFound) || gone {
			break
		}
		var stored job.Arrived
		if stored, err = p.b.StoredJob(ctx, s.Policy, r.Seq); err == nil {
			if job.PayloadSum(stored.Header, stored.Body) != sum {
				return Receipt{}, ErrOtherPayload
			}
			return r, nil
		}
		// perhaps since it was asked how it ended
		gone = errors.Is(err, ErrNotFound) || errors.Is(err, ErrNoStream)
		if !gone {
			break
		}
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Receipt{}, fmt.Errorf("find the job that this one repeats: %w", jsapi.Translate(err))
	}
	return r, nil
}

// ended is Ends.Read of a job of the present stream: one that was made again counts from 1.
func (p *Producer) ended(ctx context.Context, policy string, seq uint64) (job.Ended, error) {
	e, err := p.b.Ends().Read(ctx, policy, seq)
	if err != nil {
		return job.Ended{}, err
	}
	info, err := p.b.js.StreamInfo(ctx, p.b.names.Stream(policy), "")
	if err != nil {
		return job.Ended{}, jsapi.Translate(err)
	}
	if e.Accepted.Before(info.Created) {
		return job.Ended{}, ErrNotFound
	}
	return e, nil
}
