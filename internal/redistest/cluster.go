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

// Cluster is a Redis Cluster of masters without replicas.
type Cluster struct{ Nodes []*Server }

// StartCluster starts n masters with equal shares of the slots. They are killed when the test ends.
func StartCluster(t testing.TB, n int) *Cluster {
	t.Helper()
	c := &Cluster{}
	for range n {
		bus, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		c.Nodes = append(c.Nodes, Start(t, "--cluster-enabled", "yes", "--cluster-port", bus))
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
			first := c.Nodes[0]
			bus := first.args[len(first.args)-1]
			if err := rdb.Do(ctx, "cluster", "meet", "127.0.0.1", first.port, bus).Err(); err !=
				nil {
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
