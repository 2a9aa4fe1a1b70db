package penstock

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/limiter"
	"github.com/penstock-mq/penstock/admission/schedules"
	"github.com/penstock-mq/penstock/admission/watch"
	"github.com/penstock-mq/penstock/internal/follow"
	"github.com/penstock-mq/penstock/internal/guard"
	"github.com/penstock-mq/penstock/internal/installation"
	"github.com/penstock-mq/penstock/internal/lifecycle"
	"github.com/penstock-mq/penstock/internal/natsconn"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/policy/store"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers"
)

// Options of [Open]. The zero value works: a server inside the process that only this process can
// reach, in a temporary directory, without a policy.
type Options struct {
	// Policies are written for all processes of the installation; fields that are left out have
	// their defaults. One whose content is what a file or a program last wrote is left as it is, so
	// that a restart undoes no change that an operator has made since. Nil: nothing is written, and
	// the policies are those that NATS has. See [LoadPolicies].
	Policies []policy.Policy
	// Set names Policies as a set of their own; default [policy.DefaultSet]. A policy belongs to
	// one set only: programs with different policies on one NATS need different sets.
	Set string
	// Prune retires policies of the set that are not among Policies any more, once no job waits in
	// them. Without it they stay, with a warning in the log.
	Prune bool
	// Schedules are those of Set, of jobs of Policies. One is written when its content is not what
	// it last was in Schedules, so that a restart undoes no change since, and removed when it has
	// left them. Nil: those of before go on.
	Schedules []schedules.Entry

	// URL is where NATS is, 2.14 or newer: one URL, or several with commas between them. Empty: a
	// server inside.
	URL string
	// Credentials show the NATS at URL who this process is, besides what the URL holds.
	Credentials Credentials
	// Server says how the server inside stores and listens. The zero value has no port, and keeps
	// jobs in a temporary directory, which goes with the process: Open warns of that.
	Server embedded.Options
	// StartWithoutNATS lets Open succeed although NATS cannot be reached; it then asks nothing of
	// NATS, and Run goes on trying. Until NATS is there, checks follow the policies in Cache,
	// or else Policies, and no job is taken.
	StartWithoutNATS bool
	// Prefix begins all subjects, and in upper case all streams and KV buckets; default
	// [queue.DefaultPrefix].
	Prefix string
	// Replicas is how many servers of a cluster keep each stream and KV bucket: 1, the default, 3
	// or 5.
	Replicas int

	// AdmitOnly leaves the jobs to other processes: Run starts none, and there are no handlers.
	AdmitOnly bool
	// DrainPolicies are those whose jobs this process may start; default all. See
	// [workers.Options].
	DrainPolicies []string
	// Lease is how long this process's proof of life lasts, and so about how long its jobs stand
	// still after it crashed; default 5 s, or 15 s with replicas; at least 1 s.
	Lease time.Duration
	// Memory is how much jobs that wait may take in this process, in bytes, about: default 512 MiB,
	// at least 1 MiB. See [workers.Options].
	Memory int64
	// AllowTargets are networks that HTTP targets may be in besides the usual: link-local addresses
	// are for no target, those of this machine and of metadata services not for policies that come
	// through the API.
	AllowTargets []netip.Prefix

	// HTTP is where Run serves the HTTP API; by default nowhere.
	HTTP HTTP
	// ServeNATS has Run answer penstock.submit and penstock.check over NATS, sharing these requests
	// with all other processes that do.
	ServeNATS bool
	// Grace is how long jobs and requests that are under way may go on when Run ends; default 30 s.
	Grace time.Duration

	// Limits makes what decides for policies that decide at the door, and for meters, over a store
	// that processes share: [*limiter.Factory] over Redis does. Nil: in memory.
	Limits Limits
	// Cache is a file to keep the policies in, for StartWithoutNATS. Empty: none is kept.
	Cache string
	// Files knows for /readyz which of the process's files are bad; nil: it knows those of HTTP.
	// Penstock's commands follow more files than these.
	Files *follow.Status
	// Observer hears what happens; default nobody does.
	Observer Observer
	// Logger gets state changes and warnings; default [slog.Default].
	Logger *slog.Logger

	// Audit has Run listen to all starts and judge them by their limits. Package workers/audit says
	// what that costs.
	Audit bool

	shared bool // Limits were given
}

