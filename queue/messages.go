package queue

import (
	"context"
	"fmt"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

// StoredJob reads a job that waits, backs off or runs, from the leader of its policy's stream:
// where it lies, and what it holds. One that has finished, or never was, is [ErrNotFound]; a policy
// without a stream is [ErrNoStream].
func (b *Broker) StoredJob(ctx context.Context, policy string, seq uint64) (job.Arrived, error) {
	m, err := b.messageBySeq(ctx, b.names.Stream(policy), seq)
	if err != nil {
		return job.Arrived{}, fmt.Errorf("job %s: %w", job.ID(policy, seq), err)
	}
	return b.arrived(m, false), nil
}

// mostListedBytes is about how many bytes of bodies are read for one list of jobs.
const mostListedBytes = 8 << 20

// StoredJobs reads up to n jobs of a bucket that wait, back off or run, in the order in which they
// were accepted, from a sequence on: fewer when their bodies are large, but one at least if there
// is any. A policy without a stream has none.
func (b *Broker) StoredJobs(ctx context.Context, policy string, partition int, k job.Key,
	from uint64, n int) (found []job.Arrived, err error) {

	if _, err := job.ParseKey(string(k)); err != nil { // a wildcard would match other buckets
		return nil, fmt.Errorf("jobs of bucket %s.%s: %w", policy, k, err)
	}
	stream, subject := b.names.Stream(policy), b.names.Queue(policy, partition, k)
	for bytes := 0; len(found) < n && bytes < mostListedBytes; {
		read, err := b.js.Batch(ctx, stream, subject, max(from, 1), n-len(found))
		if err != nil {
			return nil, fmt.Errorf("jobs of bucket %s.%s: %w", policy, k, err)
		}
		if len(read) == 0 {
			break
		}
		for _, m := range read {
			found = append(found, b.arrived(m, false))
			bytes += len(m.Data)
			from = m.Seq + 1
		}
	}
	return found, nil
}

// messageBySeq reads one message from a stream's leader. JetStream takes the sequence 0, which none
// has, for a bad request.
func (b *Broker) messageBySeq(ctx context.Context, stream string,
	seq uint64) (jsapi.Message, error) {
	if seq == 0 {
		return jsapi.Message{}, ErrNotFound
	}
	return b.js.Message(ctx, stream, map[string]uint64{"seq": seq})
}

// deleteMessage deletes one message of a stream, and returns what the server says untranslated.
func (b *Broker) deleteMessage(ctx context.Context, stream string, seq uint64) error {
	var answer struct{}
	request := map[string]any{"seq": seq, "no_erase": true}
	return b.js.Call(ctx, "$JS.API.STREAM.MSG.DELETE."+stream, request, &answer)
}

// purge deletes the messages of a stream that match a filter, empty for all, and whose sequence is
// at most through, 0 for any. It returns how many there were.
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
	return answer.Purged, jsapi.Translate(err)
}
