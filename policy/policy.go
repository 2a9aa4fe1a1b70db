// Package policy defines what a named rule is: its algorithm and numbers, its queue and its target.
// It is the one form that configuration files, the policies' bucket in JetStream and every process
// share.
package policy

import (
	"reflect"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// Algorithm names one of the five rate-limiting algorithms.
type Algorithm string

// The five algorithms, as configuration spells them.
const (
	TokenBucket    Algorithm = "token_bucket"
	LeakingBucket  Algorithm = "leaking_bucket"
	FixedWindow    Algorithm = "fixed_window"
	SlidingLog     Algorithm = "sliding_log"
	SlidingCounter Algorithm = "sliding_counter"
)

// DefaultSet is the set that the policies of a file belong to unless the file names its own.
const DefaultSet = "default"

// Duration is a time.Duration that reads and writes text with units up to days and weeks ("30s",
// "1d").
type Duration time.Duration

// Rule is an algorithm and its numbers: those of a policy, or of one of its limits. They are read,
// distinguished and compared by their fields here. algorithmFields says which algorithm has which,
// checkNumbers what their ranges are, and [Limit.Share] divides them.
type Rule struct {
	Algorithm Algorithm `json:"algorithm,omitempty"`

	// Leaking bucket. Outflow is the rate at which a bucket starts jobs, Burst how many may start
	// together after idleness (default 1), Capacity the most jobs a bucket holds: waiting, backing
	// off and running.
	Outflow  algorithms.Rate `json:"outflow,omitzero"`
	Burst    int64           `json:"burst,omitempty"`
	Capacity int64           `json:"capacity,omitempty"` // also the tokens of a token bucket

	Refill algorithms.Rate `json:"refill,omitzero"`  // token bucket
	Limit  int64           `json:"limit,omitempty"`  // fixed window, sliding log, sliding counter
	Window Duration        `json:"window,omitempty"` // the same three

	// Zone is whose days, weeks or months the windows of a fixed window are, which Window must be
	// whole ones of; default UTC.
	Zone string `json:"zone,omitempty"`

	// Count is what a sliding log records: default all, accepted in one of several limits.
	Count Count `json:"count,omitempty"`
}

// Policy is one named rule, or several limits under one name. Field names in JSON are those of the
// YAML file. A zero number means "not given"; see [Policy.WithDefaults].
type Policy struct {
	Name string `json:"name"` // 1 to 32 of a-z, 0-9 and -; fixed at creation
	Rule

	// Limits take the place of the rule: a request passes if all of them let it pass, and a refusal
	// takes nothing from any. Those of a leaking bucket with a queue stand beside its rule: every
	// start of a bucket obeys all of them, and the Outflow may be left out.
	Limits Limits `json:"limits,omitempty"`

	// Shadow has a policy that decides at the door, or a meter, refuse nothing and count what it
	// would have refused.
	Shadow bool `json:"shadow,omitempty"`

	// Guard is by how much longer the windows of limits on starts are kept, since the other side
	// counts what arrives there and not what starts here; default 50ms, or an eighth of the
	// shortest window.
	Guard Duration `json:"guard,omitempty"`

	// Adapt has each bucket learn at which rate its target throttles, below the Outflow: for
	// targets whose limit is not known.
	Adapt *Adapt `json:"adapt,omitempty"`

	// OutflowTotal is the rate at which all buckets of a leaking bucket with a queue together start
	// jobs, in fair turns. With it Outflow, the rate of each, may be left out. It needs one
	// partition, which is the default then.
	OutflowTotal algorithms.Rate `json:"outflow_total,omitzero"`

	// Weight is the policy's share of the turns that it takes with those that share a limit with
	// it, 1 to 1000 ([MaxWeight]), default 1. Its keys share its turns by their own.
	Weight int64 `json:"weight,omitempty"`

	// Peak is the rate that a bucket's starts keep to in any window of a second or more while it
	// makes up for lateness: at least the Outflow, which is the rate on average. Default 1.25 %
	// above it. PeakTotal is the same beside OutflowTotal.
	Peak      algorithms.Rate `json:"peak,omitzero"`
	PeakTotal algorithms.Rate `json:"peak_total,omitzero"`

	Queue *Queue `json:"queue,omitempty"`

	// OnStoreError is how requests are answered while the store of the limits cannot be asked;
	// default closed.
	OnStoreError OnStoreError `json:"on_store_error,omitempty"`

	// How jobs run. Concurrency is how many jobs of one bucket run at once, 0 for no limit; Workers
	// how many jobs of this policy run at once in one drainer (default 64).
	Concurrency int `json:"concurrency,omitempty" zero:"meant"`
	Workers     int `json:"workers,omitempty"`
	// default 1; fixed at creation
	Partitions int      `json:"partitions,omitempty"`
	Timeout    Duration `json:"timeout,omitempty"` // of one attempt, default 30s
	MaxAge     Duration `json:"max_age,omitempty"` // of a waiting job, default 14d

	// DuplicateWindow is for how long after a job was accepted another one with its
	// Idempotency-Key, or its Nats-Msg-Id, is its repeat; default 10m, 1s to 7d. The server keeps
	// the ids of all jobs of that time in memory, at some 150 bytes.
	DuplicateWindow Duration `json:"duplicate_window,omitempty"`

	// KeepDone is for how long it is kept how jobs ended, the last 100,000 of them at most; not
	// given, only dead letters and what repeats need are. 1s to 7d.
	KeepDone Duration `json:"keep_done,omitempty"`

	// PriorityStep is the time of waiting that one step of priority is worth: a job goes before
	// those of a lower priority that came less than a step earlier for each step between the two.
	// So one of the least priority starts in the end, however many others come. Not given, the
	// highest priority goes first, whoever waits.
	PriorityStep Duration `json:"priority_step,omitempty"`

	Target *Target `json:"target,omitempty"`
	// Callbacks names the queue policy through which the outcomes of jobs are posted to the URLs
	// that their submitters name. Its target's URL is "{callback}". Empty: jobs may name none.
	Callbacks string `json:"callbacks,omitempty"`
	// MaxJobs is the most jobs that the policy holds over all its buckets; what is more is refused.
	// See [Policy.QueueJobs].
	MaxJobs int64 `json:"max_jobs,omitempty"`
	// MaxBytes bounds what the policy's stream holds, over all buckets: headers, bodies and some 30
	// bytes for each job. What does not fit is refused. Not given, it is a share of the store,
	// where that has a known size.
	MaxBytes Size  `json:"max_bytes,omitempty"`
	Dead     Dead  `json:"dead,omitzero"`
	Retry    Retry `json:"retry,omitzero"`
}

// Count says which requests a sliding log records.
type Count string

// CountAll records refused requests too, so that a client that hammers stays out; CountAccepted
// only accepted ones.
const (
	CountAll      Count = "all"
	CountAccepted Count = "accepted"
)

// OnStoreError is one of three ways to go on without the store.
type OnStoreError string

// Open lets every request pass. Closed refuses all of them, as an error and not as a refusal of the
// limit. Local decides in memory, by a fair share of the limit for each live admitter.
const (
	Open   OnStoreError = "open"
	Closed OnStoreError = "closed"
	Local  OnStoreError = "local"
)

// Queue is the `queue:` field: false, or {capacity: N}. It is nil if it was not given.
type Queue struct {
	Off      bool  `json:"-"` // queue: false
	Capacity int64 `json:"capacity,omitempty"`
}

// Target is where jobs of a policy go when no Go handler runs them: exactly one of these.
type Target struct {
	HTTP *HTTPTarget `json:"http,omitempty"`
	NATS *NATSTarget `json:"nats,omitempty"`
}

// SameTarget reports whether two policies have the same target.
func (p Policy) SameTarget(other Policy) bool { return reflect.DeepEqual(p.Target, other.Target) }

// NATSTarget is the subject of a service that answers requests: a NATS micro service or any other
// responder.
type NATSTarget struct {
	Subject string `json:"subject"` // gets each job as a request
	// headers that producers may forward; default: as for HTTP
	Forward Forward `json:"forward,omitzero"`
}

// CallbackURL stands for the URL of a policy's target whose jobs are outcomes of others, and go
// where these say.
const CallbackURL = "{callback}"

// Calls reports whether the jobs of a target are outcomes of others, on their way to those who
// asked for them.
func (t *Target) Calls() bool { return t != nil && t.HTTP != nil && t.HTTP.URL == CallbackURL }

// HTTPTarget is the base URL that an HTTP target's requests go to; a job's path is appended.
type HTTPTarget struct {
	URL string `json:"url"` // https:// or http://, a host, and perhaps a path

	// Headers are added to each request, over those that jobs forward. Only policies of the
	// operator's file have them.
	Headers TargetHeaders `json:"headers,omitempty"`
	// Sign has each request signed, so that the target knows that it comes from here and when. Only
	// policies of the operator's file have it.
	Sign *Signing `json:"sign,omitempty"`

	// Settle says where an answer tells what its job turned out to cost, by the names of costs that
	// limits count.
	Settle Settle `json:"settle,omitempty"`

	// Hints is whether the bucket of a job pauses when an answer says that nothing is left of what
	// the target allows, until there is; default true.
	Hints *bool `json:"hints,omitempty"`

	// What producers may ask of the target. Forward are the headers that they may forward (default:
	// all but those of a connection, a proxy, NATS and Penstock), Methods the methods of jobs, of
	// which the first is the default (default: any, POST), PathPrefix where the paths of jobs lie
	// (default: anywhere below the URL). A job without a path goes to the URL itself.
	Forward    Forward  `json:"forward,omitzero"`
	Methods    []string `json:"methods,omitzero"`
	PathPrefix *string  `json:"path_prefix,omitempty"`
}

// ReadsHints reports whether answers are looked at for what they say of the target's limits.
func (t *HTTPTarget) ReadsHints() bool { return t.Hints == nil || *t.Hints }

// Signing is where the key is that requests are signed with: a file of the drainer's machine.
type Signing struct {
	HMACFile string `json:"hmac_file"` // at least 16 bytes
}

// Adapt says how buckets learn the limit of their target.
type Adapt struct {
	// Min is the rate that a bucket keeps however often its target throttles; default a hundredth
	// of the outflow.
	Min algorithms.Rate `json:"min,omitzero"`
}

// DefaultAdaptMin is the least rate of [Adapt] as a part of the outflow.
const DefaultAdaptMin = 0.01

// Dead says how many dead letters of a policy are kept.
type Dead struct {
	// MaxBytes bounds the letters; the oldest go when there are more. Not given, it is a share of
	// the store, where that has a known size, and 1GiB elsewhere.
	MaxBytes Size `json:"max_bytes,omitempty"`
	// Bodies is whether a letter has its job's body, without which it cannot be replayed; default
	// true.
	Bodies *bool `json:"bodies,omitempty"`
}

// KeepsBodies reports whether letters have their jobs' bodies.
func (d Dead) KeepsBodies() bool { return d.Bodies == nil || *d.Bodies }

// Retry says how failed attempts are repeated.
type Retry struct {
	MaxAttempts int `json:"max_attempts,omitempty"` // default 25
	// before the second attempt, then doubled; default 1s. Of each wait half is certain, the rest
	// random
	Backoff Duration `json:"backoff,omitempty"`
	// default 1h; with the other defaults a job is tried for 7 to 13 hours
	MaxBackoff Duration `json:"max_backoff,omitempty"`
	// longest pause a throttling target can ask for; default 1h
	MaxCooldown Duration `json:"max_cooldown,omitempty"`
}
