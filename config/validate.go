package config

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/yamlfile"
	"github.com/penstock-mq/penstock/policy"
)

var (
	prefixPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)
	hostPattern   = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
	policyPattern = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)
)

// leastStore is the smallest store that leaves room for what processes must write to go on.
const leastStore = 16 * policy.MiB

// validate reports what is wrong with a configuration whose values could be read. Policies check themselves.
func validate(c Config) []yamlfile.Problem {
	var problems []yamlfile.Problem
	add := func(place, format string, args ...any) {
		problems = append(problems, yamlfile.Problem{Place: place, Reason: fmt.Sprintf(format, args...)})
	}
	oneOf := func(place, value string, words ...string) {
		if !slices.Contains(words, value) {
			add(place, "%q: want %s", value, strings.Join(words, " or "))
		}
	}
	between := func(place string, d, least, most time.Duration) {
		if d < least || d > most {
			add(place, "must be %s to %s, not %s", algorithms.FormatDuration(least), algorithms.FormatDuration(most),
				algorithms.FormatDuration(d))
		}
	}
	address := func(place, value string) {
		if value != "" {
			if reason := badAddress(value); reason != "" {
				add(place, "%q: %s", value, reason)
			}
		}
	}

	address("http.listen", c.HTTP.Listen)
	between("http.lame_duck", c.HTTP.LameDuck, 0, 5*time.Minute)
	for _, name := range c.HTTP.Hosts {
		if !hostPattern.MatchString(name) {
			add("http.hosts", "%.80q: want a name such as penstock.example.com or *.example.com, without a port", name)
		}
	}
	connections := func(place string, n int) {
		if n < 1 || n > 1_000_000 {
			add(place, "must be 1 to 1000000, not %d", n)
		}
	}
	connections("http.max_connections", c.HTTP.MaxConnections)
	connections("http.max_per_client", c.HTTP.MaxPerClient)
	if reason := badServers(c.NATS.URL); reason != "" {
		add("nats.url", "%s", reason)
	}
	if !prefixPattern.MatchString(c.NATS.Prefix) {
		add("nats.prefix", "%q: want 1 to 32 of a-z, 0-9, - and _, beginning with a letter or digit", c.NATS.Prefix)
	}
	switch n := c.NATS.Replicas; {
	case n < 1 || n > 5:
		add("nats.replicas", "must be 1 to 5, not %d", n)
	case n > 1 && c.NATS.URL == "":
		add("nats.replicas", "must be 1, not %d, with the embedded server: it is a single one; give nats.url", n)
	}
	if c.NATS.Embedded.Dir == "" {
		add("nats.embedded.dir", "must not be empty")
	}
	address("nats.embedded.listen", c.NATS.Embedded.Listen)
	if !c.NATS.Embedded.SyncAlways {
		between("nats.embedded.sync", c.NATS.Embedded.Sync, time.Millisecond, time.Hour)
	}
	if s := c.NATS.Embedded.MaxStore; s != 0 && s < leastStore {
		add("nats.embedded.max_store", "must be at least %s, not %s", leastStore, s)
	}
	oneOf("state.store", c.State.Store, "memory", "redis")
	problems = append(problems, validateRedis(c.State.Redis)...)
	between("drain.lease", c.Drain.Lease, time.Second, 10*time.Minute)
	for _, name := range c.Drain.Policies {
		if !policyPattern.MatchString(name) {
			add("drain.policies", "%q: want names of policies: 1 to 32 of a-z, 0-9 and -", name)
		}
	}
	oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	oneOf("log.format", c.Log.Format, "text", "json")
	between("grace", c.Grace, 0, 24*time.Hour)
	if !policyPattern.MatchString(c.Set) {
		add("set", "%q: want 1 to 32 of a-z, 0-9 and -", c.Set)
	}
	return problems
}

// badAddress says what is wrong with an address to listen on, nothing when it can be used.
func badAddress(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return "want host:port"
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "the port must be 0 to 65535"
	}
	return ""
}

// badServers says what is wrong with a list of NATS URLs. It quotes none of them, because they may hold passwords.
func badServers(servers string) string {
	if servers == "" {
		return ""
	}
	for i, server := range strings.Split(servers, ",") {
		server = strings.TrimSpace(server)
		if !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		u, err := url.Parse(server)
		if err != nil || u.Hostname() == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
			return fmt.Sprintf("server %d of the list: want nats://HOST:PORT, or tls, ws or wss", i+1)
		}
	}
	return ""
}

// validateRedis reports what is wrong with the settings of Redis. Passwords are not quoted.
func validateRedis(r Redis) []yamlfile.Problem {
	var problems []yamlfile.Problem
	add := func(field, format string, args ...any) {
		problems = append(problems, yamlfile.Problem{Place: "state.redis." + field, Reason: fmt.Sprintf(format, args...)})
	}
	if len(r.Addrs) == 0 {
		add("addrs", "must not be empty")
	}
	for _, address := range r.Addrs {
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || badAddress(":"+port) != "" {
			add("addrs", "%q: want host:port", address)
		}
	}
	if strings.ContainsAny(r.Prefix, "{}") || len(r.Prefix) > 64 || r.Prefix == "" {
		add("prefix", "%.80q: want 1 to 64 bytes, none of them { or }", r.Prefix)
	}
	if r.Cluster && r.Master != "" {
		add("master_name", "stands beside cluster: sentinels know no cluster")
	}
	if !r.Cluster && r.Master == "" && len(r.Addrs) > 1 {
		add("addrs", "are several: say cluster: true, or give master_name if they are sentinels")
	}
	switch {
	case r.DB < 0:
		add("db", "must not be negative")
	case r.DB > 0 && r.Cluster:
		add("db", "must be 0, not %d, in a cluster", r.DB)
	}
	if (r.TLS.Cert == "") != (r.TLS.Key == "") {
		add("tls", "needs both cert and key, or neither")
	}
	if r.Timeout < time.Millisecond || r.Timeout > 2*time.Second {
		add("timeout", "must be 1ms to 2s, not %s", algorithms.FormatDuration(r.Timeout))
	}
	return problems
}
