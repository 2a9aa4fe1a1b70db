package jet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/internal/queue/kv"
	"github.com/penstock-mq/penstock/queue"
)

type cluster struct {
	t       testing.TB
	options []*server.Options
	servers []*server.Server
	broker  *Broker
}

func newCluster(t testing.TB, syncAlways bool) *cluster {
	t.Helper()
	c := &cluster{t: t, servers: make([]*server.Server, 3)}
	var routes []string
	for i := range c.servers {
		clients, peers := freePort(t), freePort(t)
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", peers))
		c.options = append(c.options, &server.Options{
			ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: clients, JetStream: true,
			StoreDir: t.TempDir(), NoSigs: true, MaxPayload: 2 << 20,
			SyncInterval: 10 * time.Second, SyncAlways: syncAlways,
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: peers},
		})
	}
	var urls []string
	for i, o := range c.options {
		o.Routes = server.RoutesFromStr(strings.Join(routes, ","))
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", o.Port))
		c.start(i)
	}
	t.Cleanup(func() {
		for i := range c.servers {
			c.stop(i)
		}
	})
	nc, err := nats.Connect(strings.Join(urls, ","), nats.MaxReconnects(-1),
		nats.ReconnectWait(50*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if c.broker, err = NewBroker(nc, Options{Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "JetStream is set up", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience()/4)
		defer cancel()
		return c.broker.Setup(ctx) == nil
	})
	return c
}

func freePort(t testing.TB) int {
	t.Helper()
	port, err := proctest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func (c *cluster) start(i int) {
	c.t.Helper()
	s, err := server.NewServer(c.options[i].Clone())
	if err != nil {
		c.t.Fatal(err)
	}
	s.Start()
	c.servers[i] = s
	if !s.ReadyForConnections(natstest.Patience) {
		c.t.Fatal("a server is not ready")
	}
}

func (c *cluster) stop(i int) {
	c.servers[i].Shutdown()
	c.servers[i].WaitForShutdown()
}

func (c *cluster) follower(stream string) int {
	c.t.Helper()
	for i := range c.servers {
		if !c.servers[i].JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream) {
			return i
		}
	}
	c.t.Fatal("no server follows")
	return 0
}

// TestAServerThatCameBackShowsNoOldState opens backlogs while a server catches up with added and
// deleted jobs, and checks that each sweep delivers exactly the stored jobs.
func TestAServerThatCameBackShowsNoOldState(t *testing.T) {
	c := newCluster(t, false)
	b := c.broker
	apply(t, b, paced("stripe", 100_000, 1))
	const stream, some, many = "PENSTOCK_stripe", 4000, 20_000
	body := make([]byte, 1024)
	fill := func(key queue.Key, n int) {
		t.Helper()
		for i := range n {
			var err error
			if i%1000 == 999 {
				_, err = request(t, b.nc, b.names.Jobs("stripe", key), string(body), nil)
			} else {
				err = b.nc.Publish(b.names.Jobs("stripe", key), body)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	write := func(prefix, value string, from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			key := fmt.Sprintf("%s.0.%d", prefix, i)
			waittest.Until(t, "a record is written", func() bool {
				return b.tables.Attempts.Set(natstest.Context(t), key, []byte(value), 0) == nil
			})
		}
	}
	write("stripe", "old", 0, 200)
	fill("goes", some)
	fill("stays", some)
	back := c.follower(stream)
	c.stop(back)
	waittest.Until(t, "jobs go", func() bool {
		_, err := b.js.Purge(natstest.Context(t), stream, b.names.Queue("stripe", 0, "goes"), 0)
		return err == nil
	})
	write("stripe", "new", 100, 300)
	write("other", string(body), 0, 500)
	fill("stays", many)
	var info *jetstream.StreamInfo
	answered := func(ask func() error) {
		t.Helper()
		waittest.Until(t, "a leader answers", func() bool {
			err := ask()
			if err != nil && !errors.Is(err, ErrUnavailable) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	answered(func() (err error) {
		info, err = b.js.StreamInfo(natstest.Context(t), stream, "")
		return jsapi.Translate(err)
	})
	c.start(back)
	for range 20 {
		var records []kv.Record
		answered(func() (err error) {
			records, err = b.tables.Attempts.List(natstest.Context(t), "stripe.0.*")
			return err
		})
		var now, synced int
		for _, r := range records {
			if string(r.Value) == "new" {
				now++
			}
		}
		if len(records) != 300 || now != 200 {
			t.Errorf("listed %d records, %d of them new; there are 300, and 200", len(records), now)
		}
		answered(func() error {
			ctx, cancel := context.WithCancel(natstest.Context(t))
			defer cancel()
			now, synced = 0, 0
			values := map[string]string{}
			changed := func(r kv.Record) { values[r.Key] = string(r.Value) }
			return b.tables.Attempts.Watch(ctx, "stripe.0.*", changed, func() {
				for _, value := range values {
					if synced++; value == "new" {
						now++
					}
				}
				cancel()
			})
		})
		if synced != 300 || now != 200 {
			t.Errorf("watched %d records, %d of them new; there are 300, and 200", synced, now)
		}
	}
	abandoned, cancel := context.WithCancel(t.Context())
	cancel()
	for epoch, sweeps := uint64(1), 0; sweeps < 4; epoch++ {
		l := &opened{}
		waittest.Until(t, "the backlog is opened", func() bool {
			var err error
			o := BacklogOptions{Policy: "stripe", Partitions: 1, Epoch: epoch}
			l.Backlog, err = b.OpenBacklog(natstest.Context(t), o)
			return err == nil
		})
		l.until(t, "the sweep ends", func() bool { return l.swept || l.broken != nil })
		if l.broken != nil { // a pull met no leader; the owner would reopen it
			t.Logf("epoch %d: %v", epoch, l.broken)
			_ = l.Close(abandoned)
			continue
		}
		sweeps++
		stored, gone := 0, 0
		for _, job := range l.take() {
			if stored++; job.Key != "stays" {
				gone++
			}
		}
		if uint64(stored) != info.State.Msgs || gone > 0 {
			t.Errorf("epoch %d: %d jobs came, %d of them gone; stored are %d",
				epoch, stored, gone, info.State.Msgs)
		}
		_ = l.Close(abandoned)
	}
}
