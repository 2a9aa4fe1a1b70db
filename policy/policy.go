// Package policy defines policies: an algorithm with its numbers, a queue and a target.
package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// MaxWeight bounds the weight of a policy or a key.
const MaxWeight = 1000

// DefaultSet is the name of the set by default.
const DefaultSet = "default"

// Duration is a time.Duration with text in units up to weeks ("30s", "1d").
type Duration time.Duration

// Rule is an algorithm with its numbers. See allAlgorithms, checkNumbers and [Limit.Share].
type Rule struct {
	Algorithm Algorithm `json:"algorithm,omitempty"`

	// Leaking bucket. Outflow is the rate of starts, Burst the starts together after idleness
	// (default 1), Capacity the most jobs of a bucket: waiting, backing off and running.
	Outflow algorithms.Rate `json:"outflow,omitzero"`
	Burst   int64           `json:"burst,omitempty"`
	// Capacity is also the tokens of a token bucket.
	Capacity int64 `json:"capacity,omitempty" zero:"never"`

	Refill algorithms.Rate `json:"refill,omitzero"` // token bucket
	// Limit and Window are for a fixed window, sliding log and sliding counter.
	Limit  int64    `json:"limit,omitempty" zero:"never"`
	Window Duration `json:"window,omitempty" zero:"never"`

	// Zone is the time zone of days, weeks or months; default UTC.
	Zone string `json:"zone,omitempty"`
	// SinceEpoch is for gateways' limits: see [algorithms.FixedWindow].
	SinceEpoch bool `json:"-"`

	// Count selects what a sliding log records: all, or accepted requests (default in one of
	// several limits).
	Count Count `json:"count,omitempty"`
}

// Policy is a named rule, or several limits. A zero number means "not given".
type Policy struct {
	Name string `json:"name"` // 1 to 32 of a-z, 0-9 and -; fixed
	Rule

	// Limits replace the rule: a request must pass all, and a refusal takes no units. For a leaking
	// bucket with a queue they bound the starts, with or without an Outflow.
	Limits Limits `json:"limits,omitempty"`

	// Shadow makes a door policy or a meter count refusals and allow everything.
	Shadow bool `json:"shadow,omitempty"`

	// WindowMargin extends the windows of limits on starts, because the target counts arrivals;
	// default 50ms, or an eighth of the shortest window; 0 if all limits count from the answer, and
	// none is a fixed window.
	WindowMargin Duration `json:"window_margin,omitempty"`

	// MaxDelay is the time after its end within which a request without an answer may still arrive,
	// for limits that count from the answer; default 1s, at most 1m.
	MaxDelay Duration `json:"max_delay,omitempty"`

	// AdaptiveRate adapts buckets to an unknown limit of their target, below Outflow.
	AdaptiveRate *AdaptiveRate `json:"adaptive_rate,omitempty"`

	// OutflowTotal is the rate of all buckets together, in fair turns. Outflow may be left out. It
	// needs one partition, the default then.
	OutflowTotal algorithms.Rate `json:"outflow_total,omitzero"`

	// Quiet is the spans of each day in which no job or call starts.
	Quiet []Quiet `json:"quiet,omitempty"`

	// Weight is the policy's share, 1 (default) to [MaxWeight], of turns under shared limits and of
	// a worker's slots.
	Weight int64 `json:"weight,omitempty"`

	// Peak is the rate that no window of a second or more exceeds while a bucket catches up;
	// default 1.25 % above Outflow. PeakTotal is the peak of OutflowTotal.
	Peak      algorithms.Rate `json:"peak,omitzero"`
	PeakTotal algorithms.Rate `json:"peak_total,omitzero"`

	Queue *Queue `json:"queue,omitempty"`

	// OnStoreError applies without the store of limits; default closed.
	OnStoreError OnStoreError `json:"on_store_error,omitempty"`

	// Concurrency bounds a bucket's running jobs (0: no limit), Workers the policy's in one drainer
	// (default 64).
	Concurrency int `json:"concurrency,omitempty" zero:"meant"`
	Workers     int `json:"workers,omitempty"`
	// default 1; fixed
	Partitions int      `json:"partitions,omitempty"`
	Timeout    Duration `json:"timeout,omitempty"` // of an attempt, default 30s
	MaxAge     Duration `json:"max_age,omitempty"` // of a waiting job, default 14d

	// DuplicateWindow is the validity of an Idempotency-Key or Nats-Msg-Id: 1s to 7d, default 10m.
	// Each takes about 150 bytes of the server's memory.
	DuplicateWindow Duration `json:"duplicate_window,omitempty"`

	// ResultRetention is the time that ended jobs are kept, at most 100,000: 1s to 7d. Default:
	// only dead letters are kept.
	ResultRetention Duration `json:"result_retention,omitempty"`

	// PriorityStep is the waiting time worth a step of priority: every job starts eventually.
	// Default: the highest priority always goes first. A job that has waited for the steps up to
	// priority 9 shares the starts equally with calls.
	PriorityStep Duration `json:"priority_step,omitempty"`

	Target *Target `json:"target,omitempty"`
	// Callbacks names the queue policy, with the URL "{callback}", that posts outcomes to
	// submitters' URLs. Empty: jobs may not name any.
	Callbacks string `json:"callbacks,omitempty"`
	// MaxJobs bounds the jobs of all buckets; see [Policy.QueueJobs].
	MaxJobs int64 `json:"max_jobs,omitempty"`
	// MaxBytes bounds the policy's stream: headers, bodies and about 30 bytes per job. Default: a
	// share of a store of known size.
	MaxBytes Size  `json:"max_bytes,omitempty"`
	Dead     Dead  `json:"dead,omitzero"`
	Retry    Retry `json:"retry,omitzero"`
}

