package redistest

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const slots = 16384

// Cluster is a Redis Cluster of masters.
type Cluster struct{ Nodes []*Server }

// StartCluster starts n masters with equal shares of the slots. They are killed when the test ends.
func StartCluster(t testing.TB, n int) *Cluster {
	t.Helper()
	c := &Cluster{}
	for range n {
		c.Nodes = append(c.Nodes, startNode(t))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i, node := range c.Nodes {
		rdb := node.Client()
		defer rdb.Close()
		if err := rdb.ClusterAddSlotsRange(ctx, i*slots/n, (i+1)*slots/n-1).Err(); err != nil {
			t.Fatalf("give slots to node %d: %v", i, err)
		}
		if i > 0 {
			if err := c.meet(ctx, rdb); err != nil {
				t.Fatalf("introduce node %d: %v", i, err)
			}
		}
	}
	for i, node := range c.Nodes {
		rdb := node.Client()
		defer rdb.Close()
		for !formed(ctx, rdb, n) {
			select {
			case <-ctx.Done():
				t.Fatalf("node %d has not joined the cluster in %v\n%s", i, patience,
					node.log.String())
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return c
}

func startNode(t testing.TB) *Server {
	t.Helper()
	bus, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return Start(t, "--cluster-enabled", "yes", "--cluster-port", bus)
}

func (c *Cluster) meet(ctx context.Context, rdb *redis.Client) error {
	first := c.Nodes[0]
	bus := first.args[len(first.args)-1]
	return rdb.Do(ctx, "cluster", "meet", "127.0.0.1", first.port, bus).Err()
}

// StartReplica starts a synchronized replica of a master, which takes over some seconds after the
// master has failed. It is killed when the test ends.
func (c *Cluster) StartReplica(t testing.TB, of *Server) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	master := of.Client()
	defer master.Close()
	id, err := master.Do(ctx, "cluster", "myid").Text()
	if err != nil {
		t.Fatal(err)
	}
	if err := master.ConfigSet(ctx, "repl-diskless-sync-delay", "0").Err(); err != nil {
		t.Fatal(err)
	}
	replica := startNode(t)
	rdb := replica.Client()
	defer rdb.Close()
	if err := c.meet(ctx, rdb); err != nil {
		t.Fatal(err)
	}
	err = replica.poll(ctx, func() bool {
		return formed(ctx, rdb, len(c.Nodes)) &&
			rdb.Do(ctx, "cluster", "replicate", id).Err() == nil
	})
	if err != nil {
		t.Fatalf("start a replica: %v", err)
	}
	// Only a synchronized replica that the other masters know can take over.
	for _, node := range append(c.Nodes, replica) {
		rdb := node.Client()
		defer rdb.Close()
		if err := rdb.ConfigSet(ctx, "cluster-node-timeout", "2000").Err(); err != nil {
			t.Fatal(err)
		}
		err := replica.poll(ctx, func() bool {
			nodes, err := rdb.ClusterNodes(ctx).Result()
			return err == nil && strings.Contains(nodes, "slave "+id) && replica.synchronized(ctx)
		})
		if err != nil {
			t.Fatalf("start a replica: %v", err)
		}
	}
	return replica
}

func formed(ctx context.Context, rdb *redis.Client, nodes int) bool {
	info, err := rdb.ClusterInfo(ctx).Result()
	return err == nil && strings.Contains(info, "cluster_state:ok") &&
		strings.Contains(info, "cluster_size:"+strconv.Itoa(nodes)+"\r")
}

// Client returns a new client, which the caller closes. Its calls end with their contexts.
func (c *Cluster) Client() *redis.ClusterClient {
	addrs := make([]string, 0, len(c.Nodes))
	for _, node := range c.Nodes {
		addrs = append(addrs, node.addr)
	}
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true})
}
