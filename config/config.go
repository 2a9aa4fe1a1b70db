// Package config reads the settings of a process: its YAML file, its environment and its flags.
// [Load] is the only door: what comes out of it has been checked and is complete.
package config

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/penstock-mq/penstock/admission/schedules"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/guard"
	"github.com/penstock-mq/penstock/internal/installation"
	"github.com/penstock-mq/penstock/internal/lifecycle"
	"github.com/penstock-mq/penstock/internal/natsconn"
	"github.com/penstock-mq/penstock/policy"
)

// AdmitterListen is where an admitter serves HTTP unless http.listen says otherwise. A drainer then
// serves none.
const AdmitterListen = "127.0.0.1:8080"

// Config is the whole configuration of a process.
type Config struct {
	HTTP  HTTP  `json:"http"`
	Envoy Envoy `json:"envoy"`
	NATS  NATS  `json:"nats"`
	State State `json:"state"`
	Drain Drain `json:"drain"`
	// Targets says where HTTP targets may be.
	Targets Targets `json:"targets"`
	Log     Log     `json:"log"`
	// Grace is how long running jobs and requests may take to finish when the process is asked to
	// stop: 0 to 24h, default 30s.
	Grace time.Duration `json:"grace" zero:"meant"`
	// Set names the file's policies as a set of their own: 1 to 32 of a-z, 0-9 and -, default
	// "default". Admitters with different files need different sets; a policy belongs to one of
	// them.
	Set string `json:"set"`
	// Prune retires policies of the set that are not in the file any more, once no job waits in
	// them. Without it they stay, with a warning.
	Prune bool `json:"prune"`
	// Audit has the admitter listen to all starts and judge them by the limits.
	Audit bool `json:"audit"`
	// Policies are valid and named differently. What the file leaves out is left out here, too:
	// [policy.Policy.WithDefaults] fills it in.
	Policies []policy.Policy `json:"-"`
	// Schedules are those of the file, which are possible with its policies; nil: it has no list.
	Schedules []schedules.Entry `json:"-"`
	// Warnings are oddities to log that are no reason to refuse the configuration.
	Warnings []string `json:"-"`
}

// HTTP is the server of APIs, health and metrics.
type HTTP struct {
	// Listen is host:port. Not given, an admitter serves 127.0.0.1:8080 ([AdmitterListen]) and a
	// drainer nothing.
	Listen string `json:"listen"`
	// Tokens is the file of clients, who are known by tokens or certificates, and what they may do;
	// empty: everybody may do everything, and Listen is a loopback address unless Insecure.
	Tokens   string    `json:"tokens"`
	TLS      ServerTLS `json:"tls"`
	Insecure bool      `json:"insecure"`
	// LameDuck is how long HTTP is served at least when the process is asked to stop, with /readyz
	// answering 503, so that a load balancer notices before the listener closes: 0 to 5m, default
	// 0.
	LameDuck time.Duration `json:"lame_duck" zero:"meant"`
	// Hosts are the names that requests may know the process by besides IP addresses, localhost,
	// *.localhost and the host of Listen; "*.example.com" stands for all names below example.com.
	Hosts []string `json:"hosts,omitempty"`
	// TrustedProxies are the networks whose Penstock-IP is believed, and whose connections have no
	// bound of their own; default loopback.
	TrustedProxies Networks `json:"trusted_proxies,omitempty"`
	// MaxConnections is how many connections are served at once, default 16384, MaxPerClient how
	// many of one address, default 1024: 1 to 1,000,000.
	MaxConnections int `json:"max_connections"`
	MaxPerClient   int `json:"max_per_client"`
}

// ServerTLS names the files of a server's certificate and key, and of the authorities of clients'
// certificates.
type ServerTLS struct {
	Cert     string `json:"cert"`
	Key      string `json:"key"`
	ClientCA string `json:"client_ca"` // empty: clients show no certificates
}

// guard says how HTTP is guarded.
func (h HTTP) guard() guard.Options {
	return guard.Options{Listen: h.Listen, Tokens: h.Tokens, TLS: guard.Files(h.TLS),
		Insecure: h.Insecure}
}

// Envoy is the server of Envoy's rate limit service, for gateways. It knows who asks as HTTP does:
// by its tokens and certificates.
type Envoy struct {
	Listen string   `json:"listen"`          // "host:port"; empty: it is not served
	Files  []string `json:"files,omitempty"` // of envoyproxy/ratelimit, or directories of such
	// Headers has gateways tell their clients of the limits.
	Headers bool `json:"headers"`
	// OnStoreError is what happens while the store of limits does not answer: open, closed or
	// local; default closed, where the gateway does as it is configured to.
	OnStoreError string `json:"on_store_error"`
}

// guard says how the service is guarded, beside a server of HTTP.
func (e Envoy) guard(h HTTP) guard.Options {
	o := h.guard()
	o.Listen = e.Listen
	return o
}

