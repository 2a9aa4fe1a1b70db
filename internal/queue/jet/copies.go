package jet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/queue/jsapi"
)

// One server's copy of a replicated stream can lack jobs of the other copies: nats-server 2.15.3
// records deletions during catch-up only in an index. When the server is killed later, it may
// rebuild its copy with those jobs; a bucket above max_msgs_per_subject then loses its oldest, even
// with sync_interval: always. No server detects that:
//
//   - A new consumer begins, on all servers, at the first sequence of its first leader.
//   - It leaves out jobs that the stream's leader lacks.
//   - These count as acknowledged, so the next leader deletes them everywhere.
//
// A consumer that begins too late is therefore recreated before it delivers, and a server is
// accepted as leader only if it has all jobs that the former consumer still waits for.

var errBeginsLate = errors.New("the consumer begins after the first job of the stream")

type copies struct {
	leader string // of the stream; empty outside a cluster
	held   uint64 // jobs outstanding on the former consumer
	has    uint64 // jobs of the new consumer, per the stream's leader
	lacks  []Lack
}

// Lack reports a server whose copy of a stream lacks another copy's jobs.
type Lack struct {
	Server string
	Jobs   uint64 // at least
}

// Lacks lists the servers whose copies lacked jobs when the backlog was opened.
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

// owed is the number of jobs that deleted consumers of a partition waited for. It outlives an
// opening that fails after the deletion, or the next one would accept a leader that lacks some.
type owed struct {
	jobs uint64
	at   time.Time
}

// owedFor: later, another owner may have ended the jobs.
const owedFor = time.Minute

func (l *Backlog) owed() uint64 {
	noted, _ := l.b.owed.Load(l.place())
	if o, known := noted.(owed); known && time.Since(o.at) < owedFor {
		return o.jobs
	}
	return 0
}

func (l *Backlog) place() string { return fmt.Sprintf("%s.%d", l.stream, l.o.Partition) }

// outstanding returns the number of unacknowledged jobs of a consumer; 0: unknown.
func (l *Backlog) outstanding(ctx context.Context, name string) uint64 {
	ctx, cancel := context.WithTimeout(ctx, leadPatience)
	defer cancel()
	for {
		info, err := l.consumerInfo(ctx, l.stream+"."+name)
		switch {
		case err == nil && info.Cluster != nil:
			return uint64(info.NumAckPending) + info.NumPending
		case err == nil || jsapi.HasCode(err, jetstream.JSErrCodeConsumerNotFound):
			return 0
		}
		if jsapi.Pause(ctx, leadEvery) != nil {
			return 0
		}
	}
}

// whole checks that the new consumer begins with the stream's first job, according to the server
// that now leads both. Its first leader may be ahead briefly.
func (l *Backlog) whole(ctx context.Context, stream *jetstream.StreamInfo, first string) error {
	consumer := l.stream + "." + l.b.names.consumer(l.o.Partition, l.o.Epoch)
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

// beginsLate reports whether an unused consumer leaves out stored jobs.
func beginsLate(stream jetstream.StreamState, consumer jetstream.ConsumerInfo) bool {
	return stream.Msgs > 0 && consumer.Delivered.Stream >= stream.FirstSeq
}

// passOver moves the stream's leadership until a server has all jobs that the former consumer waits
// for. If no server has, they were acknowledged just before, and the server with the most jobs
// stays.
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

func (l *Backlog) openUnder(ctx context.Context, server string) error {
	waiting, cancel := context.WithTimeout(ctx, leadPatience)
	defer cancel()
	var answer struct{}
	request := map[string]any{"placement": map[string]string{"preferred": server}}
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

const (
	leadEvery = 20 * time.Millisecond
	// leadPatience bounds the time until the stream's leader leads the consumer.
	leadPatience = 3 * time.Second
)

// lead makes the stream's leader lead the new consumer. JetStream may elect a server that has just
// restarted and delivers its old state for some seconds (on three nodes it delivered 10,000 of
// 35,000 stored jobs, half of them already gone).
func (l *Backlog) lead(ctx context.Context, leader string) error {
	if leader == "" {
		return nil
	}
	first := leader
	ctx, cancel := context.WithTimeout(ctx, leadPatience)
	defer cancel()
	consumer := l.stream + "." + l.b.names.consumer(l.o.Partition, l.o.Epoch)
	for {
		info, err := l.b.js.StreamInfo(ctx, l.stream, "")
		if err != nil {
			return err
		}
		if info.Cluster == nil {
			return nil
		}
		if info.Cluster.Leader == leader {
			return l.whole(ctx, info, first)
		}
		var answer struct{}
		request := map[string]any{"placement": map[string]string{"preferred": info.Cluster.Leader}}
		_ = l.b.js.Call(ctx, "$JS.API.CONSUMER.LEADER.STEPDOWN."+consumer, request, &answer)
		if jsapi.Pause(ctx, leadEvery) != nil {
			return fmt.Errorf("%w: %s leads the consumer, and %s the stream", ErrUnavailable,
				leader, info.Cluster.Leader)
		}
		leader = ""
		if info, err := l.consumerInfo(ctx, consumer); err == nil && info.Cluster != nil {
			leader = info.Cluster.Leader
		}
	}
}

func (l *Backlog) consumerInfo(ctx context.Context,
	consumer string) (info jetstream.ConsumerInfo, err error) {
	ctx, cancel := context.WithTimeout(ctx, leadPatience/10)
	defer cancel()
	err = l.b.js.Call(ctx, "$JS.API.CONSUMER.INFO."+consumer, struct{}{}, &info)
	return info, err
}
