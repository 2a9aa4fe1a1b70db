package workers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/pace/pacetest"
)

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
			ServerName: fmt.Sprintf("n%d", i+1),
			Host:       "127.0.0.1",
			Port:       -1,
			JetStream:  true,
			StoreDir:   t.TempDir(),
			NoSigs:     true,
			MaxPayload: 2 << 20,
			Cluster:    server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: port},
			Routes:     server.RoutesFromStr(strings.Join(routes, ",")),
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
	for !slices.ContainsFunc(servers, func(s *server.Server) bool {
		return s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == 3
	}) {
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
	port, err := proctest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

type ownership struct{ partitions atomic.Int64 }

func (o *ownership) owned(e queue.Event) { o.partitions.Store(e.Value) }

func (b *bench) leader(stream string) string {
	m, err := b.nc.Request("$JS.API.STREAM.INFO."+stream, nil, 2*time.Second)
	if err != nil {
		return ""
	}
	var info struct{ Cluster struct{ Leader string } }
	if err := json.Unmarshal(m.Data, &info); err != nil {
		b.t.Fatal(err)
	}
	return info.Cluster.Leader
}

func (b *bench) stepDown(stream string) {
	b.t.Helper()
	var before, now string
	b.until("stream "+stream+" has a leader", func() bool {
		before = b.leader(stream)
		return before != ""
	})
	b.until("another server leads "+stream, func() bool {
		if now = b.leader(stream); now == before {
			if _, err := b.nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil,
				2*time.Second); err != nil {
				b.t.Logf("step down %s: %v", stream, err)
			}
		}
		return now != "" && now != before
	})
}

func connectAs(t *testing.T, name, urls string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(urls, nats.Name(name), nats.MaxReconnects(-1),
		nats.ReconnectWait(50*time.Millisecond),
		nats.PingInterval(2*time.Second), nats.RetryOnFailedConnect(true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func newClusterBench(t *testing.T, urls string) *bench {
	t.Helper()
	b := &bench{t: t, nc: connectAs(t, "test", urls)}
	var err error
	if b.broker, err = jet.NewBroker(b.nc, jet.Options{Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	b.until("JetStream is set up", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), deadline/4)
		defer cancel()
		err := b.broker.Setup(ctx)
		if err != nil {
			t.Logf("set up: %v", err)
		}
		return err == nil
	})
	return b
}

// TestLaw3ClusterLosesNothing drains on three nodes while leaders step down, a server stops, a
// drainer leaves, and another one joins and crashes.
func TestLaw3ClusterLosesNothing(t *testing.T) {
	const (
		jobs  = 2500
		lease = 4 * time.Second
		// standstill is the longest pause of a bucket: 8 s for writes to stall when a leader is
		// lost, plus the lease that expires before another drainer takes over.
		standstill = 8*time.Second + lease
	)
	servers, urls := threeNodes(t)
	connect := func(name string) *nats.Conn { return connectAs(t, name, urls) }
	b := newClusterBench(t, urls)
	p := leaky("api", "100/s")
	p.Partitions = 2
	p.Retry = policy.Retry{MaxAttempts: 3}
	b.put(p)

	var ran seen
	drain := func(name string) (nc *nats.Conn, owns *ownership, stop func() error) {
		nc, owns = connect(name), &ownership{}
		d, err := New(nc, Options{Replicas: 3, Lease: lease,
			Sink: on(jet.EventOwned, owns.owned)})
		if err != nil {
			t.Fatal(err)
		}
		d.Handle("api", ran.handle)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		stop = sync.OnceValue(func() error {
			cancel()
			return <-done
		})
		t.Cleanup(func() { _ = stop() })
		return nc, owns, stop
	}
	shares := func(drainers ...*ownership) {
		t.Helper()
		b.until("each drainer owns a partition", func() bool {
			return !slices.ContainsFunc(drainers, func(o *ownership) bool {
				return o.partitions.Load() != 1
			})
		})
	}
	goesOn := func(after string) {
		t.Helper()
		began := len(ran.all())
		b.until("jobs go on after "+after, func() bool { return len(ran.all()) > began+100 })
	}
	_, owns1, stop1 := drain("d1")
	_, owns2, stop2 := drain("d2")
	for _, key := range []string{"a", "b"} {
		b.publish("api", key, 0, jobs)
	}
	shares(owns1, owns2)
	for _, stream := range []string{"PENSTOCK_api", "KV_PENSTOCK_DRAINERS",
		"KV_PENSTOCK_PARTITIONS"} {
		b.stepDown(stream)
		goesOn(stream + "'s leader stepped down")
	}
	stopped := slices.IndexFunc(servers, func(s *server.Server) bool {
		return s.JetStreamIsLeader()
	})
	servers[stopped].Shutdown()
	goesOn("a server stopped")

	shares(owns1, owns2)
	if err := stop2(); err != nil {
		t.Errorf("a drainer that left: %v", err)
	}
	goesOn("a drainer left")
	third, owns3, stop3 := drain("d3")
	shares(owns1, owns3)
	goesOn("a drainer joined")
	third.Close()
	goesOn("a drainer vanished")
	if err := stop3(); err == nil {
		t.Error("a drainer without a connection ended in order")
	}
	if left := 2*jobs - len(ran.all()); left <= 0 {
		t.Fatal("the queue was empty before everything had happened")
	}
	// A job acknowledged during a change of leader may stay until a server's periodic scan of
	// acknowledgements, every 2 to 2.5 minutes.
	waittest.Within(t, 3*time.Minute, "the queue is empty", func() bool {
		n, err := b.broker.Depth(t.Context(), "api")
		return err == nil && n == 0
	})
	if err := stop1(); err != nil {
		t.Errorf("the last drainer: %v", err)
	}

	all := ran.all()
	for _, key := range []queue.Key{"a", "b"} {
		runs := map[string]int{}
		var starts []time.Duration
		for _, job := range all {
			if job.Key == key {
				runs[string(job.Body)]++
				starts = append(starts, job.Started.Sub(all[0].Started))
			}
			if job.Attempt != 1 {
				t.Errorf("job %s began its attempt %d, but none failed", job.ID, job.Attempt)
			}
		}
		if len(runs) != jobs {
			t.Errorf("bucket %s: %d of %d jobs ran", key, len(runs), jobs)
		}
		if why := pacetest.Exceeds(starts, 100, 1); why != "" {
			t.Errorf("law 2: bucket %s: %s", key, why)
		}
		var longest time.Duration
		for i := range starts[1:] {
			longest = max(longest, starts[i+1]-starts[i])
		}
		if longest > standstill {
			t.Errorf("bucket %s started nothing for %v, want at most %v", key, longest, standstill)
		}
		last := -1
		for _, body := range ran.bodies(key) {
			n, err := strconv.Atoi(body)
			if err != nil {
				t.Fatal(err)
			}
			if runs[body] > 1 {
				continue // a crash puts it behind later jobs
			}
			if n < last {
				t.Errorf("law 4: bucket %s: job %d after job %d", key, n, last)
			}
			last = n
		}
		t.Logf("bucket %s: %d starts of %d jobs, longest standstill %v", key, len(starts), jobs,
			longest)
	}
}
