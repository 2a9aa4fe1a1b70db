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
)

var (
	prefixPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)
	policyPattern = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)
)

// validate reports what is wrong with a configuration whose values could be read. Policies check themselves.
func validate(c Config) []problem {
	var problems []problem
	add := func(place, format string, args ...any) {
		problems = append(problems, problem{place, fmt.Sprintf(format, args...)})
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
	if c.State.Store == "redis" {
		add("state.store", "redis is not available yet: want memory")
	} else {
		oneOf("state.store", c.State.Store, "memory")
	}
	between("drain.lease", c.Drain.Lease, time.Second, 10*time.Minute)
	for _, name := range c.Drain.Policies {
		if !policyPattern.MatchString(name) {
			add("drain.policies", "%q: want names of policies: 1 to 32 of a-z, 0-9 and -", name)
		}
	}
	oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	oneOf("log.format", c.Log.Format, "text", "json")
	between("grace", c.Grace, 0, 24*time.Hour)
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
