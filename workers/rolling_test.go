package workers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/queue"
)

// TestARollingRestartRunsNoJobTwice restarts a cluster's servers one by one under a queue of
// waiting jobs, while two drainers run. Each restart breaks backlogs, which are read again from
// servers that have just returned. No process ends, so no job may run twice.
func TestARollingRestartRunsNoJobTwice(t *testing.T) {
	const (
		jobs  = 20_000
		lease = 15 * time.Second
	)
	var routes, urls []string
	var options []*server.Options
	for i := range 3 {
		clients, peers := freePort(t), freePort(t)
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", peers))
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", clients))
		options = append(options, &server.Options{
			ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: clients, JetStream: true,
			StoreDir: t.TempDir(), NoSigs: true, MaxPayload: 2 << 20,
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: peers},
		})
	}
	servers := make([]*server.Server, 3)
	start := func(i int) {
		t.Helper()
		options[i].Routes = server.RoutesFromStr(strings.Join(routes, ","))
		s, err := server.NewServer(options[i].Clone())
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		servers[i] = s
		if !s.ReadyForConnections(deadline) {
			t.Fatal("a server is not ready")
		}
	}
	stop := func(i int) {
		servers[i].Shutdown()
		servers[i].WaitForShutdown()
	}
	for i := range servers {
		start(i)
		t.Cleanup(func() { stop(i) })
	}
	all := strings.Join(urls, ",")
	b := newClusterBench(t, all)
	p := leaky("api", "50/s")
	p.Partitions, p.Capacity = 2, jobs
	b.put(p)
	keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	producer := b.broker.NewProducer(jet.ProducerOptions{})
	body := make([]byte, 512)
	for i := range jobs {
		subject := b.broker.Names().Jobs("api", queue.Key(keys[i%len(keys)]))
		if i%1000 == 999 {
			s := jet.Submission{Policy: "api", Key: "a", Body: body}
			if _, err := producer.Publish(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		} else if err := b.nc.Publish(subject, body); err != nil {
			t.Fatal(err)
		}
	}
	var ran seen
	for i := range 2 {
		d, err := New(connectAs(t, fmt.Sprintf("d%d", i), all), Options{Replicas: 3, Lease: lease})
		if err != nil {
			t.Fatal(err)
		}
		d.Handle("api", ran.handle)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			<-ended
		})
	}
	goesOn := func(after string) {
		t.Helper()
		began := len(ran.all())
		b.until("jobs go on after "+after, func() bool { return len(ran.all()) > began+400 })
	}
	goesOn("the start")
	for i := range servers {
		stop(i)
		goesOn("a server stopped")
		start(i)
		goesOn("a server came back")
		b.until("everybody has caught up", func() bool {
			return !slices.ContainsFunc(servers, func(s *server.Server) bool {
				return !s.JetStreamIsCurrent()
			})
		})
	}
	runs := map[string]int{}
	for _, job := range ran.all() {
		if runs[job.ID]++; runs[job.ID] == 2 {
			t.Errorf("job %s ran twice", job.ID)
		}
		if job.Attempt != 1 {
			t.Errorf("job %s began its attempt %d, but none failed", job.ID, job.Attempt)
		}
	}
	t.Logf("%d starts of %d jobs", len(ran.all()), len(runs))
}
