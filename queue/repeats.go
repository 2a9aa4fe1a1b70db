package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-mq/penstock/queue/job"
)

// maxReplays bounds the replays followed for one job.
const maxReplays = 16

// Repeated looks up the job that a submission repeats. It returns the receipt of a job that waits,
// runs or is done, perhaps a replay of the first one's dead letter, or [*EndedError] or
// [ErrOtherPayload]. A job without any record counts as done.
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
		// it may have ended after its end was looked up
		gone = errors.Is(err, ErrNotFound) || errors.Is(err, ErrNoStream)
		if !gone {
			break
		}
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Receipt{}, fmt.Errorf("find the job that this one repeats: %w", err)
	}
	return r, nil
}

// ended is Results.Read for a job of the present stream: a recreated one repeats sequences.
func (p *Producer) ended(ctx context.Context, policy string, seq uint64) (job.Ended, error) {
	e, err := p.b.Results().Read(ctx, policy, seq)
	if err != nil {
		return job.Ended{}, err
	}
	info, err := p.b.js.StreamInfo(ctx, p.b.names.Stream(policy), "")
	if err != nil {
		return job.Ended{}, err
	}
	if e.Accepted.Before(info.Created) {
		return job.Ended{}, ErrNotFound
	}
	return e, nil
}
