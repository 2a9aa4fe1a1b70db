package jet

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// Depth returns the number of waiting, backing off and running jobs of a policy, or [ErrNoStream].
func (b *Broker) Depth(ctx context.Context, policy string) (jobs uint64, err error) {
	s, err := b.Stream(ctx, policy)
	return s.Jobs, err
}

// AllDepths returns the number of jobs of each policy with a stream.
func (b *Broker) AllDepths(ctx context.Context) (depths map[string]uint64, err error) {
	defer errs.Annotate(&err, "depths of all policies")
	depths = map[string]uint64{}
	err = b.js.EachStream(ctx, "", func(info *jetstream.StreamInfo) {
		name, ours := strings.CutPrefix(info.Config.Name, b.names.Stream(""))
		if ours && info.Config.Metadata[metaPartitions] != "" {
			depths[name] = info.State.Msgs
		}
	})
	return depths, err
}

// Depths returns the number of jobs of each nonempty bucket. It reads one name per bucket: do not
// call it in loops.
func (b *Broker) Depths(ctx context.Context, policy string) (map[queue.Key]uint64, error) {
	info, err := b.js.StreamInfo(ctx, b.names.Stream(policy), allSubjects)
	if err != nil {
		return nil, fmt.Errorf("depths of policy %s: %w", policy, err)
	}
	depths := make(map[queue.Key]uint64, len(info.State.Subjects))
	for subject, n := range info.State.Subjects {
		_, key, _ := b.names.ParseQueue(subject)
		depths[key] += n
	}
	return depths, nil
}

// BucketDepth counts the jobs of a bucket that are stored.
func (b *Broker) BucketDepth(ctx context.Context, policy string, partition int,
	k queue.Key) (jobs uint64, err error) {
	defer errs.Annotate(&err, "depth of bucket %s.%s", policy, k)
	subject, err := b.names.bucketOf(policy, partition, k)
	if err != nil {
		return 0, err
	}
	info, err := b.js.StreamInfo(ctx, b.names.Stream(policy), subject)
	if err != nil {
		return 0, err
	}
	return info.State.Subjects[subject], nil
}

// Stream is the stream of a policy's jobs.
type Stream struct {
	Name       string
	Jobs       uint64
	Bytes      Fill
	Partitions string
	Last       uint64 // last stored sequence
}

// Stream returns the stream of a policy, or [ErrNoStream].
func (b *Broker) Stream(ctx context.Context, policy string) (Stream, error) {
	info, err := b.js.StreamInfo(ctx, b.names.Stream(policy), "")
	if err != nil {
		return Stream{}, fmt.Errorf("stream of policy %s: %w", policy, err)
	}
	partitions, ours := info.Config.Metadata[metaPartitions]
	if !ours {
		return Stream{}, fmt.Errorf("stream %s: %w: it is not Penstock's", info.Config.Name,
			ErrNoStream)
	}
	bytes := Fill{int64(info.State.Bytes), max(info.Config.MaxBytes, 0)}
	return Stream{info.Config.Name, info.State.Msgs, bytes, partitions, info.State.LastSeq}, nil
}

// Streams lists the policies that have a stream of jobs.
func (b *Broker) Streams(ctx context.Context) ([]string, error) {
	all, err := b.js.Names(ctx, "$JS.API.STREAM.NAMES")
	if err != nil {
		return nil, err
	}
	var policies []string
	for _, stream := range all {
		name, ours := strings.CutPrefix(stream, b.names.Stream(""))
		if ours && policy.IsName(name) {
			policies = append(policies, name)
		}
	}
	return policies, nil
}
