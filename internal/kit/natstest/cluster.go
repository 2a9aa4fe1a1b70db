package natstest

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// Cluster is three servers whose routes can be cut.
type Cluster struct {
	Servers []*server.Server
	routes  [3][3]*wire
}

// StartCluster starts the servers n0 to n2, and waits until they have a leader. advertise: they
// tell clients of each other.
func StartCluster(t testing.TB, advertise bool) *Cluster {
	t.Helper()
	c := &Cluster{}
	var peers [3]net.Listener // hold the ports until all are known
	var options [3]*server.Options
	for i := range peers {
		var err error
		if peers[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	for i, peer := range peers {
		var routes []string
		for j, other := range peers {
			if i != j {
				c.routes[i][j] = newWire(t, other.Addr().String())
				routes = append(routes, "nats://"+c.routes[i][j].Addr().String())
			}
		}
		options[i] = &server.Options{ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: -1,
			JetStream: true, StoreDir: t.TempDir(), NoSigs: true, MaxPayload: 2 << 20,
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1",
				Port: peer.Addr().(*net.TCPAddr).Port, NoAdvertise: !advertise,
				Advertise: "127.0.0.1:1"}, // other routes than these would not be cut
			Routes: server.RoutesFromStr(strings.Join(routes, ","))}
	}
	for i, o := range options {
		_ = peers[i].Close()
		s, err := server.NewServer(o)
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() {
			s.Shutdown()
			s.WaitForShutdown()
		})
		c.Servers = append(c.Servers, s)
	}
	for _, s := range c.Servers {
		if !s.ReadyForConnections(Patience) {
			t.Fatal("a server is not ready")
		}
	}
	waittest.Until(t, "the servers have a leader", func() bool {
		for _, s := range c.Servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == len(c.Servers) {
				return true
			}
		}
		return false
	})
	return c
}

// URLs returns the addresses for clients, by the servers' order.
func (c *Cluster) URLs() []string {
	var urls []string
	for _, s := range c.Servers {
		urls = append(urls, s.ClientURL())
	}
	return urls
}

// Isolate cuts a server off from the others, or ends that. Clients still reach it.
func (c *Cluster) Isolate(i int, cut bool) {
	for j := range c.routes {
		if i != j {
			c.routes[i][j].become(cut)
			c.routes[j][i].become(cut)
		}
	}
}

// wire forwards connections until it is cut.
type wire struct {
	net.Listener
	to string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

func newWire(t testing.TB, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: l, to: to, conns: map[net.Conn]bool{}}
	t.Cleanup(func() {
		_ = l.Close()
		w.become(true)
	})
	go func() {
		for near, err := l.Accept(); err == nil; near, err = l.Accept() {
			go w.forward(near)
		}
	}()
	return w
}

func (w *wire) forward(near net.Conn) {
	defer w.forget(near)
	if !w.keep(near) {
		return
	}
	far, err := net.DialTimeout("tcp", w.to, time.Second)
	if err != nil {
		return
	}
	defer w.forget(far)
	if !w.keep(far) {
		return
	}
	go func() {
		defer w.forget(far)
		_, _ = io.Copy(far, near)
	}()
	_, _ = io.Copy(near, far)
}

func (w *wire) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.cut {
		w.conns[c] = true
	}
	return !w.cut
}

func (w *wire) forget(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c)
	_ = c.Close()
}

func (w *wire) become(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	if cut {
		for c := range w.conns {
			_ = c.Close()
		}
	}
}
