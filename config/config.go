// Package config reads the settings of a process from its YAML file, environment and flags. Its
// comments become docs/reference/settings.md.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/admission/outbound"
	"github.com/penstock-mq/penstock/internal/admission/schedules"
	"github.com/penstock-mq/penstock/internal/base/reach"
	"github.com/penstock-mq/penstock/internal/base/strict"
	"github.com/penstock-mq/penstock/internal/server/guard"
	"github.com/penstock-mq/penstock/internal/server/installation"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
	"github.com/penstock-mq/penstock/internal/server/natsconn"
	"github.com/penstock-mq/penstock/internal/server/policyfile"
	"github.com/penstock-mq/penstock/policy"
)

// AdmitterListen is the default of http.listen for an admitter.
const AdmitterListen = "127.0.0.1:8080"

// Config is all settings of admitter and drainer; docs/reference/settings.md lists them.
type Config struct {
	HTTP  HTTP  `json:"http"`
	Envoy Envoy `json:"envoy"`
	NATS  NATS  `json:"nats"`
	State State `json:"state"`
	Drain Drain `json:"drain"`
	// Targets says where HTTP targets may be.
	Targets Targets `json:"targets"`
	Log     Log     `json:"log"`
	// Grace is the time for running jobs and requests to finish when the process stops: 0 to 24h.
	Grace time.Duration `json:"grace" zero:"meant"`
	// Set names the set of the file's policies: 1 to 32 of a-z, 0-9 and -. Admitters with different
	// files need different sets; a policy belongs to one set.
	Set string `json:"set"`
	// Prune ends policies that left the set's file: they take no new jobs, and go once their queues
	// are empty. Otherwise they stay, and belong to the API.
	Prune bool `json:"prune"`
	// AllowShrink lets the set become empty or lose more than half of its policies, which otherwise
	// is refused, because a file may be truncated.
	AllowShrink bool `json:"allow_shrink"`
	// Audit lets the admitter check all starts against the limits.
	Audit     bool              `json:"audit"`
	Policies  []policy.Policy   `json:"-"` // without defaults
	Schedules []schedules.Entry `json:"-"` // nil: the file has no list
	Outbound  []Outbound        `json:"-"`
	Warnings  []string          `json:"-"`
	// Doubts are about names of policies that the file does not have, and others may make.
	Doubts []string `json:"-"`
}

// HTTP is the server of the API, health and metrics.
type HTTP struct {
	// Listen is host:port. By default an admitter serves 127.0.0.1:8080, and a drainer has no
	// listener.
	Listen string `json:"listen"`
	// Tokens is the file of clients, by tokens or certificates, and their rights; empty: no access
	// control, and Listen must be a loopback address unless Insecure.
	Tokens   string    `json:"tokens"`
	TLS      ServerTLS `json:"tls"`
	Insecure bool      `json:"insecure"`
	// LameDuck keeps HTTP open for this long at least when the process stops, with 503 from
	// /readyz, for load balancers to notice: 0 to 5m, default 0.
	LameDuck time.Duration `json:"lame_duck" zero:"meant"`
	// Hosts are host names of the process in addition to IP addresses, localhost, *.localhost and
	// the host of Listen; "*.example.com" matches all names below example.com.
	Hosts []string `json:"hosts,omitempty"`
	// TrustedProxies may set Penstock-IP, and are exempt from the limit of connections per client.
	TrustedProxies Networks `json:"trusted_proxies,omitempty"`
	// MaxConnections bounds open connections, MaxPerClient an address's: 1 to 1,000,000.
	MaxConnections int `json:"max_connections"`
	MaxPerClient   int `json:"max_per_client"`
}

// ServerTLS names the files of a server's certificate and key, and of the authorities of client
// certificates.
type ServerTLS struct {
	Cert     string `json:"cert"`
	Key      string `json:"key"`
	ClientCA string `json:"client_ca"` // empty: no client certificates
}

// Guard is who may reach a listener, and how it is checked.
type Guard = guard.Options

// Guard returns the access to the API.
func (h HTTP) Guard() Guard {
	return Guard{Listen: h.Listen, Tokens: h.Tokens, TLS: guard.Files(h.TLS),
		Insecure: h.Insecure}
}

