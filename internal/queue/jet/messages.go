package jet

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/queue"
)

// StoredJob reads a job that has not ended from the stream's leader, or returns [ErrNotFound] or
// [ErrNoStream].
func (b *Broker) StoredJob(ctx context.Context, policy string, seq uint64) (job.Arrived, error) {
	m, err := b.js.MessageAt(ctx, b.names.Stream(policy), seq)
	if err != nil {
		return job.Arrived{}, fmt.Errorf("job %s: %w", job.ID(policy, seq), err)
	}
	return b.names.arrived(m, false), nil
}

// mostListedBytes roughly bounds the bodies read for one list.
const mostListedBytes = 8 << 20

// bucketOf returns the subject of a bucket's jobs. It refuses wildcards, which match other buckets.
func (n Names) bucketOf(policy string, partition int, k queue.Key) (string, error) {
	_, err := queue.ParseKey(string(k))
	return n.Queue(policy, partition, k), err
}

// JobFilter selects a bucket's jobs, or all of a policy.
type JobFilter struct {
	Key       queue.Key // empty: all
	Partition int
}

// StoredJobs reads up to n jobs in stream order, starting at a sequence; fewer if their bodies are
// large, but at least one.
func (b *Broker) StoredJobs(ctx context.Context, policy string, w JobFilter, from uint64,
	n int) (found []job.Arrived, err error) {
	defer errs.Annotate(&err, "jobs of %s", policy)
	stream, subject := b.names.Stream(policy), ""
	if w.Key != "" {
		if subject, err = b.names.bucketOf(policy, w.Partition, w.Key); err != nil {
			return nil, err
		}
	}
	bytes := 0
	for m, err := range b.js.Messages(ctx, stream, subject, from, n) {
		if err != nil {
			return nil, err
		}
		found = append(found, b.names.arrived(m, false))
		if bytes += len(m.Data); len(found) == n || bytes >= mostListedBytes {
			break
		}
	}
	return found, nil
}

// headerNATSStatus marks a server's status message; clients must not see it in a job.
const headerNATSStatus = "Status"

// headerSize is the size of a body that the server left out.
const headerSize = "Nats-Msg-Size"

func isBare(m jsapi.Message) bool {
	return len(m.Data) == 0 && jsapi.ServerSays(m.Header, headerSize) != ""
}

func (n Names) arrived(m jsapi.Message, lean bool) job.Arrived {
	a := job.Arrived{Seq: m.Seq, Stored: m.Time, Lean: lean, Size: len(m.Data)}
	a.Partition, a.Key, a.Malformed = n.ParseQueue(m.Subject)
	if m.Unreadable && a.Malformed == nil {
		a.Malformed = jsapi.ErrHeaderUnreadable
	}
	if lean {
		if size := jsapi.ServerSays(m.Header, headerSize); size != "" {
			a.Size, _ = strconv.Atoi(size)
			delete(m.Header, headerSize)
		}
	} else {
		a.Body = m.Data
	}
	delete(m.Header, headerNATSStatus)
	if len(m.Header) == 0 {
		m.Header = nil
	}
	a.ReadHeader(m.Header)
	return a
}

// Bodies reads jobs with their bodies, in the order of seqs, and omits jobs that have left the
// stream.
func (l *Backlog) Bodies(ctx context.Context, seqs []uint64) (found []job.Arrived, err error) {
	read, err := l.b.js.Directs(ctx, l.stream, seqs)
	if err != nil {
		return nil, fmt.Errorf("read %d jobs of %s: %w", len(seqs), l.o.Policy, err)
	}
	for i, m := range read {
		if m.Seq != seqs[i] || m.Time.Before(l.created) { // not read, or of a former stream
			m, err = l.b.js.MessageAt(ctx, l.stream, seqs[i])
			if errors.Is(err, ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("read job %s: %w", job.ID(l.o.Policy, seqs[i]), err)
			}
		}
		found = append(found, l.b.names.arrived(m, false))
	}
	return found, nil
}

const dropsAtOnce = 500

// DropBucket removes the first jobs of a bucket, at most 500, without dead letters, in a partition
// without an owner; ask an owner by [job.OpPurge]. It returns their number, before the context
// ended. Ask for an owner again after each call: one that came meanwhile may have read the jobs.
func (b *Broker) DropBucket(ctx context.Context, policy string, partition int,
	k queue.Key) (removed int, err error) {
	defer errs.Annotate(&err, "drop bucket %s.%s", policy, k)
	subject, err := b.names.bucketOf(policy, partition, k)
	if err != nil {
		return 0, err
	}
	var found []job.Arrived
	stream := b.names.Stream(policy)
	next := uint64(1)
	for len(found) < dropsAtOnce && ctx.Err() == nil {
		m, err := b.js.Next(ctx, stream, subject, next)
		if errors.Is(err, ErrNotFound) || err != nil && ctx.Err() != nil {
			break
		}
		if err != nil {
			return 0, err
		}
		found = append(found, b.names.arrived(m, false))
		next = m.Seq + 1
	}
	if len(found) == 0 {
		return 0, jsapi.Translate(ctx.Err())
	}
	// Jobs already read are dropped even if the context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.js.Timeout)
	defer cancel()
	for _, j := range found {
		if err := b.noteDropped(ctx, policy, j, queue.EndPurged); err != nil {
			return 0, err
		}
	}
	purged, err := b.js.Purge(ctx, stream, subject, next-1)
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
		err = b.noteDropped(ctx, policy, j, queue.EndCancelled)
	}
	if err == nil {
		err = b.js.DeleteMessage(ctx, b.names.Stream(policy), seq)
	}
	if err == nil {
		b.tellDropped(policy, j)
	}
	return err
}

func (b *Broker) noteDropped(ctx context.Context, policy string, j job.Arrived,
	how queue.End) error {
	if job.HeaderValue(j.Header, job.HeaderIdempotencyKey) == "" {
		return nil
	}
	return b.Results().Note(ctx, policy, j.Seq,
		job.Ended{How: how, Accepted: j.Stored, Sum: job.PayloadSum(j.Header, j.Body)})
}

func (b *Broker) tellDropped(policy string, j job.Arrived) {
	b.events.Publish(policy, queue.Event{Type: queue.EventCancelled, Job: job.ID(policy, j.Seq),
		Key: j.Key, Tags: job.Tags(j.Header), Header: j.Header, Accepted: j.Stored})
	b.PublishResult(j.Header, queue.Result{Job: job.ID(policy, j.Seq), End: queue.EndCancelled})
}