// Count tells which requests a limit counts.
type Count string

// CountAll records refused requests, too, which keeps a hammering client out.
const (
	CountAll      Count = "all"
	CountAccepted Count = "accepted"
)

// OnStoreError tells what a door policy decides while its store of counts does not answer.
type OnStoreError string

// Closed answers with an error. Local decides in memory, by an equal share of the limit per live
// admitter.
const (
	Open   OnStoreError = "open"
	Closed OnStoreError = "closed"
	Local  OnStoreError = "local"
)

// Queue is false, or {capacity: N}; nil: not given.
type Queue struct {
	Off      bool  `json:"-"` // queue: false
	Capacity int64 `json:"capacity,omitempty" zero:"never"`
}

// Target receives jobs without a Go handler: one of these.
type Target struct {
	HTTP *HTTPTarget `json:"http,omitempty"`
	NATS *NATSTarget `json:"nats,omitempty"`
}

// SameTarget reports whether another policy has the same target.
func (p Policy) SameTarget(other Policy) bool { return reflect.DeepEqual(p.Target, other.Target) }

// NATSTarget receives each job as a request.
type NATSTarget struct {
	Subject string `json:"subject"`
	// default: as for HTTP
	Forward Forward `json:"forward,omitzero"`
}

// CallbackURL is the URL of a target whose jobs are callbacks.
const CallbackURL = "{callback}"

// Calls reports whether jobs are sent to the address that each of them names.
func (t *Target) Calls() bool { return t != nil && t.HTTP != nil && t.HTTP.URL == CallbackURL }

// HTTPTarget is the base URL of requests.
type HTTPTarget struct {
	URL string `json:"url"` // http(s)://, a host, perhaps a path

	// Headers override forwarded ones. They, Sign, OAuth2 and TLS are only for policies of the
	// operator's file.
	Headers TargetHeaders `json:"headers,omitempty"`
	// Sign proves the origin and time of requests.
	Sign *Signing `json:"sign,omitempty"`
	// OAuth2 adds an access token, in Authorization.
	OAuth2 *OAuth2 `json:"oauth2,omitempty"`
	// TLS of connections to the target.
	TLS ClientTLS `json:"tls,omitzero"`

	// CostFromResponse locates the actual costs in an answer, by name.
	CostFromResponse CostFromResponse `json:"cost_from_response,omitempty"`

	// Like names the API whose answers are read as a well-known one's; default: by the host.
	Like string `json:"like,omitempty"`
	// Answers say what answers mean, before Like's rules.
	Answers []AnswerRule `json:"answers,omitempty"`

	// RateLimitHeaders: a bucket pauses when an answer reports an exhausted limit; default true.
	RateLimitHeaders *bool `json:"rate_limit_headers,omitempty"`

	// Forward are headers that producers may forward (default: all except for headers of a
	// connection, a proxy, NATS and Penstock), Methods the jobs' methods, the default first
	// (default: any, POST), PathPrefix the prefix of their paths.
	Forward    Forward  `json:"forward,omitzero"`
	Methods    []string `json:"methods,omitzero"`
	PathPrefix *string  `json:"path_prefix,omitempty"`
}

