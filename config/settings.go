package config

import (
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/yamlfile"
	"github.com/penstock-mq/penstock/policy"
)

// setting is one value of the configuration outside the policies: its key in the file, from which
// the name of its environment variable follows, and its flag, if it has one.
type setting struct {
	key   string
	flag  string
	usage string
	value
}

// value is where a setting is kept, and how it is read.
type value struct {
	read func(c *Config, given any) error
	at   func(c *Config) any // the value, or a pointer to it
}

// settings are all there are: any other key is refused.
var settings = []setting{
	{"http.listen", "http-listen", "serve HTTP at this `host:port`",
		text(func(c *Config) *string { return &c.HTTP.Listen })},
	{"http.tokens", "http-tokens",
		"`file` of clients: who may ask, by token or certificate, and for what",
		text(func(c *Config) *string { return &c.HTTP.Tokens })},
	{"http.tls.cert", "http-tls-cert", "`file` of the certificate that HTTP is served with",
		text(func(c *Config) *string { return &c.HTTP.TLS.Cert })},
	{"http.tls.key", "http-tls-key", "`file` of that certificate's key",
		text(func(c *Config) *string { return &c.HTTP.TLS.Key })},
	{"http.tls.client_ca", "http-tls-client-ca",
		"`file` of the authorities of clients' certificates",
		text(func(c *Config) *string { return &c.HTTP.TLS.ClientCA })},
	{"http.insecure", "", "", boolean(func(c *Config) *bool { return &c.HTTP.Insecure })},
	{"http.lame_duck", "lame-duck",
		"`duration` for which HTTP is served at least when the process is told to stop",
		duration(func(c *Config) *time.Duration { return &c.HTTP.LameDuck })},
	{"http.hosts", "http-hosts",
		"`names` that requests may know this process by, with commas between them",
		list(func(c *Config) *[]string { return &c.HTTP.Hosts })},
	{"http.trusted_proxies", "http-trusted-proxies",
		"`networks` whose Penstock-IP is believed, with commas between them",
		networks(func(c *Config) *[]netip.Prefix { return &c.HTTP.TrustedProxies })},
	{"http.max_connections", "", "",
		number(func(c *Config) *int { return &c.HTTP.MaxConnections })},
	{"http.max_per_client", "", "", number(func(c *Config) *int { return &c.HTTP.MaxPerClient })},
	{"envoy.listen", "envoy-listen",
		"answer Envoy's rate limit service over gRPC at this `host:port`",
		text(func(c *Config) *string { return &c.Envoy.Listen })},
	{"envoy.files", "envoy-files",
		"`files` of its limits, or directories with them, with commas between them",
		list(func(c *Config) *[]string { return &c.Envoy.Files })},
	{"envoy.headers", "", "", boolean(func(c *Config) *bool { return &c.Envoy.Headers })},
	{"envoy.on_store_error", "", "",
		text(func(c *Config) *string { return &c.Envoy.OnStoreError })},
	{"nats.url", "nats-url",
		"`URL` of NATS 2.14 or newer; an admitter without one starts the embedded server",
		text(func(c *Config) *string { return &c.NATS.URL })},
	{"nats.prefix", "nats-prefix", "`word` that all subjects, streams and KV buckets begin with",
		text(func(c *Config) *string { return &c.NATS.Prefix })},
	{"nats.replicas", "nats-replicas", "`number` of replicas of streams and KV buckets",
		number(func(c *Config) *int { return &c.NATS.Replicas })},
	{"nats.user", "", "",
		text(func(c *Config) *string { return &c.NATS.Credentials.User })},
	{"nats.password", "", "",
		text(func(c *Config) *string { return &c.NATS.Credentials.Password })},
	{"nats.password_file", "", "",
		text(func(c *Config) *string { return &c.NATS.Credentials.PasswordFile })},
	{"nats.token", "", "",
		text(func(c *Config) *string { return &c.NATS.Credentials.Token })},
	{"nats.token_file", "", "",
		text(func(c *Config) *string { return &c.NATS.Credentials.TokenFile })},
	{"nats.nkey_file", "", "",
		text(func(c *Config) *string { return &c.NATS.Credentials.NKeyFile })},
	{"nats.creds_file", "", "",
		text(func(c *Config) *string { return &c.NATS.Credentials.CredsFile })},
	{"nats.tls.ca", "", "",
		text(func(c *Config) *string { return &c.NATS.Credentials.CA })},
	{"nats.tls.cert", "", "",
		text(func(c *Config) *string { return &c.NATS.Credentials.Cert })},
	{"nats.tls.key", "", "",
		text(func(c *Config) *string { return &c.NATS.Credentials.Key })},
	{"nats.embedded.users", "nats-users",
		"`file` of the embedded server's users, and what each may do",
		text(func(c *Config) *string { return &c.NATS.Embedded.Users })},
	{"nats.embedded.insecure", "", "",
		boolean(func(c *Config) *bool { return &c.NATS.Embedded.Insecure })},
	{"nats.embedded.tls.cert", "", "",
		text(func(c *Config) *string { return &c.NATS.Embedded.TLS.Cert })},
	{"nats.embedded.tls.key", "", "",
		text(func(c *Config) *string { return &c.NATS.Embedded.TLS.Key })},
	{"nats.embedded.tls.client_ca", "", "",
		text(func(c *Config) *string { return &c.NATS.Embedded.TLS.ClientCA })},
	{"nats.embedded.dir", "nats-dir", "`directory` of the embedded server",
		text(func(c *Config) *string { return &c.NATS.Embedded.Dir })},
	{"nats.embedded.listen", "nats-listen",
		"let others connect to the embedded server at this `host:port`",
		text(func(c *Config) *string { return &c.NATS.Embedded.Listen })},
	{"nats.embedded.sync", "nats-sync",
		"`interval` at which the embedded server syncs its files, or always", syncing},
	{"nats.embedded.max_store", "nats-max-store",
		"`size` of what the embedded server may store, such as 10GiB",
		size(func(c *Config) *policy.Size { return &c.NATS.Embedded.MaxStore })},
	{"state.store", "state-store", "keep the limits' state in this `store`: memory or redis",
		text(func(c *Config) *string { return &c.State.Store })},
	{"state.cache", "state-cache",
		"`file` to keep the policies in, so that checks go on when a start finds no NATS",
		text(func(c *Config) *string { return &c.State.Cache })},
	{"state.redis.addrs", "redis-addrs",
		"`host:port` of Redis, or several with commas between them",
		list(func(c *Config) *[]string { return &c.State.Redis.Addrs })},
	{"state.redis.prefix", "", "", text(func(c *Config) *string { return &c.State.Redis.Prefix })},
	{"state.redis.cluster", "", "",
		boolean(func(c *Config) *bool { return &c.State.Redis.Cluster })},
	{"state.redis.master_name", "", "",
		text(func(c *Config) *string { return &c.State.Redis.Master })},
	{"state.redis.db", "", "", number(func(c *Config) *int { return &c.State.Redis.DB })},
	{"state.redis.username", "", "",
		text(func(c *Config) *string { return &c.State.Redis.Username })},
	{"state.redis.password", "", "",
		text(func(c *Config) *string { return &c.State.Redis.Password })},
	{"state.redis.sentinel_username", "", "",
		text(func(c *Config) *string { return &c.State.Redis.SentinelUsername })},
	{"state.redis.sentinel_password", "", "",
		text(func(c *Config) *string { return &c.State.Redis.SentinelPassword })},
	{"state.redis.timeout", "", "",
		duration(func(c *Config) *time.Duration { return &c.State.Redis.Timeout })},
	{"state.redis.tls.enabled", "", "",
		boolean(func(c *Config) *bool { return &c.State.Redis.TLS.Enabled })},
	{"state.redis.tls.ca", "", "", text(func(c *Config) *string { return &c.State.Redis.TLS.CA })},
	{"state.redis.tls.cert", "", "",
		text(func(c *Config) *string { return &c.State.Redis.TLS.Cert })},
	{"state.redis.tls.key", "", "",
		text(func(c *Config) *string { return &c.State.Redis.TLS.Key })},
	{"state.redis.tls.server_name", "", "",
		text(func(c *Config) *string { return &c.State.Redis.TLS.ServerName })},
	{"drain.lease", "drain-lease", "`duration` of the drainer's lease",
		duration(func(c *Config) *time.Duration { return &c.Drain.Lease })},
	{"drain.memory", "drain-memory", "`size` of the memory that jobs may wait in, about",
		size(func(c *Config) *policy.Size { return &c.Drain.Memory })},
	{"drain.policies", "drain-policies",
		"`names` of the policies to drain, with commas between them; empty: all",
		list(func(c *Config) *[]string { return &c.Drain.Policies })},
	{"targets.allow", "targets-allow",
		"`networks` that HTTP targets may be in besides the usual, with commas between them",
		networks(func(c *Config) *[]netip.Prefix { return &c.Targets.Allow })},
	{"log.level", "log-level", "log at this `level`: debug, info, warn or error",
		text(func(c *Config) *string { return &c.Log.Level })},
	{"log.format", "log-format", "log in this `format`: text or json",
		text(func(c *Config) *string { return &c.Log.Format })},
	{"grace", "grace", "`duration` that jobs and requests may take to finish at the end",
		duration(func(c *Config) *time.Duration { return &c.Grace })},
	{"set", "", "", text(func(c *Config) *string { return &c.Set })},
	{"prune", "", "", boolean(func(c *Config) *bool { return &c.Prune })},
	{"audit", "", "", boolean(func(c *Config) *bool { return &c.Audit })},
}