// Envoy is the service that Envoy asks for its rate limits.
type Envoy struct {
	Listen string   `json:"listen"`          // "host:port"; empty: not served
	Files  []string `json:"files,omitempty"` // of envoyproxy/ratelimit, or directories of them
	// Headers lets gateways tell their clients the limits.
	Headers bool `json:"headers"`
	// OnStoreError applies while the store of limits is unavailable: open, local, or closed, which
	// leaves the decision to the gateway's configuration.
	OnStoreError string `json:"on_store_error"`
}

// Guard returns the access to the rate limit service, which takes the tokens of the API.
func (e Envoy) Guard(h HTTP) Guard {
	o := h.Guard()
	o.Listen = e.Listen
	return o
}

// Route is where requests of the proxy go, and whose pace they keep; see
// docs/reference/settings.md.
type Route = outbound.Route

// Outbound is a reverse proxy whose requests start when a policy lets them. It authenticates
// clients by http.tokens.
type Outbound struct {
	// Listen is the host:port. Without http.tokens it must be a loopback address unless Insecure.
	Listen   string    `json:"listen"`
	TLS      ServerTLS `json:"tls"`
	Insecure bool      `json:"insecure"`
	Routes   []Route   `json:"routes"`
}

// Guard returns the access to the proxy, which takes the tokens of the API.
func (o Outbound) Guard(h HTTP) Guard {
	return Guard{Listen: o.Listen, Tokens: h.Tokens, TLS: guard.Files(o.TLS),
		Insecure: o.Insecure, Named: "outbound[]"}
}

// NATS locates JetStream and configures its streams.
type NATS struct {
	// one URL, or several separated by commas; empty: start the embedded server
	URL string `json:"url"`
	// Prefix of subjects, and in upper case of streams and KV buckets.
	Prefix string `json:"prefix"`
	// Domain of the JetStream at URL, on a leaf node with its own JetStream: that of the streams.
	// Empty: the JetStream of the server at URL.
	Domain   string `json:"domain"`
	Replicas int    `json:"replicas"` // of streams and KV buckets: 1, 3 or 5
	// Credentials are for URL; passwords and tokens are safer in a file or the environment.
	Credentials
	// TLS belongs to the credentials; it is a group in the file.
	TLS      policy.ClientTLS `json:"tls"`
	Embedded Embedded         `json:"embedded"`
}

// Credentials prove who connects to NATS.
type Credentials = natsconn.Credentials

// Embedded is the NATS server in the admitter.
type Embedded struct {
	Dir string `json:"dir"` // of its data
	// "host:port"; empty: only this process can connect
	Listen string `json:"listen"`
	// Users is the file of users and their permissions; empty: full access for all, and Listen must
	// be a loopback address unless Insecure.
	Users    string `json:"users"`
	Insecure bool   `json:"insecure"`
	// TLS of Listen; with client_ca clients need a certificate.
	TLS  ServerTLS `json:"tls"`
	Sync Sync      `json:"sync"`
	// MaxStore bounds its data; 0: half of the disk space that is free or used by it.
	MaxStore policy.Size `json:"max_store" zero:"meant"`
}

// Sync is the most time from the acknowledgement of a message until it is on disk (1ms to 1h,
// default 1s), or always: it is on disk before.
type Sync struct {
	Every  time.Duration
	Always bool
}

// UnmarshalText parses "always" or a duration such as "1s".
func (s *Sync) UnmarshalText(text []byte) error {
	if string(text) == "always" {
		*s = Sync{Always: true}
		return nil
	}
	every, err := algorithms.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%w, or always", err)
	}
	*s = Sync{Every: every}
	return nil
}

// String returns the text that UnmarshalText parses.
func (s Sync) String() string {
	if s.Always {
		return "always"
	}
	return algorithms.FormatDuration(s.Every)
}

// Guard returns the access to the embedded server's listener.
func (e Embedded) Guard() Guard {
	return Guard{Of: "nats.embedded", Listen: e.Listen, Tokens: e.Users,
		TLS: guard.Files(e.TLS), Insecure: e.Insecure}
}

// State says where door policies and meters keep their state.
type State struct {
	// Store is memory, of each admitter, or redis, shared by all.
	Store string `json:"store"`
	// Cache is the file of the last known policies, for checks when started without NATS; empty:
	// use the configuration file.
	Cache string `json:"cache"`
	Redis Redis  `json:"redis"`
}

