package penstock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/limiter"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/admission/schedules"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/internal/server/follow"
	"github.com/penstock-mq/penstock/internal/server/guard"
	"github.com/penstock-mq/penstock/internal/server/health"
	"github.com/penstock-mq/penstock/internal/server/installation"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
	"github.com/penstock-mq/penstock/internal/server/natsconn"
	"github.com/penstock-mq/penstock/internal/server/node"
	"github.com/penstock-mq/penstock/internal/server/policyfile"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

// Options configure [Open]. The zero value means an embedded NATS server in a temporary directory,
// which only this process can reach, without policies.
type Options struct {
	// Policies are those of Set, for all processes; nil: use the policies in NATS. See
	// [LoadPolicies]. The API cannot change them, but operators can override their numbers. While
	// processes with different Policies start in any order, the newest apply: older ones return
	// once every process has had them for a minute.
	Policies []policy.Policy
	// Set names the set of Policies; default [policy.DefaultSet]. Programs with different policies
	// on one NATS need different sets.
	Set string
	// Prune ends policies that left the set: they take no new jobs, and go once their queues are
	// empty. By default they stay, and belong to the API.
	Prune bool
	// AllowShrink lets the set become empty or lose more than half of its policies.
	AllowShrink bool
	// Schedules of Set, with jobs of Policies. Others of Set are removed, unless it is nil.
	Schedules []Schedule

	// URL of NATS 2.14 or newer, or several with commas; empty: an embedded server.
	URL         string
	Credentials Credentials      // for URL, in addition to a user and password in it
	Server      embedded.Options // default: without a port, in a temporary directory
	// StartWithoutNATS lets Open return before NATS is reachable. Until then checks follow the
	// policies in Cache, or Policies without one, and jobs are refused.
	StartWithoutNATS bool
	// Prefix of subjects and, in upper case, of streams and KV buckets; default penstock.
	Prefix   string
	Domain   string // of JetStream at URL; empty: of the server there
	Replicas int    // of streams and KV buckets: 1 (default), 3 or 5

	AdmitOnly     bool          // Run starts no jobs, and Handle panics
	DrainPolicies []string      // whose jobs this process may start; default all
	Lease         time.Duration // see [workers.Options]
	Memory        int64         // see [workers.Options]; GOMEMLIMIT is the program's own concern
	Slots         int           // see [workers.Options]
	Codec         queue.Codec   // of jobs and replies
	// AllowTargets adds networks for HTTP targets. By default link-local addresses are forbidden
	// and, to policies from the API, addresses of this machine and of metadata services.
	AllowTargets []netip.Prefix

	HTTP      HTTP          // API that Run serves; default none
	ServeNATS bool          // Run answers requests over NATS
	Grace     time.Duration // of running jobs and requests when Run ends; default 30 s

	Limits Limits        // in a shared store; nil: in memory
	Cache  string        // file of policies for StartWithoutNATS; may be empty
	Files  *Files        // reloadable files, for /readyz; nil: the files of HTTP
	Parts  func() []Part // more parts of /readyz; may be nil
	Sink   queue.Sink    // of events of this process and its jobs; may be nil
	// Submitting and Attempt, for traces: Submitting may change the header to store of a valid job,
	// and the returned function gets the outcome; for Attempt see [workers.Options].
	Submitting func(policy string, stored nats.Header) (nats.Header, func(Ticket, error))
	Attempt    func(context.Context, workers.Job) (context.Context, workers.Job, func(error))
	Logger     *slog.Logger // default [slog.Default]
	Audit      bool         // Run checks all starts: see [Penstock.Audit]
	shared     bool
}

// Files knows of each kind of reloadable file how its last read ended. A program notes the reads of
// its own files.
//
//	Observe func(files string, err error) // called by Note; may be nil
//
//	Note(files string, err error) error // a read, and returns its error
//	Part() Part                         // of /readyz
type Files = follow.Status

// Schedule submits a job of a policy again and again (docs/guide.md).
//
//	Policy, Key string
//	Name       string // several of a key need names; default "default"
//	When, Zone string // as in Penstock-Schedule and Penstock-Schedule-Zone
//	Paused   *bool  // default: unchanged
//	Body     string // of its jobs
//	Priority int
//	Cost     int64
//	Headers  map[string]string
type Schedule = schedules.Entry

// Part is a part of a program in /readyz.
//
//	Name   string   // a word, such as nats
//	Err    error    // why it makes the program unready; may be nil
//	Status string   // without names of policies, keys or files
//	Notes  []string // for clients that may read everything
type Part = health.Part

// Credentials are a user and password, a token, an nkey seed file, or a file with a JWT and a seed,
// and TLS files: of authorities, and of a client certificate. Each connection reads the files.
type Credentials struct {
	User, Password, PasswordFile string
	Token, TokenFile             string
	NKeyFile, CredsFile          string
	CA, Cert, Key                string
}

