package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/penstock-mq/penstock/queue/internal/jsapi"
)

const (
	leadEvery = 20 * time.Millisecond
	// leadPatience bounds the time until the stream's leader leads the consumer.
	leadPatience = 3 * time.Second
)

// lead makes the stream's leader lead the new consumer. JetStream may elect a server that has just
// restarted and for some seconds delivers its old state (seen on three nodes: 10,000 came of 35,000
// stored, half of them gone).
func (l *Backlog) lead(ctx context.Context, leader string) error {
	if leader == "" {
		return nil
	}
	first := leader
	ctx, cancel := context.WithTimeout(ctx, leadPatience)
	defer cancel()
	consumer := l.stream + "." + l.b.names.Consumer(l.o.Partition, l.o.Epoch)
	for {
		// The server that answers leads the stream after the consumer was created.
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
