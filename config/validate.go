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
	"github.com/penstock-mq/penstock/internal/admission/outbound"
	"github.com/penstock-mq/penstock/internal/base/nearest"
	"github.com/penstock-mq/penstock/internal/base/strict"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/server/guard"
	"github.com/penstock-mq/penstock/internal/server/installation"
	"github.com/penstock-mq/penstock/internal/server/natsconn"
	"github.com/penstock-mq/penstock/policy"
)

var hostPattern = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

const leastMemory = policy.MiB

// room for the records that processes need
const leastStore = 16 * policy.MiB

// Policies validate themselves.
type checker struct{ *strict.File }

func (found checker) config(c Config) {
	found.ofHTTP(c.HTTP)
	found.ofEnvoy(c.Envoy, c.HTTP)
	for i, o := range c.Outbound {
		found.ofOutbound(fmt.Sprintf("outbound[%d]", i), o, c)
	}
	found.ofNATS(c.NATS)
	found.oneOf("state.store", c.State.Store, "memory", "redis")
	found.ofRedis(c.State.Redis)
	found.between("drain.lease", c.Drain.Lease, time.Second, 10*time.Minute)
	if m := c.Drain.Memory; m != 0 && m < leastMemory {
		found.Add("drain.memory", "must be at least %s, not %s", leastMemory, m)
	}
	for i, name := range c.Drain.Policies {
		if !policy.IsName(name) {
			found.Add(fmt.Sprintf("drain.policies[%d]", i),
				"%q: want policy names, 1 to 32 of a-z, 0-9 and -", name)
		}
	}
	found.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	found.oneOf("log.format", c.Log.Format, "text", "json")
	found.between("grace", c.Grace, 0, 24*time.Hour)
	if err := policy.CheckSet(c.Set); err != nil {
		found.Add("set", "%v", err)
	}
}

func (p checker) oneOf(place, value string, words ...string) {
	if !slices.Contains(words, value) {
		p.Add(place, "%q: want %s%s", value, strings.Join(words, " or "),
			nearest.Hint(value, words))
	}
}

func (p checker) between(place string, d, least, most time.Duration) {
	if d < least || d > most {
		p.Add(place, "must be %s to %s, not %s", algorithms.FormatDuration(least),
			algorithms.FormatDuration(most), algorithms.FormatDuration(d))
	}
}

func (p checker) address(place, value string) {
	if value != "" {
		if reason := badAddress(value); reason != "" {
			p.Add(place, "%q: %s", value, reason)
		}
	}
}

// listener checks an address, and the access to a good one.
func (p checker) listener(place string, o guard.Options) {
	p.address(place+".listen", o.Listen)
	field, err := o.Check()
	if err != nil && (field != "listen" || badAddress(o.Listen) == "") {
		p.Add(place+"."+field, "%v", err)
	}
}

func (p checker) connections(place string, n int) {
	if n < 1 || n > 1_000_000 {
		p.Add(place, "must be 1 to 1000000, not %d", n)
	}
}

func (p checker) ofHTTP(h HTTP) {
	p.listener("http", h.Guard())
	p.between("http.lame_duck", h.LameDuck, 0, 5*time.Minute)
	for i, name := range h.Hosts {
		if !hostPattern.MatchString(name) {
			p.Add(fmt.Sprintf("http.hosts[%d]", i),
				"%.80q: want a name such as penstock.example.com or *.example.com, without a port",
				name)
		}
	}
	p.connections("http.max_connections", h.MaxConnections)
	p.connections("http.max_per_client", h.MaxPerClient)
}

func (p checker) ofEnvoy(e Envoy, h HTTP) {
	access := e.Guard(h)
	access.TLS = guard.Files{} // http.tls, which is checked there
	p.listener("envoy", access)
	switch {
	case e.Listen != "" && len(e.Files) == 0:
		p.Add("envoy.listen", "requires envoy.files, which define the limits")
	case e.Listen == "" && len(e.Files) > 0:
		p.Add("envoy.files", "requires envoy.listen, the address for gateways")
	}
	p.oneOf("envoy.on_store_error", e.OnStoreError, string(policy.Open), string(policy.Closed),
		string(policy.Local))
}

func (p checker) ofOutbound(place string, o Outbound, c Config) {
	if o.Listen == "" {
		p.Add(place+".listen", "is missing")
	}
	access := o.Guard(c.HTTP)
	access.Named = place
	p.listener(place, access)
	if len(o.Routes) == 0 {
		p.Add(place+".routes", "is missing: want a list of routes")
	}
	led := map[string]int{}
	for i, r := range o.Routes {
		from := strings.ToLower(r.Host) + " " + r.Prefix + r.Path
		if first, ok := led[from]; ok {
			p.Add(fmt.Sprintf("%s.routes[%d]", place, i),
				"never gets a request: all go to routes[%d], of the same host and path", first)
		} else {
			led[from] = i
		}
		r.Check(func(field, format string, args ...any) {
			p.Add(fmt.Sprintf("%s.routes[%d].%s", place, i, field), format, args...)
		})
		if slices.ContainsFunc(c.Policies, func(known policy.Policy) bool {
			return known.Name == r.Policy && !known.Paced()
		}) {
			p.Add(fmt.Sprintf("%s.routes[%d].policy", place, i),
				"%q cannot pace calls: want a leaking bucket with a queue", r.Policy)
		}
	}
}

