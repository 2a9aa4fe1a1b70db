package config

import (
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/penstock-mq/penstock/internal/strict"
)

var flags = []struct{ key, name, usage string }{
	{"http.listen", "http-listen", "serve HTTP at this `host:port`"},
	{"http.tokens", "http-tokens",
		"`file` of clients, their tokens or certificates, and their rights"},
	{"http.tls.cert", "http-tls-cert", "`file` of the HTTP server's certificate"},
	{"http.tls.key", "http-tls-key", "`file` of the certificate's key"},
	{"http.tls.client_ca", "http-tls-client-ca",
		"`file` of the authorities for client certificates"},
	{"http.lame_duck", "lame-duck",
		"minimum `duration` to keep serving HTTP after a stop signal"},
	{"http.hosts", "http-hosts",
		"accepted host `names`, separated by commas"},
	{"http.trusted_proxies", "http-trusted-proxies",
		"`networks` whose Penstock-IP is trusted, separated by commas"},
	{"envoy.listen", "envoy-listen",
		"serve Envoy's rate limit service over gRPC at this `host:port`"},
	{"envoy.files", "envoy-files",
		"`files` with Envoy's limits, or directories of them, separated by commas"},
	{"nats.url", "nats-url",
		"`URL` of NATS 2.14 or newer; an admitter without one starts the embedded server"},
	{"nats.prefix", "nats-prefix", "`prefix` of all subjects, streams and KV buckets"},
	{"nats.replicas", "nats-replicas", "`number` of replicas of streams and KV buckets"},
	{"nats.embedded.users", "nats-users",
		"`file` of the embedded server's users and their rights"},
	{"nats.embedded.dir", "nats-dir", "`directory` of the embedded server"},
	{"nats.embedded.listen", "nats-listen",
		"let others connect to the embedded server at this `host:port`"},
	{"nats.embedded.sync", "nats-sync",
		"`interval` at which the embedded server syncs its files, or always"},
	{"nats.embedded.max_store", "nats-max-store",
		"maximum storage `size` of the embedded server, such as 10GiB " +
			"(default half of the free disk)"},
	{"state.store", "state-store", "keep the limits' state in this `store`: memory or redis"},
	{"state.cache", "state-cache",
		"cache `file` of policies, for checks after a start without NATS"},
	{"state.redis.addrs", "redis-addrs",
		"`host:port` of Redis, or several separated by commas"},
	{"drain.lease", "drain-lease",
		"`duration` of the drainer's lease (default 5s; 15s with replicas)"},
	{"drain.memory", "drain-memory", "approximate memory `size` for waiting jobs"},
	{"drain.policies", "drain-policies",
		"`names` of the policies to drain, separated by commas; empty: all"},
	{"targets.allow", "targets-allow",
		"additional `networks` allowed for HTTP targets, separated by commas"},
	{"log.level", "log-level", "log at this `level`: debug, info, warn or error"},
	{"log.format", "log-format", "log in this `format`: text or json"},
	{"grace", "grace", "`duration` for jobs and requests to finish when stopping"},
}

// Changed lists the keys of differing settings, without policies and routes.
func Changed(before, after Config) (keys []string) {
	was := strict.Fields(&before)
	for i, is := range strict.Fields(&after) {
		if !reflect.DeepEqual(was[i], is) {
			keys = append(keys, is.Place)
		}
	}
	if !reflect.DeepEqual(unrouted(before.Outbound), unrouted(after.Outbound)) {
		keys = append(keys, "outbound")
	}
	return keys
}

func unrouted(all []Outbound) []Outbound {
	all = slices.Clone(all)
	for i := range all {
		all[i].Routes = nil
	}
	return all
}

func env(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// An empty variable is ignored.
func override(f *strict.File, given *pflag.FlagSet) {
	for _, s := range strict.Fields(new(Config)) {
		if text := os.Getenv(env(s.Place)); text != "" {
			f.Set(s.Place, text, env(s.Place))
		}
	}
	for _, s := range flags {
		if given == nil {
			return
		}
		if flag := given.Lookup(s.name); flag != nil && flag.Changed {
			f.Set(s.key, flag.Value.String(), "--"+s.name)
		}
	}
}

var clients = []string{envPrefix + "SERVER", envPrefix + "TOKEN", envPrefix + "TOKEN_FILE",
	envPrefix + "CACERT", envPrefix + "CERT", envPrefix + "CERT_KEY"}

func strangers(environ []string) (warnings []string) {
	names := append(slices.Clone(clients), configEnv)
	for _, s := range strict.Fields(new(Config)) {
		names = append(names, env(s.Place))
	}
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, envPrefix) && !slices.Contains(names, name) {
			warnings = append(warnings, "environment variable "+name+
				" is no setting and has no effect")
		}
	}
	slices.Sort(warnings)
	return warnings
}
