package natsconn_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/server/natsconn"
)

// client is a broker whose connection began at the cluster's first server, and its log.
type client struct {
	*jet.Broker
	t    *testing.T
	log  *waittest.Log
	born time.Time
}

func newClient(t *testing.T, replicas int, urls ...string) *client {
	t.Helper()
	c := &client{t: t, log: new(waittest.Log), born: time.Now()}
	log := slog.New(slog.NewTextHandler(c.log, nil))
	nc, err := nats.Connect(strings.Join(urls, ","),
		append(natsconn.NewWatch(log).Options("test"), nats.DontRandomize())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	c.Broker, err = jet.NewBroker(nc, jet.Options{Replicas: replicas, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *client) setUp() {
	c.t.Helper()
	waittest.Until(c.t, "JetStream is set up", func() bool {
		return c.Setup(natstest.Context(c.t)) == nil
	})
	waittest.Until(c.t, "a write is answered", c.writes)
}

// writes reports whether a write was answered.
func (c *client) writes() bool {
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Second)
	defer cancel()
	return c.Tables().Partitions.Set(ctx, "x", []byte("1"), 0) == nil
}

func (c *client) server() string { return c.Conn().ConnectedServerName() }

// A server that is cut off from its peers still accepts connections and requests.
func TestAConnectionLeavesAServerThatIsCutOff(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]int{"all servers are given": 3, "others were found": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := natstest.StartCluster(t, known == 1)
			c := newClient(t, 3, cluster.URLs()[:known]...)
			c.setUp()
			if at := c.server(); at != "n0" {
				t.Fatalf("connected to %s", at)
			}
			waittest.Until(t, "all servers are known", func() bool {
				return len(c.Conn().Servers()) == 3
			})
			began := time.Now()
			cluster.Isolate(0, true)
			waittest.Until(t, "the connection moves", func() bool {
				c.writes()
				return c.server() != "n0" && c.server() != ""
			})
			if took := time.Since(began); took < natsconn.SilencePatience {
				t.Errorf("it moved after %v", took)
			}
			waittest.Until(t, "writes are answered", c.writes)
			waittest.Until(t, "the silence is over", func() bool {
				return c.Unstorable() == nil && c.log.Count("NATS answers again") == 1
			})
			if n := c.log.Count("the connection moves to another server"); n != 1 {
				t.Errorf("%d lines about moves:\n%s", n, c.log)
			}
		})
	}
}

// While no server has a majority, as during an election, a connection may move, but must not hop.
func TestWhileAllServersAreSilentAConnectionMovesSeldom(t *testing.T) {
	t.Parallel()
	cluster := natstest.StartCluster(t, false)
	c := newClient(t, 3, cluster.URLs()...)
	c.setUp()
	began := time.Now()
	for i := range cluster.Servers {
		cluster.Isolate(i, true)
	}
	moved := func() int { return c.log.Count("the connection moves to another server") }
	for moves, earliest := range []time.Duration{3 * time.Second, 9 * time.Second} {
		waittest.Until(t, "it moves", func() bool {
			c.writes()
			return moved() > moves
		})
		if took := time.Since(began); took < earliest {
			t.Errorf("move %d came after %v, want at least %v", moves+1, took, earliest)
		}
	}
	if c.Unstorable() == nil {
		t.Error("it counts as well")
	}
	for i := range cluster.Servers {
		cluster.Isolate(i, false)
	}
	waittest.Until(t, "writes are answered again", func() bool {
		return c.writes() && c.Unstorable() == nil
	})
}

// It could only reconnect to the same server, and would lose what is on its way.
func TestAConnectionDoesNotLeaveTheOnlyServer(t *testing.T) {
	t.Parallel()
	server := start(t, "127.0.0.1:0")
	inside, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(inside.Close)
	log := new(waittest.Log)
	logger := slog.New(slog.NewTextHandler(log, nil))
	outside := connections(t, natsconn.NewWatch(logger), server.URL(), 1)[0]
	for i, nc := range []*nats.Conn{inside, outside} {
		s := natsconn.NewSilence(nc, logger, func(context.Context) {})
		s.Unanswered(time.Now())
		if s.Lasts() != 0 {
			t.Error("a moment is a silence")
		}
		waittest.Until(t, "the silence is noticed", func() bool {
			return s.Lasts() >= natsconn.SilencePatience &&
				log.Count("no other server is known") == i+1
		})
		s.Answered()
		waittest.Until(t, "it is over", func() bool { return log.Count("answers again") == i+1 })
		if n := nc.Stats().Reconnects; n > 0 || s.Lasts() != 0 {
			t.Errorf("connection %d: %d reconnects, a silence of %v", i, n, s.Lasts())
		}
	}
}

// A call that the server refuses or does not answer, such as one to a policy's closed door, is no
// silence while other writes are answered.
func TestAnAnswerToTheProbeEndsASilenceBeforeItCounts(t *testing.T) {
	t.Parallel()
	c := newClient(t, 1, start(t, "127.0.0.1:0").URL())
	c.setUp()
	for range 20 {
		_, err := c.NewProducer(jet.ProducerOptions{}).Publish(natstest.Context(t),
			jet.Submission{Policy: "missing", Key: "a"})
		if err == nil {
			t.Fatal("a job of a missing policy was stored")
		}
		if err := c.Unstorable(); err != nil {
			t.Fatal(err)
		}
		if time.Since(c.born) > natsconn.SilencePatience+2*time.Second {
			break
		}
	}
	if log := c.log.String(); strings.Contains(log, "NATS stores nothing") {
		t.Error(log)
	}
}