// ReadsRateLimitHeaders reports whether answers' RateLimit headers can pause a bucket; default
// true.
func (t *HTTPTarget) ReadsRateLimitHeaders() bool {
	return t.RateLimitHeaders == nil || *t.RateLimitHeaders
}

// Signing signs requests with a secret (HMAC-SHA256).
type Signing struct {
	HMACFile string `json:"hmac_file"` // of at least 16 bytes
}

// OAuth2 are client credentials (RFC 6749, section 4.4). Drainers renew tokens before they expire,
// and after a 401.
type OAuth2 struct {
	TokenURL         string   `json:"token_url"`
	ClientID         string   `json:"client_id"`
	ClientSecretFile string   `json:"client_secret_file"` // absolute; reread when it changes
	Scopes           []string `json:"scopes,omitempty"`
	// Params of token requests, such as audience.
	Params map[string]string `json:"params,omitempty"`
	TLS    ClientTLS         `json:"tls,omitzero"` // for TokenURL
}

// ClientTLS names files, reread when they change.
type ClientTLS struct {
	CA   string `json:"ca,omitempty"`   // empty: the system's
	Cert string `json:"cert,omitempty"` // may be empty
	Key  string `json:"key,omitempty"`
}

// AdaptiveRate lowers a bucket's outflow to what its target bears.
type AdaptiveRate struct {
	// default: a hundredth of the outflow
	Min algorithms.Rate `json:"min,omitzero"`
}

// DefaultAdaptiveMin is the default of [AdaptiveRate.Min], as a part of the outflow.
const DefaultAdaptiveMin = 0.01

// Dead bounds a policy's dead letters.
type Dead struct {
	// MaxBytes bounds the letters; the oldest go first. Default: a share of the store, or 1GiB if
	// its size is unknown.
	MaxBytes Size `json:"max_bytes,omitempty"`
	// Bodies are kept for replays; default true.
	Bodies *bool `json:"bodies,omitempty"`
}

// KeepsBodies reports whether dead letters keep the bodies of their jobs; default true.
func (d Dead) KeepsBodies() bool { return d.Bodies == nil || *d.Bodies }

// Retry is when a failed job is tried again, and how often.
type Retry struct {
	MaxAttempts int `json:"max_attempts,omitempty"` // default 25
	// before the second attempt, then doubled; half of it is random; default 1s
	Backoff Duration `json:"backoff,omitempty"`
	// default 1h: then a job is tried for 7 to 13 hours
	MaxBackoff Duration `json:"max_backoff,omitempty"`
	// longest pause by a throttling target; default 1h
	MaxCooldown Duration `json:"max_cooldown,omitempty"`
}

func (q Queue) MarshalJSON() ([]byte, error) {
	if q.Off {
		return []byte("false"), nil
	}
	return json.Marshal(struct {
		Capacity int64 `json:"capacity"`
	}{q.Capacity})
}

func (q *Queue) UnmarshalJSON(data []byte) error {
	type fields Queue
	switch {
	case string(data) == "false":
		*q = Queue{Off: true}
		return nil
	case data[0] == '{' || string(data) == "null":
		return json.Unmarshal(data, (*fields)(q))
	}
	return fmt.Errorf("%s: want false or {capacity: N}", data)
}

// HasQueue reports whether jobs wait in a stream.
func (p Policy) HasQueue() bool {
	if p.Algorithm == LeakingBucket {
		return p.Queue == nil || !p.Queue.Off
	}
	return p.Queue != nil && !p.Queue.Off
}

// Paced reports whether jobs start at an outflow: a leaking bucket with a queue.
func (p Policy) Paced() bool { return p.Algorithm == LeakingBucket && p.HasQueue() }

