package config

import (
	"encoding"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"github.com/penstock-mq/penstock/internal/admission/outbound"
	"github.com/penstock-mq/penstock/internal/base/decode"
	"github.com/penstock-mq/penstock/internal/base/strict"
)

const (
	envPrefix = "PENSTOCK"
	configKey = "config"
)

type flag struct{ key, name, usage string }

var flags = []flag{
	{configKey, configKey, "read the configuration from this YAML or JSON `file`"},
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
	{"drain.memory", "drain-memory", "approximate memory `size` for waiting jobs " +
		"(default 512MiB, at most a quarter of the container's memory)"},
	{"drain.policies", "drain-policies",
		"`names` of the policies to drain, separated by commas; empty: all"},
	{"targets.allow", "targets-allow",
		"additional `networks` allowed for HTTP targets, separated by commas"},
	{"log.level", "log-level", "log at this `level`: debug, info, warn or error"},
	{"log.format", "log-format", "log in this `format`: text or json"},
	{"grace", "grace", "`duration` for jobs and requests to finish when stopping"},
}

type setting struct {
	key   string // such as nats.tls.ca
	value reflect.Value
}

func settings(c *Config) []setting { return settingsOf(reflect.ValueOf(c).Elem()) }

func settingsOf(group reflect.Value) (all []setting) {
	for _, f := range decode.Fields(group.Type()) {
		value := group.FieldByIndex(f.Index)
		_, text := value.Addr().Interface().(encoding.TextUnmarshaler)
		if value.Kind() != reflect.Struct || text {
			all = append(all, setting{f.Name, value})
			continue
		}
		for _, s := range settingsOf(value) {
			all = append(all, setting{f.Name + "." + s.key, s.value})
		}
	}
	return all
}

// outside resolves flags, which may be nil, over variables. A variable that is set but empty is the
// empty value.
func outside(given *pflag.FlagSet) *viper.Viper {
	v := viper.New()
	v.SetEnvPrefix(envPrefix)
	v.SetEnvKeyReplacer(strings.NewReplacer(".", "_"))
	v.AllowEmptyEnv(true)
	for _, s := range append(settings(&Config{}), setting{key: configKey}) {
		_ = v.BindEnv(s.key) // AutomaticEnv misses keys without a default
		if f := flagOf(given, s.key); f != nil {
			_ = v.BindPFlag(s.key, f)
		}
	}
	return v
}

func flagOf(given *pflag.FlagSet, key string) *pflag.Flag {
	i := slices.IndexFunc(flags, func(f flag) bool { return f.key == key })
	if given == nil || i < 0 {
		return nil
	}
	return given.Lookup(flags[i].name)
}

// source names the flag or variable that sets a key.
func source(given *pflag.FlagSet, key string) string {
	if f := flagOf(given, key); f != nil && f.Changed {
		return "--" + f.Name
	}
	return env(key)
}

func env(key string) string {
	return envPrefix + "_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// resolve returns the settings of flags over variables over the file over the defaults.
//
// Only settings pass through viper, which changes the keys of maps to lower case: policies, shared
// limits, schedules and listeners for calls have maps whose keys users choose, and are decoded from
// the document. Nor is viper's WatchConfig used, which replaces settings one by one and only logs a
// broken file.
func resolve(f *strict.File, given *pflag.FlagSet) (c Config) {
	v := outside(given)
	initial, file, sources := defaults(), map[string]any{}, map[string]string{}
	for _, s := range settings(&initial) {
		if v.IsSet(s.key) {
			sources[s.key] = source(given, s.key)
		}
		v.SetDefault(s.key, s.value.Interface())
		if f.Sound(s.key) {
			file[s.key] = f.Value(s.key)
		}
	}
	err := v.MergeConfigMap(file)
	if err == nil {
		err = v.Unmarshal(&c, decode.Settings)
	}
	f.Outside(err, sources)
	return c
}

// Changed lists the keys of differing settings, without policies and routes.
func Changed(before, after Config) (keys []string) {
	was := settings(&before)
	for i, is := range settings(&after) {
		if !reflect.DeepEqual(was[i].value.Interface(), is.value.Interface()) {
			keys = append(keys, is.key)
		}
	}
	if !reflect.DeepEqual(unrouted(before.Outbound), unrouted(after.Outbound)) {
		keys = append(keys, "outbound")
	}
	return keys
}

// ChangedLists names the changed lists of the file, which never require a restart.
func ChangedLists(before, after Config) (names []string) {
	for _, list := range []struct {
		name    string
		was, is any
	}{
		{"policies", before.Policies, after.Policies},
		{"schedules", before.Schedules, after.Schedules},
		{"outbound.routes", routed(before.Outbound), routed(after.Outbound)},
	} {
		if !reflect.DeepEqual(list.was, list.is) {
			names = append(names, list.name)
		}
	}
	return names
}

func routed(all []Outbound) (routes [][]outbound.Route) {
	for _, o := range all {
		routes = append(routes, o.Routes)
	}
	return routes
}

func unrouted(all []Outbound) []Outbound {
	all = slices.Clone(all)
	for i := range all {
		all[i].Routes = nil
	}
	return all
}

// strangers warns of PENSTOCK_ variables that neither a process nor the command line reads.
func strangers(environ []string) (warnings []string) {
	var names []string
	for _, name := range []string{"CONFIG", "SERVER", "TOKEN", "TOKEN_FILE", "CACERT", "CERT",
		"CERT_KEY"} {
		names = append(names, envPrefix+"_"+name)
	}
	for _, s := range settings(new(Config)) {
		names = append(names, env(s.key))
	}
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, envPrefix+"_") && !slices.Contains(names, name) {
			warnings = append(warnings, "environment variable "+name+
				" is no setting and has no effect")
		}
	}
	slices.Sort(warnings)
	return warnings
}