// Changed lists the keys of the settings in which two configurations differ, in the order of the
// documentation. The policies are no setting.
func Changed(before, after Config) []string {
	var keys []string
	for _, s := range settings {
		if !reflect.DeepEqual(s.at(&before), s.at(&after)) {
			keys = append(keys, s.key)
		}
	}
	return keys
}

// text reads a string. YAML's other types are not turned into one: 5 or true was not meant as a
// text.
func text(into func(*Config) *string) value {
	return value{at: func(c *Config) any {
		return into(c)
	}, read: func(c *Config, value any) error {
		s, ok := value.(string)
		if !ok {
			return yamlfile.Unfit(value, "text")
		}
		*into(c) = s
		return nil
	}}
}

// number reads a whole number, also from the text of a flag or a variable.
func number(into func(*Config) *int) value {
	return value{at: func(c *Config) any {
		return into(c)
	}, read: func(c *Config, value any) error {
		n, err := strconv.Atoi(fmt.Sprint(value))
		if err != nil {
			return yamlfile.Unfit(value, "a whole number")
		}
		*into(c) = n
		return nil
	}}
}

// boolean reads true or false, also from the text of a flag or a variable.
func boolean(into func(*Config) *bool) value {
	return value{at: func(c *Config) any {
		return into(c)
	}, read: func(c *Config, value any) error {
		b, err := strconv.ParseBool(fmt.Sprint(value))
		if err != nil {
			return yamlfile.Unfit(value, "true or false")
		}
		*into(c) = b
		return nil
	}}
}