// Meter reports whether checks are answered with a delay: a leaking bucket without a queue.
func (p Policy) Meter() bool { return p.Algorithm == LeakingBucket && !p.HasQueue() }

// Door reports whether the policy decides at once; see [Policy.HasQueue] for one that also queues.
func (p Policy) Door() bool { return p.Algorithm != LeakingBucket }

// QueueCapacity is the most jobs in a bucket; 0: no queue.
func (p Policy) QueueCapacity() int64 {
	switch {
	case !p.HasQueue():
		return 0
	case p.Algorithm == LeakingBucket:
		return p.Capacity
	default:
		return p.Queue.Capacity
	}
}

// DefaultJobs is the default of the most jobs over all buckets.
const DefaultJobs = 1_000_000

// QueueJobs is the most jobs over all buckets; 0: no queue.
func (p Policy) QueueJobs() int64 {
	if !p.HasQueue() {
		return 0
	}
	return cmp.Or(p.MaxJobs, max(DefaultJobs, p.QueueCapacity()))
}

const day = Duration(24 * time.Hour)

// DefaultPeak is the peak as a multiple of the outflow. In a second it leaves 1.5 % for catching
// up, with the 2 ms of law 2.
const DefaultPeak = 1.0125

// PeakRatio returns the peak as a multiple of the outflow.
func (p Policy) PeakRatio() float64 { return peakRatio(p.Peak, p.Outflow) }

// PeakTotalRatio is the peak of all keys together, relative to their outflow.
func (p Policy) PeakTotalRatio() float64 { return peakRatio(p.PeakTotal, p.OutflowTotal) }

func peakRatio(peak, outflow algorithms.Rate) float64 {
	if peak.IsZero() || outflow.IsZero() {
		return DefaultPeak
	}
	return max(1, peak.PerSecond()/outflow.PerSecond())
}

// WithDefaults returns the policy with all defaults, without a door policy's redundant queue:
// false. It is idempotent, and accepts invalid policies.
func (p Policy) WithDefaults() Policy {
	p.Rule = p.Rule.withDefaults(false)
	if len(p.Limits) > 0 {
		p.Limits = slices.Clone(p.Limits)
		for i, l := range p.Limits {
			l = l.withDefaults()
			if p.Paced() {
				l.Key = cmp.Or(l.Key, PlaceholderKey)
				if l.CountFrom == CountFromStart {
					l.CountFrom = ""
				}
			}
			p.Limits[i] = l
		}
		if p.CountsArrivals() {
			p.MaxDelay = cmp.Or(p.MaxDelay, Duration(time.Second))
		}
		if p.Paced() && p.WindowMargin == 0 && p.leastMargin() > 0 {
			p.WindowMargin = Duration(50 * time.Millisecond)
			if w := p.shortestWindow(); w > 0 {
				p.WindowMargin = max(leastWindowMargin, min(p.WindowMargin, w/8))
			}
		}
		if len(p.Limits) == 1 {
			p.Limits[0].Name = cmp.Or(p.Limits[0].Name, p.Name)
		}
	}
	if !p.Paced() {
		p.OnStoreError = cmp.Or(p.OnStoreError, Closed)
	}
	if p.Door() && p.Queue != nil && p.Queue.Off {
		p.Queue = nil
	}
	if !p.HasQueue() {
		return p
	}
	p.Workers = cmp.Or(p.Workers, 64)
	p.Partitions = cmp.Or(p.Partitions, 1)
	p.Timeout = cmp.Or(p.Timeout, Duration(30*time.Second))
	p.MaxAge = cmp.Or(p.MaxAge, 14*day)
	p.DuplicateWindow = cmp.Or(p.DuplicateWindow, Duration(10*time.Minute))
	p.Retry.MaxAttempts = cmp.Or(p.Retry.MaxAttempts, 25)
	p.Retry.Backoff = cmp.Or(p.Retry.Backoff, Duration(time.Second))
	p.Retry.MaxBackoff = cmp.Or(p.Retry.MaxBackoff, Duration(time.Hour))
	p.Retry.MaxCooldown = cmp.Or(p.Retry.MaxCooldown, Duration(time.Hour))
	return p
}