// Credentials are how a process shows a NATS server who it is, and knows the server: by user and
// password, by a token, or by a file with the seed of an nkey, or with a JWT and a seed. Passwords
// and tokens may be in files as well. CA, Cert and Key are files for TLS: authorities to trust, and
// a certificate of our own. Files are read again for each connection.
type Credentials struct {
	User, Password, PasswordFile string
	Token, TokenFile             string
	NKeyFile, CredsFile          string

	CA, Cert, Key string
}

// HTTP says where and how Run serves the HTTP API.
type HTTP struct {
	// Listen is a "host:port"; port 0 takes a free one, see [Penstock.HTTPAddr]. Empty: HTTP is not
	// served. An address that other machines can reach needs Tokens, or Insecure.
	Listen string
	// Tokens is a file of clients: who may ask, by a token or a certificate, and for what; see
	// docs/operate.md. It is followed when it changes. Empty: everybody may ask for everything.
	Tokens string
	// TLS names the files of certificates, which are followed when they change; the zero value is
	// plain HTTP.
	TLS TLS
	// Insecure permits an address that others can reach although everybody may ask for everything.
	Insecure bool
	// LameDuck is for how long at least HTTP is served after Run's context has ended, with /readyz
	// answering 503, so that a load balancer notices before the port closes; default 0.
	LameDuck time.Duration
	// Hosts are the names by which requests may know this process besides IP addresses, localhost,
	// *.localhost and the host of Listen; "*.example.com" stands for all names below example.com.
	Hosts []string
	// TrustedProxies are the networks whose Penstock-IP is believed, and whose connections have no
	// bound of their own; default none.
	TrustedProxies []netip.Prefix
	// MaxConnections is how many connections are served at once, default 16384, MaxPerClient how
	// many of one address, default 1024.
	MaxConnections, MaxPerClient int
	// Metrics serves /metrics; default: not found.
	Metrics http.Handler
}

// TLS names the files of a server: its certificate, with those that lead to an authority behind it,
// its key, and the authorities of clients' certificates, which may be left out.
type TLS struct{ Cert, Key, ClientCA string }

// guard says how HTTP is guarded.
func (h HTTP) guard() guard.Options {
	return guard.Options{Listen: h.Listen, Tokens: h.Tokens, TLS: guard.Files(h.TLS),
		Insecure: h.Insecure}
}

// Limits makes the limiters of policies. [*limiter.Factory] is one.
type Limits interface {
	// Limit is an [admission.NewLimit].
	Limit(p policy.Policy, previous admission.Limiter) (admission.Limit, error)
	// Possible returns what keeps the store from having a policy's limits.
	Possible(p policy.Policy) []policy.Problem
	// SetLive takes the number of processes that share the limits, this one among them.
	SetLive(n int)
}