// NATS says where JetStream is and how its streams are made.
type NATS struct {
	// one URL, or several with commas between them; empty: start the embedded server
	URL string `json:"url"`
	// Prefix begins subjects, and in upper case streams and KV buckets; default penstock.
	Prefix   string `json:"prefix"`
	Replicas int    `json:"replicas"` // of streams and KV buckets: 1, 3 or 5, default 1
	// Credentials are for URL; a password or token is better in a file, or in the environment.
	natsconn.Credentials
	// TLS is part of the credentials, in a group of the file.
	TLS      ClientTLS `json:"tls"`
	Embedded Embedded  `json:"embedded"`
}

// ClientTLS names the files of authorities to trust, and of a client's certificate and key.
type ClientTLS struct {
	CA   string `json:"ca"`
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

// Embedded is the NATS server inside the admitter.
type Embedded struct {
	Dir string `json:"dir"` // where it stores, default ./data/nats
	// "host:port", default 127.0.0.1:4222; empty: only this process can connect
	Listen string `json:"listen"`
	// Users is the file of users, and what each may do; empty: everybody who reaches Listen may do
	// everything, and it is a loopback address unless Insecure.
	Users    string `json:"users"`
	Insecure bool   `json:"insecure"`
	// TLS is what clients at Listen are served with; with client_ca each must show a certificate.
	TLS  ServerTLS `json:"tls"`
	Sync Sync      `json:"sync"`
	// MaxStore is how much it may store; 0, the default: half of what the disk has free or already
	// holds of it.
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

// guard says how the server inside is guarded.
func (e Embedded) guard() guard.Options {
	return guard.Options{Of: "nats.embedded", Listen: e.Listen, Tokens: e.Users,
		TLS: guard.Files(e.TLS), Insecure: e.Insecure}
}

// State says where the limits of door policies and meters keep their state.
type State struct {
	// Store is memory, in each admitter by itself, or redis, shared by all; default memory.
	Store string `json:"store"`
	// Cache is the file in which an admitter keeps the policies as it last knew them, so that one
	// that is started while NATS is away answers checks by them. Empty, the default: it answers by
	// those of the configuration file then.
	Cache string `json:"cache"`
	Redis Redis  `json:"redis"`
}

// Redis says where the store of that name is, and how long it may take.
type Redis struct {
	// Addrs are host:port of the server, of several nodes of a cluster, or of the sentinels;
	// default 127.0.0.1:6379.
	Addrs   []string `json:"addrs,omitempty"`
	Prefix  string   `json:"prefix"`  // that all keys begin with, default penstock
	Cluster bool     `json:"cluster"` // the addresses are those of a Redis Cluster
	// the name by which sentinels know the server; empty: the addresses are not those of sentinels
	Master string `json:"master_name"`
	DB     int    `json:"db" zero:"meant"` // the number of the database, 0 in a cluster
	TLS    TLS    `json:"tls"`

	// of the server's ACL
	Username         string `json:"username"`
	Password         string `json:"password" secret:"true"` // better in a variable
	SentinelUsername string `json:"sentinel_username"`      // of the sentinels ACL
	SentinelPassword string `json:"sentinel_password" secret:"true"`

	// Timeout bounds one decision, 1ms to 2s, default 50ms. Then the policy's on_store_error says
	// what happens.
	Timeout time.Duration `json:"timeout"`
}

// TLS says how a connection is secured.
type TLS struct {
	Enabled bool   `json:"enabled"` // speak TLS
	CA      string `json:"ca"`      // file of certificates to trust; empty: those of the system
	// files of the client's own certificate; empty: none
	Cert       string `json:"cert"`
	Key        string `json:"key"`
	ServerName string `json:"server_name"` // in the server's certificate; empty: the host
}

// Drain is what a drainer needs beyond its policies.
type Drain struct {
	// Lease is the drainer's proof that it is alive, and about the time that another needs to take
	// over after a crash: 1s to 10m. The default is 5s, and 15s with replicas; see
	// [installation.Lease].
	Lease time.Duration `json:"lease" zero:"meant"`
	// Memory is how much jobs that wait may take in the drainer, about: default 512MiB, at least
	// 1MiB. See [workers.Options].
	Memory   policy.Size `json:"memory"`
	Policies []string    `json:"policies,omitempty"` // whose partitions this drainer may own; empty: all
}

// Targets says where HTTP targets may be.
type Targets struct {
	// Allow are networks that are allowed besides the usual: link-local addresses are for no
	// target, addresses of the drainer's own machine and clouds' metadata services not for those of
	// policies that come through the API.
	Allow Networks `json:"allow,omitempty"`
}

// Networks are networks in CIDR notation; an address is the network of itself alone.
type Networks []netip.Prefix

// UnmarshalTexts reads the networks of a list.
func (n *Networks) UnmarshalTexts(texts []string) error {
	*n = nil
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
			return fmt.Errorf("%q: want a network such as 10.0.0.0/8, or an address", text)
		}
		*n = append(*n, network.Masked())
	}
	return nil
}

// Log says what is logged and how.
type Log struct {
	Level  string `json:"level"`  // debug, info, warn or error; default info
	Format string `json:"format"` // text or json; default text
}

// defaults returns the configuration of an empty file, except for the lease, which depends on the
// replicas.
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