// HTTP configures the HTTP API that Run serves.
type HTTP struct {
	// Listen is a "host:port"; for port 0 see [Penstock.HTTPAddr]. An address that other machines
	// can reach requires Tokens or Insecure.
	Listen string
	// Tokens is a file of clients and their rights (docs/operate.md); empty: no access control. It
	// is reread when it changes, as are the files of TLS.
	Tokens   string
	TLS      TLS
	Insecure bool // permits other machines without Tokens
	// LameDuck keeps HTTP open after Run's context has ended, with 503 from /readyz, for load
	// balancers to notice; default 0.
	LameDuck time.Duration
	// Hosts are permitted host names in addition to IP addresses, localhost, *.localhost and the
	// host of Listen; "*.example.com" matches subdomains.
	Hosts          []string
	TrustedProxies []netip.Prefix // may send Penstock-IP, and are exempt from MaxPerClient
	// MaxConnections defaults to 16384, MaxPerClient, for an address, to 1024.
	MaxConnections, MaxPerClient int
	Metrics                      http.Handler // serves /metrics; nil: 404
}

// TLS names the files of a certificate chain, its key and, optionally, clients' authorities.
type TLS struct{ Cert, Key, ClientCA string }

func (h HTTP) guard() guard.Options {
	return guard.Options{Listen: h.Listen, Tokens: h.Tokens, TLS: guard.Files(h.TLS),
		Insecure: h.Insecure}
}

// Limits makes the limiters of policies, as [*limiter.Factory] does.
type Limits interface {
	Limit(p policy.Policy, previous admission.Limiter) (admission.Limit, error)
	Possible(p policy.Policy) []policy.Problem // why the store cannot hold its limits
	SetLive(n int)                             // processes that share the limits
}

func (o Options) wanted() node.Wanted {
	return node.Wanted{Set: store.Set{Name: cmp.Or(o.Set, policy.DefaultSet),
		Policies: o.Policies, Prune: o.Prune, Shrink: o.AllowShrink}, Schedules: o.Schedules}
}

func (o Options) withDefaults() Options {
	o.Set = cmp.Or(o.Set, policy.DefaultSet)
	o.Replicas = cmp.Or(o.Replicas, 1)
	o.Grace = cmp.Or(o.Grace, lifecycle.DefaultGrace)
	if o.Files == nil {
		o.Files = new(Files)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Server.Logger == nil {
		o.Server.Logger = o.Logger
	}
	o.Server.Prefix = cmp.Or(o.Server.Prefix, o.Prefix)
	if o.shared = o.Limits != nil; !o.shared {
		o.Limits = limiter.New(limiter.Options{Logger: o.Logger})
	}
	return o
}

func (o Options) check() error {
	problems := []error{o.checkPolicies()}
	add := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("options: "+format, args...))
	}
	if _, err := jet.NewNames(o.Prefix); err != nil {
		add("Prefix: %w", err)
	}
	if err := installation.CheckDomain(o.Domain, o.URL); err != nil {
		add("Domain: %w", err)
	}
	if o.Replicas > 1 && o.URL == "" {
		add("Replicas: must be 1, not %d, with the embedded server", o.Replicas)
	} else if err := installation.CheckReplicas(o.Replicas); err != nil {
		add("Replicas: %w", err)
	}
	if err := natsconn.Credentials(o.Credentials).Check(); err != nil {
		add("Credentials: %w", err)
	}
	if o.Lease != 0 && o.Lease < time.Second {
		add("Lease: must be at least 1s, not %s", o.Lease)
	}
	if o.Memory != 0 && o.Memory < workers.LeastMemory {
		add("Memory: must be at least %d bytes, not %d", workers.LeastMemory, o.Memory)
	}
	if field, err := o.HTTP.guard().Check(); err != nil {
		add("HTTP, %s: %w", field, err)
	}
	if o.HTTP.LameDuck < 0 {
		add("HTTP.LameDuck: must not be negative")
	}
	return errors.Join(problems...)
}

func (o Options) checkPolicies() error {
	return o.wanted().Check(cmp.Or(o.Prefix, jet.DefaultPrefix), o.Limits.Possible)
}

// LoadPolicies reads the list `policies` of a YAML file, such as a configuration file. The error
// joins all problems with their places: `penstock.yaml:7: policies[2].outflow: "10/x": …`.
func LoadPolicies(name string) ([]policy.Policy, error) {
	return policyfile.Load(name)
}

// MustRate parses a rate such as "96/s", "10/m" or "3/10s", and panics if it is invalid.
func MustRate(text string) algorithms.Rate {
	r, err := algorithms.ParseRate(text)
	if err != nil {
		panic("penstock: " + err.Error())
	}
	return r
}
