package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/algorithms/redisstore"
	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/kit/redistest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// The commands that Redis must allow its user, and the sentinels theirs, as in production.yaml.
// HELLO and AUTH are open to all. The scripts call the commands from TIME on; EVAL loads scripts
// that EVALSHA does not find.
const (
	serverRules = "~penstock:* +client|setname +evalsha +eval +time +mget +get +set +del +llen " +
		"+lindex +lrange +lset +ltrim +rpush +pexpire"
	databaseRule  = "+select"
	clusterRule   = "+cluster|slots +asking"
	sentinelRules = "+client|setname +sentinel|get-master-addr-by-name +sentinel|sentinels " +
		"+subscribe +ping"
	channelRules = "&+switch-master &+replica-reconf-done"
)

func TestPagesNameTheRightsInRedis(t *testing.T) {
	for _, name := range []string{"deploy/production.yaml", "docs/operate.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		found := strings.ReplaceAll(string(text), `\|`, "|")
		for _, rules := range []string{serverRules, databaseRule, clusterRule, sentinelRules,
			channelRules} {
			if !strings.Contains(found, rules) {
				t.Errorf("%s does not name %s", name, rules)
			}
		}
	}
}

func dial(t *testing.T, c config.Redis) (redis.UniversalClient, *redisstore.Client) {
	t.Helper()
	rdb, err := openRedis(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rdb.Close(); err != nil {
			t.Errorf("close the client: %v", err)
		}
	})
	return rdb, redisstore.NewClient(rdb, redisstore.Options{
		Prefix: c.Prefix, Timeout: waittest.Patience()})
}

func expectRefused(t *testing.T, c config.Redis, why string) {
	t.Helper()
	rdb, client := dial(t, c)
	if d, err := newBucket(client).Take(t.Context(), "key", 1); err == nil ||
		!strings.Contains(err.Error(), why) {
		t.Errorf("got %+v, %v, want an error with %q", d, err, why)
	}
	if err := rdb.Get(t.Context(), c.Prefix+":key").Err(); err == nil ||
		!strings.Contains(err.Error(), why) {
		t.Errorf("got %v, want an error with %q", err, why)
	}
}

var hourly = algorithms.Rate{Count: 1, Per: time.Hour}

func newBucket(c *redisstore.Client) *redisstore.Store[algorithms.TokenBucketState] {
	return redisstore.New(c, "bucket", algorithms.TokenBucket{Capacity: 10, Refill: hourly})
}

func useAll(t *testing.T, c *redisstore.Client) {
	t.Helper()
	log := algorithms.SlidingLog{Limit: 10, Window: hourly.Per}
	use(t, newBucket(c))
	use(t, redisstore.New(c, "leak", algorithms.LeakingBucket{Capacity: 10, Outflow: hourly}))
	use(t,
		redisstore.New(c, "fixed", algorithms.FixedWindow{Limit: 10, Window: 366 * 24 * time.Hour}))
	use(t,
		redisstore.New(c, "counter",
			algorithms.SlidingCounter{Limit: 10, Window: 366 * 24 * time.Hour}))
	use(t, redisstore.New(c, "log", log))
	group := redisstore.NewGroup(c, "group", redisstore.NewMember(c, "group", "log", log),
		redisstore.NewMember(c, "group", "bucket",
			algorithms.TokenBucket{Capacity: 20, Refill: hourly}))
	if d, _, err := group.Take(t.Context(), []string{"key", "key"}, 8); err != nil || !d.Allowed ||
		d.Remaining != 2 {
		t.Errorf("take from a group: %+v, %v", d, err)
	}
}

func use[S any](t *testing.T, s *redisstore.Store[S]) {
	t.Helper()
	if d, err := s.Take(t.Context(), "key", 7); err != nil || !d.Allowed || d.Remaining != 3 {
		t.Errorf("%T: take: %+v, %v", s.Rule(), d, err)
	}
	if err := s.Refund(t.Context(), "key", 2); err != nil {
		t.Errorf("%T: refund: %v", s.Rule(), err)
	}
	if d, err := s.TakeUpTo(t.Context(), "key", 9); err != nil || d.Granted != 5 {
		t.Errorf("%T: take up to 9: %+v, %v", s.Rule(), d, err)
	}
	if err := s.Refund(t.Context(), "key", 10); err != nil {
		t.Errorf("%T: refund: %v", s.Rule(), err)
	}
}

