// Package policy defines policies: an algorithm with its numbers, a queue and a target.
// Configuration files, JetStream and all processes use this form.
package policy

import (
	"reflect"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// Algorithm names one of the five rate-limiting algorithms.
type Algorithm string

// The five algorithms.
const (
	TokenBucket    Algorithm = "token_bucket"
	LeakingBucket  Algorithm = "leaking_bucket"
	FixedWindow    Algorithm = "fixed_window"
	SlidingLog     Algorithm = "sliding_log"
	SlidingCounter Algorithm = "sliding_counter"
)

// DefaultSet is the set of a file that names none.
const DefaultSet = "default"

// Duration is a time.Duration as text with units up to days and weeks ("30s", "1d").
type Duration time.Duration

// Rule is an algorithm with its numbers. algorithmFields lists the fields of each algorithm,
// checkNumbers has their ranges, and [Limit.Share] divides them.
type Rule struct {
	Algorithm Algorithm `json:"algorithm,omitempty"`

	// Leaking bucket. Outflow is the rate at which a bucket starts jobs, Burst the number that may
	// start together after idleness (default 1), Capacity the most jobs it holds: waiting, backing
	// off and running.
	Outflow  algorithms.Rate `json:"outflow,omitzero"`
	Burst    int64           `json:"burst,omitempty"`
	Capacity int64           `json:"capacity,omitempty"` // also the tokens of a token bucket

	Refill algorithms.Rate `json:"refill,omitzero"`  // token bucket
	Limit  int64           `json:"limit,omitempty"`  // fixed window, sliding log, sliding counter
	Window Duration        `json:"window,omitempty"` // the same three

	// Zone is the time zone of a fixed window of days, weeks or months; default UTC.
	Zone string `json:"zone,omitempty"`

	// Count selects the requests that a sliding log records: all, or those accepted, the default in
	// one of several limits.
	Count Count `json:"count,omitempty"`
}

// Policy is a named rule, or several limits. JSON uses the names of the YAML file. A zero number
// means "not given".
type Policy struct {
	Name string `json:"name"` // 1 to 32 of a-z, 0-9 and -; fixed at creation
	Rule

	// Limits replace the rule: a request must pass all of them, and a refusal takes nothing from
	// any. Of a leaking bucket with a queue they bound the starts, in addition to the rule, and
	// Outflow may be left out.
	Limits Limits `json:"limits,omitempty"`

	// Shadow makes a door policy or a meter allow everything, and count its refusals.
	Shadow bool `json:"shadow,omitempty"`

	// WindowMargin extends the windows of limits on starts, because the target counts arrivals;
	// default 50ms, or an eighth of the shortest window.
	WindowMargin Duration `json:"window_margin,omitempty"`

	// AdaptiveRate lets each bucket learn an unknown limit of its target, below Outflow.
	AdaptiveRate *AdaptiveRate `json:"adaptive_rate,omitempty"`

	// OutflowTotal is the rate of all buckets of a leaking bucket with a queue together, in fair
	// turns. Outflow may then be left out. It needs one partition, the default in this case.
	OutflowTotal algorithms.Rate `json:"outflow_total,omitzero"`

	// Weight is the policy's share of the turns under shared limits, and of a worker's slots, 1
	// (default) to [MaxWeight], which its keys divide by their weights.
	Weight int64 `json:"weight,omitempty"`

	// Peak is the rate that no window of a second or more exceeds while a bucket catches up;
	// default 1.25 % above Outflow. PeakTotal is the same for OutflowTotal.
	Peak      algorithms.Rate `json:"peak,omitzero"`
	PeakTotal algorithms.Rate `json:"peak_total,omitzero"`

	Queue *Queue `json:"queue,omitempty"`

	// OnStoreError applies while the store of limits is unavailable; default closed.
	OnStoreError OnStoreError `json:"on_store_error,omitempty"`

	// Concurrency bounds the running jobs of a bucket, 0: no limit; Workers those of the policy in
	// one drainer, default 64.
	Concurrency int `json:"concurrency,omitempty" zero:"meant"`
	Workers     int `json:"workers,omitempty"`
	// default 1; fixed at creation
	Partitions int      `json:"partitions,omitempty"`
	Timeout    Duration `json:"timeout,omitempty"` // of one attempt, default 30s
	MaxAge     Duration `json:"max_age,omitempty"` // of a waiting job, default 14d

	// DuplicateWindow is how long another job with the same Idempotency-Key or Nats-Msg-Id is a
	// repeat: 1s to 7d, default 10m. The server keeps these ids in memory, about 150 bytes each.
	DuplicateWindow Duration `json:"duplicate_window,omitempty"`

	// ResultRetention is how long ended jobs are kept, at most the last 100,000: 1s to 7d. Not
	// given, only dead letters and ids of repeats are.
	ResultRetention Duration `json:"result_retention,omitempty"`

	// PriorityStep is the waiting time that one step of priority is worth, so every job starts
	// eventually. Not given, the highest priority always goes first. A job that has waited for the
	// steps up to priority 9 also shares the starts equally with calls.
	PriorityStep Duration `json:"priority_step,omitempty"`

	Target *Target `json:"target,omitempty"`
	// Callbacks names the queue policy, with the target's URL "{callback}", that posts outcomes to
	// the URLs given by submitters. Empty: jobs may not name any.
	Callbacks string `json:"callbacks,omitempty"`
	// MaxJobs bounds the jobs in all buckets; see [Policy.QueueJobs].
	MaxJobs int64 `json:"max_jobs,omitempty"`
	// MaxBytes bounds the policy's stream: headers, bodies and about 30 bytes per job. Not given,
	// it is a share of the store, if its size is known.
	MaxBytes Size  `json:"max_bytes,omitempty"`
	Dead     Dead  `json:"dead,omitzero"`
	Retry    Retry `json:"retry,omitzero"`
}

type Count string

// CountAll also records refused requests, which keeps a hammering client out.
const (
	CountAll      Count = "all"
	CountAccepted Count = "accepted"
)

// OnStoreError is the behaviour without the store.
type OnStoreError string

// Closed answers with an error, not a refusal. Local decides in memory, by an equal share of the
// limit per live admitter.
const (
	Open   OnStoreError = "open"
	Closed OnStoreError = "closed"
	Local  OnStoreError = "local"
)

// Queue is the `queue:` field: false, or {capacity: N}; nil: not given.
type Queue struct {
	Off      bool  `json:"-"` // queue: false
	Capacity int64 `json:"capacity,omitempty"`
}

// Target is where jobs go without a Go handler: exactly one of these.
type Target struct {
	HTTP *HTTPTarget `json:"http,omitempty"`
	NATS *NATSTarget `json:"nats,omitempty"`
}

func (p Policy) SameTarget(other Policy) bool { return reflect.DeepEqual(p.Target, other.Target) }

// NATSTarget receives each job as a request.
type NATSTarget struct {
	Subject string `json:"subject"` // receives each job as a request
	// headers that producers may forward; default: as for HTTP
	Forward Forward `json:"forward,omitzero"`
}

// CallbackURL is the placeholder URL of a target whose jobs are callbacks.
const CallbackURL = "{callback}"

// Calls reports whether the target's jobs are callbacks.
func (t *Target) Calls() bool { return t != nil && t.HTTP != nil && t.HTTP.URL == CallbackURL }

// HTTPTarget is the base URL of requests; a job's path is appended.
type HTTPTarget struct {
	URL string `json:"url"` // https:// or http://, a host, and perhaps a path

	// Headers are added to each request and override forwarded ones; only for policies of the
	// operator's file.
	Headers TargetHeaders `json:"headers,omitempty"`
	// Sign proves the origin and time of requests; only for policies of the operator's file.
	Sign *Signing `json:"sign,omitempty"`
	// OAuth2 adds an access token to each request, in Authorization; only for policies of the
	// operator's file.
	OAuth2 *OAuth2 `json:"oauth2,omitempty"`
	// TLS of connections to the target; only for policies of the operator's file.
	TLS ClientTLS `json:"tls,omitzero"`

	// CostFromResponse says where an answer reports the actual costs of its job, by name.
	CostFromResponse CostFromResponse `json:"cost_from_response,omitempty"`

	// RateLimitHeaders: a bucket pauses when an answer reports that the target's limit is used up;
	// default true.
	RateLimitHeaders *bool `json:"rate_limit_headers,omitempty"`

	// Forward are the headers that producers may forward (default: all but those of a connection, a
	// proxy, NATS and Penstock), Methods the methods of jobs, the default first (default: any,
	// POST), PathPrefix the prefix of their paths (default: the URL).
	Forward    Forward  `json:"forward,omitzero"`
	Methods    []string `json:"methods,omitzero"`
	PathPrefix *string  `json:"path_prefix,omitempty"`
}

func (t *HTTPTarget) ReadsRateLimitHeaders() bool {
	return t.RateLimitHeaders == nil || *t.RateLimitHeaders
}

// Signing names the key file on the drainer's machine.
type Signing struct {
	HMACFile string `json:"hmac_file"` // at least 16 bytes
}

// OAuth2 are client credentials (RFC 6749, section 4.4). Drainers renew tokens before they expire,
// and when the target answers 401.
type OAuth2 struct {
	TokenURL         string   `json:"token_url"`
	ClientID         string   `json:"client_id"`
	ClientSecretFile string   `json:"client_secret_file"` // an absolute path; reread when it changes
	Scopes           []string `json:"scopes,omitempty"`
	// Params are further parameters of token requests, such as audience.
	Params map[string]string `json:"params,omitempty"`
	TLS    ClientTLS         `json:"tls,omitzero"` // of connections to TokenURL
}

// ClientTLS names files, which are reread when they change.
type ClientTLS struct {
	CA   string `json:"ca,omitempty"`   // of trusted certificates; empty: the system's
	Cert string `json:"cert,omitempty"` // of a client certificate; empty: none
	Key  string `json:"key,omitempty"`
}

// AdaptiveRate configures how buckets learn the limit of their target.
type AdaptiveRate struct {
	// lowest rate; default a hundredth of the outflow
	Min algorithms.Rate `json:"min,omitzero"`
}

const DefaultAdaptiveMin = 0.01

// Dead bounds a policy's dead letters.
type Dead struct {
	// MaxBytes bounds the letters; the oldest go first. Default: a share of the store, or 1GiB if
	// its size is unknown.
	MaxBytes Size `json:"max_bytes,omitempty"`
	// Bodies: keep bodies, which a replay needs; default true.
	Bodies *bool `json:"bodies,omitempty"`
}

func (d Dead) KeepsBodies() bool { return d.Bodies == nil || *d.Bodies }

// Retry configures repeated attempts.
type Retry struct {
	MaxAttempts int `json:"max_attempts,omitempty"` // default 25
	// before the second attempt, then doubled; default 1s. Half of each wait is random
	Backoff Duration `json:"backoff,omitempty"`
	// default 1h: with the other defaults a job is tried for 7 to 13 hours
	MaxBackoff Duration `json:"max_backoff,omitempty"`
	// longest pause that a throttling target can request; default 1h
	MaxCooldown Duration `json:"max_cooldown,omitempty"`
}
