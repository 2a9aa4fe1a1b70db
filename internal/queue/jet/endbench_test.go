package jet

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
)

// BenchmarkEnd reads b.N jobs in order and removes each, alternately by acknowledgements on a work
// queue, as backlogs do, and by deletion from a stream with limits retention. The ratio is of the
// jobs per second.
func BenchmarkEnd(b *testing.B) {
	for _, servers := range []int{1, 3} {
		b.Run(fmt.Sprint("servers=", servers), func(b *testing.B) {
			broker := newBroker
			if servers == 3 {
				broker = func(t testing.TB) *Broker { return newCluster(t, false).broker }
			}
			var took [2]time.Duration
			for i, end := range []func(*testing.B, *Broker) time.Duration{endByAck, endByDelete} {
				took[i] = end(b, broker(b))
				b.ReportMetric(float64(b.N)/took[i].Seconds(), []string{"acks/s", "deletes/s"}[i])
			}
			b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "ratio")
		})
	}
}

func endByAck(b *testing.B, broker *Broker) time.Duration {
	apply(b, broker, paced("stripe", 1_000_000, 1))
	publishAll(b, broker, "penstock.jobs.stripe.k", make([]byte, 100))
	began := time.Now()
	l := open(b, broker, BacklogOptions{Policy: "stripe", Epoch: 1})
	for confirmed := 0; confirmed < b.N; {
		u, err := l.Next(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		for _, a := range u.Arrived {
			l.Done(a.Seq)
		}
		confirmed += len(u.Confirmed)
	}
	return time.Since(began)
}

func endByDelete(b *testing.B, broker *Broker) time.Duration {
	err := broker.js.CreateStream(b.Context(), jetstream.StreamConfig{Name: "limits",
		Subjects: []string{"limits.>"}, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true,
		MaxMsgsPerSubject: 1_000_000, Replicas: broker.replicas, AllowDirect: true,
		Duplicates: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	publishAll(b, broker, "limits.k", make([]byte, 100))
	began := time.Now()
	jobs, err := broker.js.OrderedConsumer(b.Context(), "limits",
		jetstream.OrderedConsumerConfig{})
	if err != nil {
		b.Fatal(err)
	}
	arriving, err := jobs.Messages()
	if err != nil {
		b.Fatal(err)
	}
	defer arriving.Stop()
	const window = ackWindow
	deleted, inbox := make(chan *nats.Msg, window), nats.NewInbox()
	answers, err := broker.nc.ChanSubscribe(inbox, deleted)
	if err != nil {
		b.Fatal(err)
	}
	defer answers.Unsubscribe()
	confirm := func() {
		var answer struct{ Success bool }
		if err := json.Unmarshal((<-deleted).Data, &answer); err != nil || !answer.Success {
			b.Fatal("a job was not deleted")
		}
	}
	for sent := range b.N {
		m, err := arriving.Next()
		if err != nil {
			b.Fatal(err)
		}
		at, err := m.Metadata()
		if err != nil {
			b.Fatal(err)
		}
		if sent >= window {
			confirm()
		}
		request := fmt.Appendf(nil, `{"seq":%d,"no_erase":true}`, at.Sequence.Stream)
		err = broker.nc.PublishRequest("$JS.API.STREAM.MSG.DELETE.limits", inbox, request)
		if err != nil {
			b.Fatal(err)
		}
	}
	for range min(b.N, window) {
		confirm()
	}
	return time.Since(began)
}

func publishAll(b *testing.B, broker *Broker, subject string, body []byte) {
	b.Helper()
	for i := range b.N {
		_, err := broker.js.PublishAsync(fmt.Sprint(subject, i%1000), body,
			jetstream.WithStallWait(natstest.Patience))
		if err != nil {
			b.Fatal(err)
		}
	}
	<-broker.js.PublishAsyncComplete()
}
