package queue

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
)

// One server's copy of a replicated stream can lack jobs that the others have. What nats-server
// 2.15.2 does: deletions that a server catches up with are noted in an index alone, not in the
// blocks. When it is killed later, it may rebuild its copy from the blocks, with those jobs in it
// again; where a bucket then holds more than max_msgs_per_subject it deletes the oldest, although
// the stream discards new ones. That is harmless only where jobs end in the order in which they
// came. sync_interval: always does not prevent it: what is missing was never written. From then on
// the copy differs, and no server notices:
//
//   - A new consumer begins, on all servers, at the first sequence of whichever leads it first.
//   - What the leader of the stream lacks its consumers leave out.
//   - What a consumer has left out counts as acknowledged: the next leader deletes it everywhere.
//
// So a consumer that begins too late is made again before it delivers anything, and no server is
// accepted as the leader that has less than what the partition's former consumer still waits for.

// errBeginsLate is a consumer's that leaves out what is stored.
var errBeginsLate = errors.New("the consumer begins after the first job of the stream")

// Lack says that a server's copy of the policy's stream lacks jobs that another one has.
type Lack struct {
	Server string
	Jobs   uint64 // at least
}

// Lacks are the servers that were found to lack jobs, and were passed over.
func (l *Backlog) Lacks() []Lack { return l.lacks }

func (l *Backlog) lack(server string, jobs uint64) {
	for i := range l.lacks {
		if l.lacks[i].Server == server {
			l.lacks[i].Jobs = max(l.lacks[i].Jobs, jobs)
			return
		}
	}
	l.lacks = append(l.lacks, Lack{server, jobs})
}

// outstanding is how many jobs a consumer has not seen acknowledged, delivered or not. Nobody can
// say later, for it is deleted next: so it is asked again until it answers, but not for ever, for
// its servers may be gone; then it is 0.
func (l *Backlog) outstanding(ctx context.Context, name string) uint64 {
	ctx, cancel := context.WithTimeout(ctx, leadPatience)
	defer cancel()
	for {
		info, err := l.consumerInfo(ctx, l.stream+"."+name)
		switch {
		case err == nil && info.Cluster != nil:
			return uint64(info.NumAckPending) + info.NumPending
		case err == nil || jsapi.HasCode(err, jsapi.CodeConsumerNotFound):
			return 0
		}
		if jsapi.Pause(ctx, leadEvery) != nil {
			return 0
		}
	}
}

// whole looks whether the new consumer begins with the first job of the stream, as the server tells
// that leads both by now. The consumer was led by another one first, which may be ahead for a
// moment.
func (l *Backlog) whole(ctx context.Context, stream *jetstream.StreamInfo, first string) error {
	consumer := l.stream + "." + l.b.names.Consumer(l.o.Partition, l.o.Epoch)
	info, err := l.consumerInfo(ctx, consumer)
	if err != nil {
		return err
	}
	l.leader, l.has = stream.Cluster.Leader, info.NumPending
	for range 10 {
		if !beginsLate(stream.State, info) {
			return nil
		}
		if err := jsapi.Pause(ctx, leadEvery); err != nil {
			return err
		}
		if stream, err = l.b.js.StreamInfo(ctx, l.stream, ""); err != nil {
			return err
		}
	}
	l.lack(first, 1)
	return errBeginsLate
}

// beginsLate reports whether a new consumer, which has delivered nothing, leaves out what is
// stored.
func beginsLate(stream jetstream.StreamState, consumer jetstream.ConsumerInfo) bool {
	return stream.Msgs > 0 && consumer.Delivered.Stream >= stream.FirstSeq
}

// passOver has other servers lead the stream until one has all that the former consumer waits for.
// When none has, it was acknowledged in the last moment, and the one with the most stays.
func (l *Backlog) passOver(ctx context.Context, cluster *jetstream.ClusterInfo) error {
	if cluster == nil {
		return nil
	}
	best, most := l.leader, l.has
	for _, other := range cluster.Replicas {
		if l.has >= l.held {
			return nil
		}
		if other.Offline || other.Name == l.leader {
			continue
		}
		if err := l.openUnder(ctx, other.Name); err != nil {
			return err
		}
		if l.has > most {
			l.lack(best, l.has-most)
			best, most = l.leader, l.has
		}
	}
	if l.has < most {
		return l.openUnder(ctx, best)
	}
	return nil
}

// openUnder makes the consumer again under another leader of the stream.
func (l *Backlog) openUnder(ctx context.Context, server string) error {
	waiting, cancel := context.WithTimeout(ctx, leadPatience)
	defer cancel()
	var answer struct{}
	request := map[string]any{"placement": map[string]string{"preferred": server}}
	// What comes of it shows in which server leads then.
	_ = l.b.js.Call(waiting, "$JS.API.STREAM.LEADER.STEPDOWN."+l.stream, request, &answer)
	for {
		info, err := l.b.js.StreamInfo(waiting, l.stream, "")
		if err == nil && info.Cluster != nil && info.Cluster.Leader == server ||
			waiting.Err() != nil {
			return l.evict(ctx)
		}
		_ = jsapi.Pause(waiting, leadEvery)
	}
}