const (
	user     = "penstock"
	password = "open sesame"
)

func protect(t *testing.T, s *redistest.Server, rules string) *redis.Conn {
	t.Helper()
	rdb := s.Client()
	conn := rdb.Conn()
	t.Cleanup(func() {
		_ = conn.Close()
		_ = rdb.Close()
	})
	for _, command := range [][]any{setUser(rules), {"acl", "setuser", "default", "off"},
		{"config", "resetstat"}} {
		if err := conn.Do(t.Context(), command...).Err(); err != nil {
			t.Fatalf("%v: %v", command[:2], err)
		}
	}
	return conn
}

func setUser(rules string) []any {
	command := []any{"acl", "setuser", user, "on", ">" + password}
	for _, rule := range strings.Fields(rules) {
		command = append(command, rule)
	}
	return command
}

// expectUsed compares the commands of the rules with those that the servers have run since protect.
func expectUsed(t *testing.T, rules string, servers ...*redis.Conn) {
	t.Helper()
	used := make(map[string]bool)
	for _, conn := range servers {
		stats, err := conn.Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(stats) {
			name, counts, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
			if strings.HasPrefix(counts, "calls=") && !strings.HasPrefix(counts, "calls=0,") {
				used["+"+name] = true
			}
		}
	}
	for _, open := range []string{"+hello", "+config|resetstat"} {
		delete(used, open)
	}
	want := slices.DeleteFunc(strings.Fields(rules), func(rule string) bool {
		return rule[0] != '+'
	})
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(used)); !slices.Equal(got, want) {
		t.Errorf("used %s, want %s", got, want)
	}
}

func TestRedisSentinel(t *testing.T) {
	s := redistest.StartSentinel(t)
	sentinel := s.Client()
	defer sentinel.Close()
	master, replica := s.Master.Client(), s.Replica.Client()
	defer master.Close()
	defer replica.Close()
	ask := func(command ...any) *redis.Cmd {
		t.Helper()
		cmd := redis.NewCmd(t.Context(), command...)
		if err := sentinel.Process(t.Context(), cmd); err != nil {
			t.Fatalf("%v: %v", command[:2], err)
		}
		return cmd
	}
	ask(setUser(sentinelRules + " " + channelRules)...)
	const requirepass = "of the sentinel"
	ask("acl", "setuser", "default", "resetpass", ">"+requirepass)

	good := config.Redis{Addrs: []string{s.Addr()}, Prefix: "penstock", Master: s.MasterName()}
	expectRefused(t, good, "NOAUTH")
	good.SentinelPassword = password
	expectRefused(t, good, "WRONGPASS")
	good.SentinelPassword = requirepass
	_, client := dial(t, good)
	expectRemaining(t, newBucket(client), 9)

	good.SentinelUsername = user
	expectRefused(t, good, "WRONGPASS")
	good.SentinelPassword = password
	ask("acl", "log", "reset")
	_, client = dial(t, good)
	store := newBucket(client)
	expectRemaining(t, store, 8)

	eventually(t, "the replica knows of both decisions", func() bool {
		const key = "penstock:{bucket:key}"
		state, err := master.Get(t.Context(), key).Result()
		return err == nil && replica.Get(t.Context(), key).Val() == state
	})
	if n := cachedScripts(t, replica); n != "0" {
		t.Errorf("the replica has %s scripts before it decides", n)
	}
	s.Master.Stop()
	eventually(t, "the new master decides", func() bool {
		_, err := store.Peek(t.Context(), "key", 1) // no units are lost if the answer is
		return err == nil
	})
	expectRemaining(t, store, 7)
	if n := cachedScripts(t, replica); n != "1" {
		t.Errorf("the new master has %s scripts, want 1", n)
	}
	if denied, err := ask("acl", "log").Slice(); err != nil || len(denied) > 0 {
		t.Errorf("the sentinel denied %v, %v", denied, err)
	}
}

func expectRemaining(t *testing.T, s *redisstore.Store[algorithms.TokenBucketState], want int64) {
	t.Helper()
	if d, err := s.Take(t.Context(), "key", 1); err != nil || !d.Allowed || d.Remaining != want {
		t.Errorf("got %+v, %v; want %d to remain", d, err, want)
	}
}

