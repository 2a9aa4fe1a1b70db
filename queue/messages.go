package queue

import (
	"context"
	"fmt"
	"math"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

// StoredJob reads a job that waits, backs off or runs, with its position and content, from the
// leader of its policy's stream. It returns [ErrNotFound] for a job that has finished or never
// existed, and [ErrNoStream] for a policy without a stream.
func (b *Broker) StoredJob(ctx context.Context, policy string, seq uint64) (job.Arrived, error) {
	m, err := b.messageBySeq(ctx, b.names.Stream(policy), seq)
	if err != nil {
		return job.Arrived{}, fmt.Errorf("job %s: %w", job.ID(policy, seq), err)
	}
	return b.arrived(m, false), nil
}

// mostListedBytes bounds, roughly, the bytes of bodies read for one list of jobs.
const mostListedBytes = 8 << 20

// StoredJobs reads up to n jobs of a bucket that wait, back off or run, in order of acceptance,
// starting at a sequence: fewer when their bodies are large, but at least one if any exists. A
// policy without a stream has none.
func (b *Broker) StoredJobs(ctx context.Context, policy string, partition int, k job.Key,
	from uint64, n int) (found []job.Arrived, err error) {

	if _, err := job.ParseKey(string(k)); err != nil { // a wildcard would match other buckets
		return nil, fmt.Errorf("jobs of bucket %s.%s: %w", policy, k, err)
	}
	stream, subject := b.names.Stream(policy), b.names.Queue(policy, partition, k)
	bytes := 0
	for m, err := range b.js.Messages(ctx, stream, subject, from, n) {
		if err != nil {
			return nil, fmt.Errorf("jobs of bucket %s.%s: %w", policy, k, err)
		}
		found = append(found, b.arrived(m, false))
		if bytes += len(m.Data); len(found) == n || bytes >= mostListedBytes {
			break
		}
	}
	return found, nil
}

// JobFilter selects jobs of a policy: those of a bucket, or all.
type JobFilter struct {
	Key       job.Key // empty: all of them
	Partition int     // that holds the bucket
}

// LastJob returns the sequence of the last job stored in a policy's stream, per the stream's
// leader; 0 when there never was one. It returns [ErrNoStream] for a policy without a stream.
func (b *Broker) LastJob(ctx context.Context, policy string) (uint64, error) {
	info, err := b.js.StreamInfo(ctx, b.names.Stream(policy), "")
	if err != nil {
		return 0, fmt.Errorf("last job of %s: %w", policy, err)
	}
	return info.State.LastSeq, nil
}

// ScanJobs reads up to n jobs that wait, back off or run, with their bodies, in order of
// acceptance, starting at a sequence: fewer when their bodies are large, but at least one if any
// exists.
func (b *Broker) ScanJobs(ctx context.Context, policy string, w JobFilter, from uint64, n int) (
	found []job.Arrived, err error) {

	stream, subject := b.names.Stream(policy), ""
	if w.Key != "" {
		if _, err := job.ParseKey(string(w.Key)); err != nil { // a wildcard would match others
			return nil, fmt.Errorf("jobs of bucket %s.%s: %w", policy, w.Key, err)
		}
		subject = b.names.Queue(policy, w.Partition, w.Key)
	}
	for {
		read, err := b.js.Batch(ctx, stream, subject, max(from, 1), n)
		for _, m := range read {
			found = append(found, b.arrived(m, false))
		}
		if err != nil || len(found) > 0 {
			return found, err
		}
		// A lagging replica may lack jobs: the leader knows whether there are more.
		next, err := b.js.NextStored(ctx, stream, subject, from)
		if err != nil || next == math.MaxUint64 {
			return nil, err
		}
		if err := jsapi.Pause(ctx, lettersEvery); err != nil {
			return nil, err
		}
	}
}

// messageBySeq reads one message from a stream's leader. Sequence 0 never exists, and JetStream
// would reject it as a bad request.
func (b *Broker) messageBySeq(ctx context.Context, stream string,
	seq uint64) (jsapi.Message, error) {
	if seq == 0 {
		return jsapi.Message{}, ErrNotFound
	}
	return b.js.Message(ctx, stream, map[string]uint64{"seq": seq})
}

// deleteMessage deletes one message of a stream.
func (b *Broker) deleteMessage(ctx context.Context, stream string, seq uint64) error {
	request := map[string]any{"seq": seq, "no_erase": true}
	return b.js.Call(ctx, "$JS.API.STREAM.MSG.DELETE."+stream, request, new(struct{}))
}

// purge deletes the messages of a stream that match a filter (empty: all) up to and including the
// sequence through (0: no bound). It returns the number deleted.
func (b *Broker) purge(ctx context.Context, stream, filter string,
	through uint64) (purged uint64, err error) {
	request := struct {
		Filter string `json:"filter,omitempty"`
		Seq    uint64 `json:"seq,omitempty"` // up to but not including
	}{Filter: filter}
	if through > 0 {
		request.Seq = through + 1
	}
	var answer struct {
		Purged uint64 `json:"purged"`
	}
	err = b.js.Call(ctx, "$JS.API.STREAM.PURGE."+stream, request, &answer)
	return answer.Purged, err
}
