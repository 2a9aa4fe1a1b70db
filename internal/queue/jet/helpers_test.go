package jet

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/policytest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

func brokerOver(t testing.TB, nc *nats.Conn) *Broker {
	t.Helper()
	b, err := NewBroker(nc, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Setup(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	return b
}

func newBroker(t testing.TB) *Broker {
	t.Helper()
	return brokerOver(t, natstest.New(t))
}

var paced, door = policytest.Paced, policytest.Door

func apply(t testing.TB, b *Broker, p policy.Policy) {
	t.Helper()
	if err := b.Apply(natstest.Context(t), p); err != nil {
		t.Fatal(err)
	}
}

func mustKey(t testing.TB, raw string) queue.Key {
	t.Helper()
	k, err := queue.EncodeKey(raw)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func request(t testing.TB, nc *nats.Conn, subject, body string,
	header nats.Header) (jsapi.PubAck, error) {
	t.Helper()
	m, err := nc.RequestMsg(&nats.Msg{Subject: subject, Header: header, Data: []byte(body)},
		natstest.Patience)
	if err != nil {
		return jsapi.PubAck{}, err
	}
	return jsapi.ParsePubAck(m.Data)
}

// publish fills a bucket with jobs whose bodies are numbered from 0.
func publish(t testing.TB, b *Broker, policy string, k queue.Key, n int) {
	t.Helper()
	for i := range n {
		if _, err := request(t, b.nc, b.names.Jobs(policy, k), fmt.Sprint(i), nil); err != nil {
			t.Fatalf("publish %d: %v", i, err)
		}
	}
}

func flood(t testing.TB, b *Broker, n int) {
	t.Helper()
	for range n {
		if err := b.nc.Publish(b.names.Jobs("stripe", "a"), nil); err != nil {
			t.Fatal(err)
		}
	}
	waittest.Until(t, "all are stored", func() bool {
		stored, err := b.Depth(natstest.Context(t), "stripe")
		return err == nil && stored == uint64(n)
	})
}

type opened struct {
	*Backlog
	arrived   []job.Arrived
	confirmed []uint64
	swept     bool
	broken    error
}

func open(t testing.TB, b *Broker, o BacklogOptions) *opened {
	t.Helper()
	if o.Partitions == 0 {
		o.Partitions = 1
	}
	l, err := b.OpenBacklog(natstest.Context(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { abandon(l) })
	return &opened{Backlog: l}
}

func abandon(l *Backlog) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = l.Close(ctx)
}

func (l *opened) until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), natstest.Patience)
	defer cancel()
	for !holds() {
		u, err := l.Next(ctx)
		if errors.Is(err, ErrClosed) || ctx.Err() != nil {
			t.Fatalf("%s: %v, after %d arrivals and %d confirmations", what, err, len(l.arrived),
				len(l.confirmed))
		}
		if err != nil {
			l.broken = err
		}
		l.arrived = append(append(l.arrived, u.Arrived...), u.Stray...)
		l.confirmed = append(l.confirmed, u.Confirmed...)
		l.swept = l.swept || u.Swept
	}
}

func (l *opened) take() []job.Arrived {
	arrived := l.arrived
	l.arrived = nil
	return arrived
}

func receive(t testing.TB, l *opened, n int) []job.Arrived {
	t.Helper()
	l.until(t, fmt.Sprintf("waiting for %d arrivals", n), func() bool {
		return len(l.arrived) >= n || l.broken != nil
	})
	if l.broken != nil {
		t.Fatalf("broken after %d of %d arrivals: %v", len(l.arrived), n, l.broken)
	}
	got := l.take()
	if len(got) > n {
		t.Fatalf("%d arrivals came, want %d", len(got), n)
	}
	return got
}

func confirm(t testing.TB, l *opened, n int) map[uint64]bool {
	t.Helper()
	l.until(t, fmt.Sprintf("waiting for %d confirmations", n), func() bool {
		return len(l.confirmed) >= n
	})
	got := map[uint64]bool{}
	for _, seq := range l.confirmed {
		if got[seq] {
			t.Fatalf("%d confirmed twice", seq)
		}
		got[seq] = true
	}
	l.confirmed = nil
	return got
}

func bodyOf(t testing.TB, l *opened, seq uint64) job.Arrived {
	t.Helper()
	found, err := l.Bodies(natstest.Context(t), []uint64{seq})
	if err != nil || len(found) != 1 {
		t.Fatalf("read job %d: %+v, %v", seq, found, err)
	}
	return found[0]
}

func sweepOf(t testing.TB, l *opened) []job.Arrived {
	t.Helper()
	l.until(t, "waiting for the sweep's end", func() bool { return l.swept || l.broken != nil })
	if l.broken != nil {
		t.Fatal(l.broken)
	}
	return l.take()
}

func broken(t testing.TB, l *opened) error {
	t.Helper()
	l.until(t, "waiting for the backlog to break", func() bool { return l.broken != nil })
	return l.broken
}