func cachedScripts(t *testing.T, rdb *redis.Client) string {
	t.Helper()
	info, err := rdb.InfoMap(t.Context(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	return info["Memory"]["number_of_cached_scripts"]
}

func TestRedisCluster(t *testing.T) {
	cluster := redistest.StartCluster(t, 3)
	rules := serverRules + " " + clusterRule
	var nodes []*redis.Conn
	for _, s := range cluster.Nodes {
		nodes = append(nodes, protect(t, s, rules))
	}
	move(t, nodes)
	_, client := dial(t,
		config.Redis{Addrs: []string{cluster.Nodes[0].Addr()}, Cluster: true, Username: user,
			Password: password})
	useAll(t, client)
	store := newBucket(client)
	for key := range 50 {
		if d, err := store.Take(t.Context(), fmt.Sprint(key), 1); err != nil || d.Remaining != 9 {
			t.Errorf("take of key %d: %+v, %v", key, d, err)
		}
	}
	if d, err := store.Take(t.Context(), "moving", 1); err != nil || d.Remaining != 9 {
		t.Errorf("take of a key whose slot moves: %+v, %v", d, err)
	}
	expectUsed(t, rules, nodes...)
	for i, node := range nodes {
		if n, err := node.DBSize(t.Context()).Result(); err != nil || n == 0 {
			t.Errorf("node %d has %d keys, %v", i, n, err)
		}
	}
}

// move begins to move the slot of a new bucket's key.
func move(t *testing.T, nodes []*redis.Conn) {
	t.Helper()
	ask := func(node *redis.Conn, command ...any) string {
		t.Helper()
		said := redis.NewCmd(t.Context(), command...)
		if err := node.Process(t.Context(), said); err != nil {
			t.Fatalf("%v: %v", command, err)
		}
		return fmt.Sprint(said.Val())
	}
	slot := ask(nodes[0], "cluster", "keyslot", "penstock:{bucket:moving}")
	n, _ := strconv.Atoi(slot)
	owner := n * len(nodes) / 16384
	from, to := nodes[owner], nodes[(owner+1)%len(nodes)]
	ask(to, "cluster", "setslot", slot, "importing", ask(from, "cluster", "myid"))
	ask(from, "cluster", "setslot", slot, "migrating", ask(to, "cluster", "myid"))
	for _, node := range nodes {
		ask(node, "config", "resetstat")
	}
}

func TestKeysOfAMovingSlotOfARedisCluster(t *testing.T) {
	for _, test := range []struct{ name, rules, refused string }{
		{"with the rights", serverRules + " " + clusterRule, ""},
		{"without asking", serverRules + " +cluster|slots", "NOPERM"},
		{"without time", strings.ReplaceAll(serverRules, "+time", "") + " " + clusterRule,
			"can't run this command"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cluster := redistest.StartCluster(t, 2)
			var nodes []*redis.Conn
			for _, s := range cluster.Nodes {
				nodes = append(nodes, protect(t, s, test.rules))
			}
			rdb, _ := dial(t, config.Redis{Addrs: []string{cluster.Nodes[0].Addr()},
				Cluster: true, Username: user, Password: password})
			client := redisstore.NewClient(rdb, redisstore.Options{Prefix: "penstock",
				Timeout: time.Second})
			move(t, nodes)
			d, err := newBucket(client).Take(t.Context(), "moving", 1)
			switch {
			case test.refused == "":
				if err != nil || d.Remaining != 9 {
					t.Errorf("got %+v, %v", d, err)
				}
			case err == nil || !strings.Contains(err.Error(), test.refused):
				t.Errorf("got %+v, %v; want %s", d, err, test.refused)
			}
		})
	}
}

func TestAFullRedisWithoutEvictionSaysSo(t *testing.T) {
	s := redistest.Start(t, "--maxmemory-policy", "noeviction")
	rdb, client := dial(t, config.Redis{Addrs: []string{s.Addr()}, Prefix: "penstock"})
	store := newBucket(client)
	expectRemaining(t, store, 9)
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Take(t.Context(), "key", 1); err == nil ||
		!strings.Contains(err.Error(), "OOM") {
		t.Errorf("got %v, want an error with OOM", err)
	}
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	expectRemaining(t, store, 8)
}
