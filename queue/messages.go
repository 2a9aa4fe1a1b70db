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
