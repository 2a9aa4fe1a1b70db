package workers

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// threeNodes starts a JetStream cluster of three servers in this process.
func threeNodes(t *testing.T) (servers []*server.Server, urls string) {
	t.Helper()
	var routes []string
	var ports []int
	for range 3 {
		port := freePort(t)
		ports = append(ports, port)
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", port))
	}
	var all []string
	for i, port := range ports {
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("n%d", i+1), Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(),
			NoSigs: true, MaxPayload: 2 << 20,
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: port}, Routes: server.RoutesFromStr(strings.Join(routes, ",")),
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() {
			s.Shutdown()
			s.WaitForShutdown()
		})
		servers = append(servers, s)
	}
	for _, s := range servers {
		if !s.ReadyForConnections(deadline) {
			t.Fatal("a server is not ready")
		}
		all = append(all, s.ClientURL())
	}
	end := time.After(deadline)
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for !slices.ContainsFunc(servers, func(s *server.Server) bool { return s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == 3 }) {
		select {
		case <-ticker.C:
		case <-end:
			t.Fatal("the cluster has no leader")
		}
	}
	return servers, strings.Join(all, ",")
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// TestLaw3ClusterLosesNothing drains on three nodes while leaders step down, a server stops, and a drainer vanishes.
func TestLaw3ClusterLosesNothing(t *testing.T) {
	servers, urls := threeNodes(t)
	connect := func(name string) *nats.Conn {
		nc, err := nats.Connect(urls, nats.Name(name), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
			nats.PingInterval(2*time.Second), nats.RetryOnFailedConnect(true))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	b := &bench{t: t, nc: connect("test")}
	var err error
	if b.broker, err = queue.NewBroker(b.nc, queue.Options{Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	b.until("JetStream is set up", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := b.broker.Setup(ctx)
		if err != nil {
			t.Logf("set up: %v", err)
		}
		return err == nil
	})
	p := leaky("api", "100/s")
	p.Partitions = 2
	p.Retry = policy.Retry{MaxAttempts: 3}
	b.put(p)

	var ran seen
	drain := func(name string) *nats.Conn {
		nc := connect(name)
		d, err := New(nc, Options{Replicas: 3, Lease: 4 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		d.Handle("api", ran.handle)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := d.Run(ctx); err != nil {
				t.Logf("%s: %v", name, err)
			}
		}()
		t.Cleanup(func() {
			cancel()
			<-done
		})
		return nc
	}
	drain("d1")
	second := drain("d2")
	const jobs = 800
	for _, key := range []string{"a", "b"} {
		b.publish("api", key, 0, jobs)
	}
	b.until("jobs run", func() bool { return len(ran.all()) > 100 })

	stepDown := func(api string) {
		if _, err := b.nc.Request("$JS.API."+api, nil, 2*time.Second); err != nil {
			t.Logf("step down %s: %v", api, err)
		}
	}
	for _, stream := range []string{"PENSTOCK_api", "KV_PENSTOCK_DRAINERS", "KV_PENSTOCK_PARTITIONS"} {
		began := len(ran.all())
		stepDown("STREAM.LEADER.STEPDOWN." + stream)
		b.until("jobs go on after "+stream+"'s leader stepped down", func() bool { return len(ran.all()) > began+100 })
	}
	began := len(ran.all())
	stopped := slices.IndexFunc(servers, func(s *server.Server) bool { return s.JetStreamIsLeader() })
	servers[stopped].Shutdown()
	b.until("jobs go on with two servers", func() bool { return len(ran.all()) > began+100 })

	began = len(ran.all())
	second.Close() // it does not come back, and hands nothing over
	b.until("jobs go on with one drainer", func() bool { return len(ran.all()) > began+100 })
	b.empty("api")
	for _, key := range []queue.Key{"a", "b"} {
		got := ran.bodies(key)
		slices.Sort(got)
		if got = slices.Compact(got); len(got) != jobs {
			t.Errorf("bucket %s: %d of %d jobs ran", key, len(got), jobs)
		}
		var starts []time.Duration
		for _, job := range ran.all() {
			if job.Key == key {
				starts = append(starts, job.Started.Sub(ran.all()[0].Started))
			}
		}
		if why := exceeds(starts, 100, 1); why != "" {
			t.Errorf("law 2: bucket %s: %s", key, why)
		}
	}
	t.Logf("%d starts of %d jobs", len(ran.all()), 2*jobs)
}
