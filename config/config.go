// Package config reads the settings of a process from its YAML file, environment and flags. [Load]
// returns a complete, valid configuration.
package config

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/penstock-mq/penstock/admission/outbound"
	"github.com/penstock-mq/penstock/admission/schedules"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/guard"
	"github.com/penstock-mq/penstock/internal/installation"
	"github.com/penstock-mq/penstock/internal/lifecycle"
	"github.com/penstock-mq/penstock/internal/natsconn"
	"github.com/penstock-mq/penstock/policy"
)

// AdmitterListen is the default of http.listen for an admitter. A drainer has no default and serves
// no HTTP.
const AdmitterListen = "127.0.0.1:8080"

// Config is the configuration of a process.
type Config struct {
	HTTP  HTTP  `json:"http"`
	Envoy Envoy `json:"envoy"`
	NATS  NATS  `json:"nats"`
	State State `json:"state"`
	Drain Drain `json:"drain"`
	// Targets says where HTTP targets may be.
	Targets Targets `json:"targets"`
	Log     Log     `json:"log"`
	// Grace is the time for running jobs and requests to finish when the process stops: 0 to 24h,
	// default 30s.
	Grace time.Duration `json:"grace" zero:"meant"`
	// Set is the name of the set of the file's policies: 1 to 32 of a-z, 0-9 and -, default
	// "default". Admitters with different files need different sets; a policy belongs to one set.
	Set string `json:"set"`
	// Prune retires policies of the set that left the file, once they have no waiting jobs. Without
	// it they stay, with a warning.
	Prune bool `json:"prune"`
	// Audit lets the admitter check all starts against the limits.
	Audit bool `json:"audit"`
	// Policies are valid and have different names. Values that the file leaves out are left out;
	// see [policy.Policy.WithDefaults].
	Policies []policy.Policy `json:"-"`
	// Schedules are the file's schedules, valid with its policies; nil: it has no list.
	Schedules []schedules.Entry `json:"-"`
	// Outbound are the proxies of an admitter for outbound calls.
	Outbound []Outbound `json:"-"`
	// Warnings are to be logged, but are no errors.
	Warnings []string `json:"-"`
}

