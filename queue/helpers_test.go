package queue

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// patience is how long a test waits for what should come at once.
const patience = 20 * time.Second

func startServer(t testing.TB, o embedded.Options) *embedded.Server {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s, err := embedded.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

func connect(t testing.TB, s *embedded.Server) *nats.Conn {
	t.Helper()
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func brokerOver(t testing.TB, nc *nats.Conn) *Broker {
	t.Helper()
	b, err := NewBroker(nc, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Setup(testContext(t)); err != nil {
		t.Fatal(err)
	}
	return b
}

// newBroker is a broker over a server of its own.
func newBroker(t testing.TB) *Broker {
	t.Helper()
	return brokerOver(t, connect(t, startServer(t, embedded.Options{})))
}

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// paced is a leaking bucket with a queue.
func paced(name string, capacity int64, partitions int) policy.Policy {
	return policy.Policy{Name: name, Algorithm: policy.LeakingBucket, Capacity: capacity, Partitions: partitions,
		Outflow: algorithms.Rate{Count: 10, Per: time.Second}}
}

// door is a door policy with a queue.
func door(name string, capacity int64, partitions int) policy.Policy {
	return policy.Policy{Name: name, Algorithm: policy.FixedWindow, Limit: 10, Window: policy.Duration(time.Minute),
		Queue: &policy.Queue{Capacity: capacity}, Partitions: partitions}
}

func apply(t testing.TB, b *Broker, p policy.Policy) {
	t.Helper()
	if err := b.Apply(testContext(t), p); err != nil {
		t.Fatal(err)
	}
}

func mustKey(t testing.TB, raw string) Key {
	t.Helper()
	k, err := EncodeKey(raw)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for !condition() {
		select {
		case <-deadline.C:
			t.Fatalf("gave up waiting until %s", what)
		case <-look.C:
		}
	}
}

// request publishes as any NATS client would and returns JetStream's answer.
func request(t testing.TB, nc *nats.Conn, subject, body string, header nats.Header) (pubAck, error) {
	t.Helper()
	m, err := nc.RequestMsg(&nats.Msg{Subject: subject, Header: header, Data: []byte(body)}, 5*time.Second)
	if err != nil {
		return pubAck{}, err
	}
	return parsePubAck(m.Data)
}

// publish fills a bucket with jobs whose bodies are numbered from 0.
func publish(t testing.TB, b *Broker, policy string, k Key, n int) {
	t.Helper()
	for i := range n {
		if _, err := request(t, b.nc, b.names.Jobs(policy, k), fmt.Sprint(i), nil); err != nil {
			t.Fatalf("publish %d: %v", i, err)
		}
	}
}

func open(t testing.TB, b *Broker, o BacklogOptions) *Backlog {
	t.Helper()
	if o.Partitions == 0 {
		o.Partitions = 1
	}
	l, err := b.OpenBacklog(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // an abandoned backlog has nobody to wait for
		_ = l.Close(ctx)
	})
	return l
}

// receive waits for n arrivals.
func receive(t testing.TB, l *Backlog, n int) []Arrived {
	t.Helper()
	var got []Arrived
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for len(got) < n {
		select {
		case batch, ok := <-l.Arrivals():
			if !ok {
				t.Fatalf("closed after %d of %d arrivals", len(got), n)
			}
			got = append(got, batch...)
		case batch := <-l.Strays():
			got = append(got, batch...)
		case err := <-l.Broken():
			t.Fatalf("broken after %d of %d arrivals: %v", len(got), n, err)
		case <-deadline.C:
			t.Fatalf("%d of %d arrivals came", len(got), n)
		}
	}
	if len(got) > n {
		t.Fatalf("%d arrivals came, want %d", len(got), n)
	}
	return got
}

// confirm waits until n acknowledgements are confirmed.
func confirm(t testing.TB, l *Backlog, n int) map[uint64]bool {
	t.Helper()
	got := map[uint64]bool{}
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for len(got) < n {
		select {
		case batch, ok := <-l.Confirmed():
			if !ok {
				t.Fatalf("closed after %d of %d confirmations", len(got), n)
			}
			for _, seq := range batch {
				if got[seq] {
					t.Fatalf("%d confirmed twice", seq)
				}
				got[seq] = true
			}
		case <-deadline.C:
			t.Fatalf("%d of %d confirmations came", len(got), n)
		}
	}
	return got
}

func broken(t testing.TB, l *Backlog) error {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	arrivals := l.Arrivals()
	for {
		select {
		case err := <-l.Broken():
			return err
		case _, ok := <-arrivals:
			if !ok {
				arrivals = nil
			}
		case <-deadline.C:
			t.Fatal("the backlog did not break")
		}
	}
}
