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
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// detour dials connections whose bytes can be held, as when a server stalls.
type detour struct {
	mu    sync.Mutex
	last  net.Conn
	held  bool
	bytes []byte
}

func (d *detour) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.held {
		d.last = c
	}
	return &detoured{Conn: c, d: d}, nil
}

func (d *detour) hold() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = true
}

func (d *detour) release() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err := d.last.Write(d.bytes)
	return err
}

type detoured struct {
	net.Conn
	d *detour
}

func (c *detoured) Write(p []byte) (int, error) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	if c.d.held && c.d.last == c.Conn {
		c.d.bytes = append(c.d.bytes, p...)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *detoured) Close() error {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	if c.d.held && c.d.last == c.Conn {
		return c.Conn.SetReadDeadline(time.Unix(1, 0)) // the bytes outlive the client
	}
	return c.Conn.Close()
}

// A server stalls with the publish in its socket; the client's next server has a full bucket; then
// a place becomes free, and the first publish is read.
func TestAFullBucketIsUncertainAfterAnUnansweredAttempt(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, embedded.Options{Listen: "127.0.0.1:0"})
	d := &detour{}
	nc, err := nats.Connect(s.URL(), nats.SetCustomDialer(d),
		nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	b := brokerOver(t, nc)
	apply(t, b, paced("stripe", 1, 1))
	p := b.NewProducer(ProducerOptions{})
	if _, err := p.Publish(natstest.Context(t),
		Submission{Policy: "stripe", Key: "a", Body: []byte("first")}); err != nil {
		t.Fatal(err)
	}

	d.hold()
	second := make(chan error, 1)
	go func() {
		_, err := p.Publish(context.Background(),
			Submission{Policy: "stripe", Key: "a", Body: []byte("second")})
		second <- err
	}()
	waittest.Until(t, "the publish is on its way", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.bytes) > 0
	})
	if err := nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	if err := <-second; !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrFull) {
		t.Errorf("while an attempt is under way: %v, want ErrUnavailable", err)
	}

	l := open(t, b, BacklogOptions{Policy: "stripe", Partitions: 1, Epoch: 1})
	l.Done(receive(t, l, 1)[0].Seq)
	waittest.Until(t, "the place is free", func() bool {
		info, err := b.js.StreamInfo(natstest.Context(t), b.names.Stream("stripe"), "")
		return err == nil && info.State.Msgs == 0
	})
	if err := d.release(); err != nil {
		t.Fatal(err)
	}
	if a := receive(t, l, 1)[0]; string(a.Body) != "second" {
		t.Errorf("got %q", a.Body)
	}
}