// Redis locates the store and bounds its time.
type Redis struct {
	// Addrs are host:port of the server, of cluster nodes, or of sentinels.
	Addrs   []string `json:"addrs,omitempty"`
	Prefix  string   `json:"prefix"`  // of all keys
	Cluster bool     `json:"cluster"` // Addrs are nodes of a Redis Cluster
	// the server's name for sentinels; empty: Addrs are not sentinels
	Master string `json:"master_name"`
	DB     int    `json:"db" zero:"meant"` // number of the database, 0 in a cluster
	TLS    TLS    `json:"tls"`

	// for the server's ACL
	Username         string `json:"username"`
	Password         string `json:"password" secret:"true"` // better in a variable
	SentinelUsername string `json:"sentinel_username"`      // for the sentinels' ACL
	SentinelPassword string `json:"sentinel_password" secret:"true"`

	// Timeout bounds a decision, 1ms to 2s; then the policy's on_store_error applies.
	Timeout time.Duration `json:"timeout"`
}

// TLS secures a connection.
type TLS struct {
	Enabled bool   `json:"enabled"` // use TLS
	CA      string `json:"ca"`      // file of trusted certificates; empty: the system's
	// files of a client certificate; may be empty
	Cert       string `json:"cert"`
	Key        string `json:"key"`
	ServerName string `json:"server_name"` // in the server's certificate; empty: the host
}

// Drain configures a drainer.
type Drain struct {
	// Lease is about the time until another drainer takes over after a crash: 1s to 10m. The
	// default is 5s, and 15s with replicas.
	Lease time.Duration `json:"lease" zero:"meant"`
	// Memory is about the most that waiting jobs may take in the drainer: at least 1MiB. 0: 512MiB,
	// or a quarter of the memory of the container, of GOMEMLIMIT or of the machine if that is less.
	Memory   policy.Size `json:"memory" zero:"meant"`
	Policies []string    `json:"policies,omitempty"` // that this drainer may own; empty: all
}

// Targets says where HTTP targets may be.
type Targets struct {
	// Allow permits further networks. By default link-local addresses are forbidden and, for
	// policies from the API, addresses of the drainer's machine and of cloud metadata services.
	Allow Networks `json:"allow,omitempty"`
}

// Networks are networks in CIDR notation, or single addresses.
type Networks []netip.Prefix

// Log configures the log.
type Log struct {
	Level  string `json:"level"`  // debug, info, warn or error
	Format string `json:"format"` // text or json
}

// defaults leaves out the lease, whose default depends on the replicas.
func defaults() Config {
	return Config{
		HTTP: HTTP{
			TrustedProxies: Networks{netip.MustParsePrefix("127.0.0.0/8"),
				netip.MustParsePrefix("::1/128")},
			MaxConnections: lifecycle.DefaultMaxConnections,
			MaxPerClient:   lifecycle.DefaultMaxPerClient,
		},
		Envoy: Envoy{OnStoreError: string(policy.Closed)},
		NATS: NATS{
			Prefix:   installation.DefaultPrefix,
			Replicas: 1,
			Embedded: Embedded{Dir: "./data/nats", Listen: "127.0.0.1:4222",
				Sync: Sync{Every: time.Second}},
		},
		State: State{Store: "memory", Redis: Redis{
			Addrs: []string{"127.0.0.1:6379"}, Prefix: "penstock", Timeout: 50 * time.Millisecond,
		}},
		Log:   Log{Level: "info", Format: "text"},
		Grace: lifecycle.DefaultGrace,
		Set:   policy.DefaultSet,
	}
}

// Flags defines --config and the flags of settings.
func Flags(flags *pflag.FlagSet) {
	define(flags)
	flags.Lookup("http-listen").DefValue = AdmitterListen
}

// DrainerFlags leaves out the embedded server, the limits and the gateways.
func DrainerFlags(flags *pflag.FlagSet) { define(flags, "nats.embedded.", "state.", "envoy.") }

func define(set *pflag.FlagSet, without ...string) {
	initial, given := defaults(), map[string]string{}
	for _, s := range settings(&initial) {
		if !s.value.IsZero() {
			given[s.key] = strings.ReplaceAll(strings.Trim(fmt.Sprint(s.value), "[]"), " ", ",")
		}
	}
	for _, f := range flags {
		where := " (" + f.key + ", " + env(f.key) + ")"
		if f.key == configKey {
			where = " (or " + env(f.key) + ")"
		}
		if !slices.ContainsFunc(without, func(group string) bool {
			return strings.HasPrefix(f.key, group)
		}) {
			set.String(f.name, "", f.usage+where)
			set.Lookup(f.name).DefValue = given[f.key] // only for the help
		}
	}
}

