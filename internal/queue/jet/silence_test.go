package jet

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// muffled is a dialer whose connections deliver no bytes while the lock is held.
type muffled struct{ sync.RWMutex }

func (m *muffled) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	return &muffledConn{c, m}, err
}

type muffledConn struct {
	net.Conn
	by *muffled
}

func (c *muffledConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.by.RLock()
	defer c.by.RUnlock()
	return n, err
}

// A single server that is slow for some time, by its disk or garbage collection, loses no pulls.
// Reopening the backlog would make it deliver everything again.
func TestASilentServerIsWaitedFor(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t, embedded.Options{Listen: "127.0.0.1:0"})
	var line muffled
	nc, err := nats.Connect(server.URL(), nats.Timeout(time.Second), nats.SetCustomDialer(&line))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	b := brokerOver(t, nc)
	apply(t, b, paced("stripe", 10, 1))
	l := open(t, b, BacklogOptions{Policy: "stripe"})
	l.until(t, "the stored jobs have come", func() bool { return l.swept })
	const silence = 2 * time.Second
	line.Lock()
	ctx, cancel := context.WithTimeout(t.Context(), silence)
	defer cancel()
	_, err = l.Next(ctx)
	line.Unlock()
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a silence of %v: %v", silence, err)
	}
	publish(t, b, "stripe", "a", 1)
	l.until(t, "the job has come", func() bool { return len(l.arrived) > 0 })
	if l.broken != nil {
		t.Errorf("then: %v", l.broken)
	}
}
