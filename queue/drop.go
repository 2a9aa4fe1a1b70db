package queue

import (
	"context"
	"errors"

	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

const dropsAtOnce = 500

// DropBucket removes the first jobs of a bucket, at most 500, without dead letters, in a partition
// without an owner; ask an owner by [job.OpPurge]. It returns their number, before the context
// ended. Ask for an owner again after each call: one that came meanwhile may have read the jobs.
func (b *Broker) DropBucket(ctx context.Context, policy string, partition int,
	k job.Key) (removed int, err error) {
	defer errs.Annotate(&err, "drop bucket %s.%s", policy, k)
	subject, err := b.bucket(policy, partition, k)
	if err != nil {
		return 0, err
	}
	var found []job.Arrived
	stream := b.names.Stream(policy)
	next := uint64(1)
	for len(found) < dropsAtOnce && ctx.Err() == nil {
		m, err := b.js.Message(ctx, stream, map[string]any{"seq": next, "next_by_subj": subject})
		if errors.Is(err, ErrNotFound) || err != nil && ctx.Err() != nil {
			break
		}
		if err != nil {
			return 0, err
		}
		found = append(found, b.arrived(m, false))
		next = m.Seq + 1
	}
	if len(found) == 0 {
		return 0, jsapi.Translate(ctx.Err())
	}
	// Jobs already read are dropped even if the context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.js.Timeout)
	defer cancel()
	for _, j := range found {
		if err := b.noteDropped(ctx, policy, j, job.EndPurged); err != nil {
			return 0, err
		}
	}
	purged, err := b.purge(ctx, stream, subject, next-1)
	if err != nil {
		return 0, err
	}
	for _, job := range found {
		b.tellDropped(policy, job)
	}
	return int(purged), nil
}

// DropJob removes one job, like DropBucket, or returns [ErrNotFound].
func (b *Broker) DropJob(ctx context.Context, policy string, seq uint64) (err error) {
	defer errs.Annotate(&err, "drop job %s", job.ID(policy, seq))
	j, err := b.StoredJob(ctx, policy, seq)
	if err == nil {
		err = b.noteDropped(ctx, policy, j, job.EndCancelled)
	}
	if err == nil {
		err = b.deleteMessage(ctx, b.names.Stream(policy), seq)
	}
	if err == nil {
		b.tellDropped(policy, j)
	}
	return err
}

func (b *Broker) noteDropped(ctx context.Context, policy string, j job.Arrived, how job.End) error {
	if job.HeaderValue(j.Header, job.HeaderIdempotencyKey) == "" {
		return nil
	}
	return b.Results().Note(ctx, policy, j.Seq,
		job.Ended{How: how, Accepted: j.Stored, Sum: job.PayloadSum(j.Header, j.Body)})
}

func (b *Broker) tellDropped(policy string, j job.Arrived) {
	b.PublishEvent(policy, Event{Type: EventCancelled, Job: job.ID(policy, j.Seq), Key: j.Key,
		Tags: job.Tags(j.Header), Header: j.Header, Accepted: j.Stored})
	b.PublishResult(j.Header, job.Result{Job: job.ID(policy, j.Seq), End: job.EndCancelled})
}