// duration reads a duration with a unit.
func duration(into func(*Config) *time.Duration) value {
	return value{at: func(c *Config) any {
		return into(c)
	}, read: func(c *Config, value any) error {
		s, ok := value.(string)
		if !ok {
			return yamlfile.Unfit(value, "a duration with a unit, such as 30s or 1d")
		}
		d, err := algorithms.ParseDuration(s)
		if err != nil {
			return err
		}
		*into(c) = d
		return nil
	}}
}

// size reads a number of bytes.
func size(into func(*Config) *policy.Size) value {
	return value{at: func(c *Config) any {
		return into(c)
	}, read: func(c *Config, value any) error {
		switch value.(type) {
		case map[string]any, []any:
			return yamlfile.Unfit(value, "a size such as 64MiB or 10GiB, or bytes")
		}
		n, err := policy.ParseSize(fmt.Sprint(value))
		if err != nil {
			return err
		}
		*into(c) = n
		return nil
	}}
}

// list reads a list of texts, from a flag or a variable one text with commas.
func list(into func(*Config) *[]string) value {
	return value{at: func(c *Config) any {
		return into(c)
	}, read: func(c *Config, value any) error {
		var texts []string
		switch v := value.(type) {
		case string:
			for item := range strings.SplitSeq(v, ",") {
				if item = strings.TrimSpace(item); item != "" {
					texts = append(texts, item)
				}
			}
		case []any:
			for _, item := range v {
				s, ok := item.(string)
				if !ok {
					return yamlfile.Unfit(item, "text")
				}
				texts = append(texts, s)
			}
		default:
			return yamlfile.Unfit(value, "a list")
		}
		*into(c) = texts
		return nil
	}}
}

// syncing is nats.embedded.sync: a duration, or always.
var syncing = value{read: readSync, at: func(c *Config) any {
	return [2]any{c.NATS.Embedded.Sync, c.NATS.Embedded.SyncAlways}
}}

// networks reads a list of networks in CIDR notation; an address is the network of itself alone.
func networks(into func(*Config) *[]netip.Prefix) value {
	return value{at: func(c *Config) any {
		return into(c)
	}, read: func(c *Config, value any) error {
		var texts []string
		if err := list(func(*Config) *[]string { return &texts }).read(c, value); err != nil {
			return err
		}
		var found []netip.Prefix
		for _, text := range texts {
			network, err := netip.ParsePrefix(text)
			if address, single := netip.ParseAddr(text); single == nil && address.Zone() == "" {
				network, err = address.Prefix(address.BitLen())
			}
			if address := network.Addr(); address.Is4In6() {
				// what is compared with networks has lost that form
				network = netip.PrefixFrom(address.Unmap(), network.Bits()-96)
			}
			if err != nil || !network.IsValid() {
				return yamlfile.Unfit(text, "a network such as 10.0.0.0/8, or an address")
			}
			found = append(found, network.Masked())
		}
		*into(c) = found
		return nil
	}}
}

func readSync(c *Config, value any) error {
	if value == "always" {
		c.NATS.Embedded.Sync, c.NATS.Embedded.SyncAlways = 0, true
		return nil
	}
	if err := duration(func(c *Config) *time.Duration {
		return &c.NATS.Embedded.Sync
	}).read(c, value); err != nil {
		return fmt.Errorf("%w, or always", err)
	}
	return nil
}