// withDefaults fills in what was left out.
func (o Options) withDefaults() Options {
	o.Set = cmp.Or(o.Set, policy.DefaultSet)
	o.Replicas = cmp.Or(o.Replicas, 1)
	o.Grace = cmp.Or(o.Grace, lifecycle.DefaultGrace)
	o.Observer = o.Observer.complete()
	if o.Files == nil {
		o.Files = new(follow.Status)
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

// check returns everything that is wrong with options, as far as they alone show it.
func (o Options) check() error {
	problems := []error{o.checkPolicies()}
	add := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("options: "+format, args...))
	}
	if _, err := queue.NewNames(o.Prefix); err != nil {
		add("Prefix: %w", err)
	}
	if o.Replicas > 1 && o.URL == "" {
		add("Replicas: must be 1, not %d, for the server inside: it is a single one", o.Replicas)
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

// checkPolicies returns everything that is wrong with the policies.
func (o Options) checkPolicies() error {
	var problems []error
	first := map[string]int{}
	for i, p := range o.Policies {
		found := append(p.Validate(), p.CheckPrefix(cmp.Or(o.Prefix, queue.DefaultPrefix))...)
		if len(found) == 0 {
			found = o.Limits.Possible(p)
		}
		if before, twice := first[p.Name]; twice && p.Name != "" {
			found = append(found, policy.Problem{Field: "name",
				Reason: fmt.Sprintf("is that of Policies[%d] already", before)})
		} else {
			first[p.Name] = i
		}
		for _, problem := range found {
			problems = append(problems, fmt.Errorf("options: Policies[%d].%s", i, problem))
		}
	}
	if err := policy.CheckSet(cmp.Or(o.Set, policy.DefaultSet)); err != nil {
		problems = append(problems, fmt.Errorf("options: Set: %w", err))
	}
	for _, problem := range schedules.Check(o.Schedules, o.Policies) {
		problems = append(problems, fmt.Errorf("options: Schedules%s", problem))
	}
	return errors.Join(problems...)
}

// The two APIs, as [Observer.Answered] names them.
const (
	APIHTTP = "http"
	APINATS = "nats"
)

// Observer hears what happens in this process. Each function may be nil; they are called from many
// goroutines and must return at once. Policies are known ones only, so that their number is
// bounded.
type Observer struct {
	// Submitting is [admission.Options.Submitting]: for traces.
	Submitting func(policy string, stored nats.Header) (nats.Header, func(Ticket, error))
	// Admitted gets the verdict on each submitted job.
	Admitted func(policy string, verdict admission.Verdict)
	// Checked gets the answer to each check, but not to peeks.
	Checked func(policy string, allowed bool)
	// Shadowed gets what a limit with shadow: true would have done: over says that it would have
	// refused or delayed a request, by that time.
	Shadowed func(policy, limit string, over bool, by time.Duration)
	// Ticked gets what became of a tick of a schedule: submitted, refused (its bucket is full, and
	// it is tried again) or missed.
	Ticked func(policy, outcome string)
	// Answered gets the status of each answer of an API, [APIHTTP] or [APINATS].
	Answered func(api string, status int)

	// Policies gets the policies that this process follows from now on.
	Policies func(policy.Entries)
	// Unowned reports that jobs of a policy wait while no drainer owns it, or that this is over.
	Unowned func(policy string, unowned bool)
	// ApplyFailed reports whether the last change of a policy failed to be applied to its stream.
	ApplyFailed func(policy string, failed bool)
	// Inventory gets every few seconds what is stored of policies.
	Inventory func(store.Inventory)
	// Retired gets each policy that this process has retired because of Prune.
	Retired func(policy string)

	// Stored gets every few seconds what JetStream stores.
	Stored func(queue.Storage)
	// Writable reports every second whether the server inside can write.
	Writable func(writable bool)

	// Drain hears what the jobs that this process starts come to.
	Drain workers.Observer
}

// complete returns the observer with functions that do nothing in place of the missing ones.
func (o Observer) complete() Observer {
	if o.Admitted == nil {
		o.Admitted = func(string, admission.Verdict) {}
	}
	if o.Checked == nil {
		o.Checked = func(string, bool) {}
	}
	if o.Shadowed == nil {
		o.Shadowed = func(string, string, bool, time.Duration) {}
	}
	if o.Ticked == nil {
		o.Ticked = func(string, string) {}
	}
	if o.Answered == nil {
		o.Answered = func(string, int) {}
	}
	if o.Policies == nil {
		o.Policies = func(policy.Entries) {}
	}
	if o.Unowned == nil {
		o.Unowned = func(string, bool) {}
	}
	if o.ApplyFailed == nil {
		o.ApplyFailed = func(string, bool) {}
	}
	if o.Inventory == nil {
		o.Inventory = func(store.Inventory) {}
	}
	if o.Retired == nil {
		o.Retired = func(string) {}
	}
	if o.Stored == nil {
		o.Stored = func(queue.Storage) {}
	}
	if o.Writable == nil {
		o.Writable = func(bool) {}
	}
	return o
}

// counted are the metrics of the service of admission.
type counted struct {
	Observer
	watch  *watch.Watch
	broker *queue.Broker
}

// Admitted implements [admission.Metrics].
func (c counted) Admitted(policy string, k job.Key, verdict string) {
	c.Observer.Admitted(policy, admission.Verdict(verdict))
	if admission.Verdict(verdict) == admission.Rejected {
		c.watch.Refused(policy, k)
		c.broker.Count(policy, queue.CountRefused, 1)
	}
}

// Checked implements [admission.Metrics].
func (c counted) Checked(policy string, k job.Key, allowed bool) {
	c.Observer.Checked(policy, allowed)
	c.watch.Checked(policy, k, allowed)
}

// Shadowed implements [admission.Metrics].
func (c counted) Shadowed(policy, limit string, over bool, by time.Duration) {
	c.Observer.Shadowed(policy, limit, over, by)
	c.watch.Shadowed(policy, limit, over, by)
}

// reportStatus reports the statuses of a handler's answers.
func reportStatus(handler http.Handler, answered func(api string, status int)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(&statusWriter{w, answered}, r)
	})
}

// statusWriter reports the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	answered func(api string, status int)
}

// WriteHeader implements [http.ResponseWriter].
func (w *statusWriter) WriteHeader(status int) {
	w.answered(APIHTTP, status)
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets an [http.ResponseController] reach the writer of the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