// FileName returns the name of the configuration file, or "".
func FileName(flags *pflag.FlagSet) string { return outside(flags).GetString(configKey) }

// LoadFile reads the settings from the file that the flags or the environment name, then from the
// environment, then from the flags: the last one that gives a setting wins. Errors name all
// mistakes, with their places.
func LoadFile(flags *pflag.FlagSet) (Config, error) {
	v := outside(flags)
	name := v.GetString(configKey)
	switch {
	case name == "" && v.IsSet(configKey):
		return Config{}, errors.New(source(flags, configKey) + ": is empty")
	case name == "":
		return Load(nil, flags)
	}
	// A pipe or a device could not be read again, and might never end.
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return Config{}, fmt.Errorf("open configuration: %s is not a regular file", name)
	}
	file, err := os.Open(name)
	if err != nil {
		return Config{}, fmt.Errorf("open configuration: %w", err)
	}
	defer file.Close()
	return Load(file, flags)
}

// Load reads a YAML or JSON file, or nil. Environment variables override it, and flags, which may
// be nil, override these. A file's mistakes count also where they are overridden.
//
// The error joins all problems in the order of the file: `penstock.yaml:7: policies[2].outflow:
// "10/x": …`, or "line 7: …" if the file has no name. An unknown PENSTOCK_ variable is only a
// warning, because Kubernetes sets PENSTOCK_PORT for a service called penstock.
func Load(file io.Reader, flags *pflag.FlagSet) (Config, error) {
	f, err := strict.Read(file)
	if err != nil {
		return Config{}, err
	}
	var document struct {
		Config
		Policies     any `json:"policies"`
		SharedLimits any `json:"shared_limits"`
		Schedules    any `json:"schedules"`
		// of listeners, which no variable can name
		Outbound []Outbound `json:"outbound"`
	}
	f.Decode(&document)
	c := resolve(f, flags)
	c.Outbound = document.Outbound
	c.NATS.CA, c.NATS.Cert, c.NATS.Key = c.NATS.TLS.CA, c.NATS.TLS.Cert, c.NATS.TLS.Key
	c.Drain.Lease = cmp.Or(c.Drain.Lease, installation.Lease(c.NATS.Replicas))
	c.Policies = policyfile.Read(f, c.possible)
	checker{f}.config(c)
	c.Schedules = readSchedules(f, c.Policies)
	if err := f.Err(); err != nil {
		return Config{}, err
	}
	c.Warnings = slices.Concat(strangers(os.Environ()), c.HTTP.Guard().Warnings(),
		c.Envoy.Guard(c.HTTP).Warnings())
	for _, o := range c.Outbound {
		c.Warnings = append(c.Warnings, o.Guard(c.HTTP).Warnings()...)
	}
	c.Doubts = c.doubts()
	if c.NATS.URL == "" {
		c.Warnings = append(c.Warnings, c.NATS.Embedded.Guard().Warnings()...)
	}
	return c, nil
}

// readSchedules reads the list of a file; nil: no list.
func readSchedules(f *strict.File, policies []policy.Policy) (entries []schedules.Entry) {
	if !f.Has("schedules") {
		return nil
	}
	entries = []schedules.Entry{}
	f.Field("schedules", &entries)
	for _, p := range schedules.Check(entries, policies, f.Sound) {
		f.Add(strings.TrimSuffix("schedules"+p.Field, "."), "%s", p.Reason)
	}
	return entries
}

func (c Config) possible(p policy.Policy) []policy.Problem {
	problems := p.CheckPrefix(c.NATS.Prefix)
	if p.Target != nil && p.Target.HTTP != nil {
		rules := reach.Rules{Operator: true, Allow: c.Targets.Allow}
		if to, err := url.Parse(p.Target.HTTP.URL); err == nil {
			if err := rules.CheckHost(to.Hostname()); err != nil {
				problems = append(problems,
					policy.Problem{Field: "target.http.url", Reason: err.Error()})
			}
		}
	}
	if c.State.Store == "redis" {
		problems = append(problems, p.OnRedis()...)
		if c.State.Redis.Cluster {
			problems = append(problems, p.OnCluster()...)
		}
	}
	return problems
}