// doubts compares names with the policies of the file.
func (c Config) doubts() (doubts []string) {
	known, names := inforce.Entries{}, []string{}
	for _, p := range c.Policies {
		known[p.Name] = &inforce.Entry{Policy: p.WithDefaults()}
		names = append(names, p.Name)
	}
	add := func(format string, args ...any) {
		doubts = append(doubts, fmt.Sprintf(format, args...))
	}
	for i, o := range c.Outbound {
		for j := range o.Routes {
			for _, f := range outbound.Faults(o.Routes[j:j+1], known) {
				add("outbound[%d].routes[%d].%s: %s", i, j, f.Field, f.Reason)
			}
		}
	}
	for i, p := range c.Policies {
		if p.Callbacks != "" && known[p.Callbacks] == nil {
			add("policies[%d].callbacks: jobs with a callback are refused until there is a policy "+
				"%q%s", i, p.Callbacks, nearest.Hint(p.Callbacks, names))
		}
	}
	for i, name := range c.Drain.Policies {
		if len(names) > 0 && known[name] == nil {
			add("drain.policies[%d]: this file has no policy %q%s", i, name,
				nearest.Hint(name, names))
		}
	}
	return doubts
}

func (p checker) ofNATS(n NATS) {
	if reason := badServers(n.URL); reason != "" {
		p.Add("nats.url", "%s", reason)
	}
	if err := installation.CheckPrefix(n.Prefix); err != nil {
		p.Add("nats.prefix", "%v", err)
	}
	if err := installation.CheckDomain(n.Domain, n.URL); err != nil {
		p.Add("nats.domain", "%v", err)
	}
	if n.Replicas > 1 && n.URL == "" {
		p.Add("nats.replicas", "must be 1, not %d, with the embedded server, which is a single "+
			"server: set nats.url for a cluster", n.Replicas)
	} else if err := installation.CheckReplicas(n.Replicas); err != nil {
		p.Add("nats.replicas", "%v", err)
	}
	if n.Embedded.Dir == "" {
		p.Add("nats.embedded.dir", "must not be empty")
	}
	if err := n.Credentials.Check(); err != nil {
		p.Add("nats", "%v", err)
	} else if n.URL == "" && n.Credentials != (natsconn.Credentials{}) {
		p.Add("nats", "has credentials but no url")
	}
	if n.URL == "" {
		p.listener("nats.embedded", n.Embedded.Guard())
	} else {
		p.address("nats.embedded.listen", n.Embedded.Listen)
	}
	if !n.Embedded.Sync.Always {
		p.between("nats.embedded.sync", n.Embedded.Sync.Every, time.Millisecond, time.Hour)
	}
	if s := n.Embedded.MaxStore; s != 0 && s < leastStore {
		p.Add("nats.embedded.max_store", "must be at least %s, not %s", leastStore, s)
	}
}

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

// URLs are not quoted, since they may hold passwords.
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
		if err != nil || u.Hostname() == "" || u.Port() != "" && badAddress(u.Host) != "" ||
			!slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
			return fmt.Sprintf("server %d of the list: want nats://HOST:PORT (or tls, ws, wss)",
				i+1)
		}
	}
	return ""
}

// Passwords are not quoted.
func (p checker) ofRedis(r Redis) {
	add := func(field, format string, args ...any) {
		p.Add("state.redis."+field, format, args...)
	}
	if len(r.Addrs) == 0 {
		add("addrs", "must not be empty")
	}
	for i, address := range r.Addrs {
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" ||
			badAddress(":"+port) != "" {
			add(fmt.Sprintf("addrs[%d]", i), "%q: want host:port", address)
		}
	}
	if strings.ContainsAny(r.Prefix, "{}") || len(r.Prefix) > 64 || r.Prefix == "" {
		add("prefix", "%.80q: want 1 to 64 bytes without { and }", r.Prefix)
	}
	if r.Cluster && r.Master != "" {
		add("master_name", "cannot be combined with cluster: sentinels know no cluster")
	}
	if !r.Cluster && r.Master == "" && len(r.Addrs) > 1 {
		add("addrs", "are several: set cluster: true, or master_name if they are sentinels")
	}
	switch {
	case r.DB < 0:
		add("db", "must not be negative")
	case r.DB > 0 && r.Cluster:
		add("db", "must be 0, not %d, in a cluster", r.DB)
	}
	if (r.TLS.Cert == "") != (r.TLS.Key == "") {
		add("tls", "requires both cert and key, or neither")
	}
	p.between("state.redis.timeout", r.Timeout, time.Millisecond, 2*time.Second)
}