// HTTP is the server of the API, health and metrics.
type HTTP struct {
	// Listen is host:port. Not given, an admitter serves 127.0.0.1:8080 ([AdmitterListen]) and a
	// drainer nothing.
	Listen string `json:"listen"`
	// Tokens is the file of clients, identified by tokens or certificates, and their rights; empty:
	// no access control, and Listen must be a loopback address unless Insecure.
	Tokens   string    `json:"tokens"`
	TLS      ServerTLS `json:"tls"`
	Insecure bool      `json:"insecure"`
	// LameDuck is the least time that HTTP is served after the process is told to stop, with
	// /readyz answering 503, so that a load balancer notices before the listener closes: 0 to 5m,
	// default 0.
	LameDuck time.Duration `json:"lame_duck" zero:"meant"`
	// Hosts are further host names of the process, in addition to IP addresses, localhost,
	// *.localhost and the host of Listen; "*.example.com" matches all names below example.com.
	Hosts []string `json:"hosts,omitempty"`
	// TrustedProxies are the networks that may set Penstock-IP, and are exempt from the limit
	// of connections per client; default loopback.
	TrustedProxies Networks `json:"trusted_proxies,omitempty"`
	// MaxConnections is the number of concurrent connections, default 16384, MaxPerClient that per
	// address, default 1024: 1 to 1,000,000.
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

func (h HTTP) guard() guard.Options {
	return guard.Options{Listen: h.Listen, Tokens: h.Tokens, TLS: guard.Files(h.TLS),
		Insecure: h.Insecure}
}

// Envoy is the server of Envoy's rate limit service, for gateways. It authenticates clients like
// HTTP.
type Envoy struct {
	Listen string   `json:"listen"`          // "host:port"; empty: not served
	Files  []string `json:"files,omitempty"` // of envoyproxy/ratelimit, or directories of them
	// Headers lets gateways tell their clients the limits.
	Headers bool `json:"headers"`
	// OnStoreError applies while the store of limits is unavailable: open, closed or local; default
	// closed, which leaves the decision to the gateway's configuration.
	OnStoreError string `json:"on_store_error"`
}

func (e Envoy) guard(h HTTP) guard.Options {
	o := h.guard()
	o.Listen = e.Listen
	return o
}

// Outbound is a reverse proxy whose requests start when a policy lets them. It authenticates
// clients by http.tokens.
type Outbound struct {
	// Listen is the host:port. Without http.tokens it must be a loopback address unless Insecure.
	Listen   string           `json:"listen"`
	TLS      ServerTLS        `json:"tls"`
	Insecure bool             `json:"insecure"`
	Routes   []outbound.Route `json:"routes"`
}

// Guard describes the protection of the listener.
func (o Outbound) Guard(h HTTP) guard.Options {
	return guard.Options{Listen: o.Listen, Tokens: h.Tokens, TLS: guard.Files(o.TLS),
		Insecure: o.Insecure}
}

// NATS locates JetStream and configures its streams.
type NATS struct {
	// one URL, or several separated by commas; empty: start the embedded server
	URL string `json:"url"`
	// Prefix of subjects, and in upper case of streams and KV buckets; default penstock.
	Prefix   string `json:"prefix"`
	Replicas int    `json:"replicas"` // of streams and KV buckets: 1, 3 or 5, default 1
	// Credentials are for URL; passwords and tokens are safer in a file or the environment.
	natsconn.Credentials
	// TLS belongs to the credentials; it is a group in the file.
	TLS      policy.ClientTLS `json:"tls"`
	Embedded Embedded         `json:"embedded"`
}

// Embedded is the NATS server in the admitter.
type Embedded struct {
	Dir string `json:"dir"` // directory of its data, default ./data/nats
	// "host:port", default 127.0.0.1:4222; empty: only this process can connect
	Listen string `json:"listen"`
	// Users is the file of users and their permissions; empty: full access for every connection,
	// and Listen must be a loopback address unless Insecure.
	Users    string `json:"users"`
	Insecure bool   `json:"insecure"`
	// TLS of Listen; with client_ca clients need a certificate.
	TLS  ServerTLS `json:"tls"`
	Sync Sync      `json:"sync"`
	// MaxStore is the most it may store; 0, the default: half of the disk space that is free or
	// already used by it.
	MaxStore policy.Size `json:"max_store" zero:"meant"`
}

// Sync says when messages are on disk: at most this long after they are acknowledged (1ms to 1h,
// default 1s), or before that: always.
type Sync struct {
	Every  time.Duration
	Always bool
}

// UnmarshalText implements [encoding.TextUnmarshaler].
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

func (e Embedded) guard() guard.Options {
	return guard.Options{Of: "nats.embedded", Listen: e.Listen, Tokens: e.Users,
		TLS: guard.Files(e.TLS), Insecure: e.Insecure}
}

// State says where door policies and meters keep their state.
type State struct {
	// Store is memory, separate in each admitter, or redis, shared by all; default memory.
	Store string `json:"store"`
	// Cache is the file in which an admitter keeps the last known policies, so that it can answer
	// checks when started without NATS. Empty, the default: it uses the policies of the
	// configuration file.
	Cache string `json:"cache"`
	Redis Redis  `json:"redis"`
}

// Redis locates the store and bounds its time.
type Redis struct {
	// Addrs are host:port of the server, of cluster nodes, or of sentinels; default 127.0.0.1:6379.
	Addrs   []string `json:"addrs,omitempty"`
	Prefix  string   `json:"prefix"`  // of all keys, default penstock
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

	// Timeout bounds a decision, 1ms to 2s, default 50ms. After it the policy's on_store_error
	// applies.
	Timeout time.Duration `json:"timeout"`
}

// TLS secures a connection.
type TLS struct {
	Enabled bool   `json:"enabled"` // use TLS
	CA      string `json:"ca"`      // file of trusted certificates; empty: the system's
	// files of a client certificate; empty: none
	Cert       string `json:"cert"`
	Key        string `json:"key"`
	ServerName string `json:"server_name"` // in the server's certificate; empty: the host
}

// Drain configures a drainer.
type Drain struct {
	// Lease is the drainer's proof of life, and about the time until another takes over after a
	// crash: 1s to 10m. The default is 5s, and 15s with replicas; see [installation.Lease].
	Lease time.Duration `json:"lease" zero:"meant"`
	// Memory is about the most that waiting jobs may take in the drainer: default 512MiB, at least
	// 1MiB. See [workers.Options].
	Memory   policy.Size `json:"memory"`
	Policies []string    `json:"policies,omitempty"` // that this drainer may own; empty: all
}

// Targets says where HTTP targets may be.
type Targets struct {
	// Allow are further permitted networks. By default link-local addresses are forbidden for all
	// targets; addresses of the drainer's machine and of cloud metadata services are forbidden for
	// policies from the API.
	Allow Networks `json:"allow,omitempty"`
}

// Networks are networks in CIDR notation, or single addresses.
type Networks []netip.Prefix

// UnmarshalTexts parses a list of networks.
func (n *Networks) UnmarshalTexts(texts []string) error {
	*n = nil
	for _, text := range texts {
		network, err := netip.ParsePrefix(text)
		if address, single := netip.ParseAddr(text); single == nil && address.Zone() == "" {
			network, err = address.Prefix(address.BitLen())
		}
		if address := network.Addr(); address.Is4In6() {
			// addresses are compared in this form
			network = netip.PrefixFrom(address.Unmap(), network.Bits()-96)
		}
		if err != nil || !network.IsValid() {
			return fmt.Errorf("%q: want a network such as 10.0.0.0/8, or an address", text)
		}
		*n = append(*n, network.Masked())
	}
	return nil
}

// Log configures the log.
type Log struct {
	Level  string `json:"level"`  // debug, info, warn or error; default info
	Format string `json:"format"` // text or json; default text
}

// defaults returns the configuration of an empty file, without the lease, whose default depends on
// the replicas.
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
		Drain: Drain{Memory: 512 * policy.MiB},
		Grace: lifecycle.DefaultGrace,
		Set:   policy.DefaultSet,
	}
}
