package policy

import (
	"cmp"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/base/decode"
	"github.com/penstock-mq/penstock/internal/base/nearest"
)

// Largest values. Durations are from a millisecond to 366 days.
const (
	MaxCapacity    = 1_000_000     // of a bucket without a queue
	maxJobs        = 10_000_000    // of a queue, and of all queues of a policy
	MaxLimit       = 1_000_000_000 // of a fixed window and a sliding counter
	MaxLogLimit    = algorithms.MaxLogLimit
	maxConcurrency = MaxCapacity
	maxWorkers     = 10_000
	maxPartitions  = 256
	MaxAttempts    = 1000
	maxBytes       = 1024 * TiB
)

// MinBytes bounds max_bytes and dead.max_bytes: the largest job fits.
const MinBytes = 2 * MiB

const (
	shortest = Duration(time.Millisecond)
	longest  = 366 * day

	// longestDrain keeps waits within a time.Duration.
	longestDrain = 100 * 365 * day
)

var namePattern = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// IsName reports whether a policy may have the name.
func IsName(name string) bool {
	return namePattern.MatchString(name) && !slices.Contains(reservedNames, name)
}

// CheckSet returns why a set of policies cannot have the name.
func CheckSet(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%s: %s", quote(name), nameForm)
	}
	return nil
}

const nameForm = "want 1 to 32 characters of a-z, 0-9 and -"

// reservedNames would collide with streams such as PENSTOCK_AUDIT on case-insensitive file systems.
var reservedNames = []string{"audit", "schedules"}

var runFields = []string{"concurrency", "workers", "partitions", "timeout", "max_age",
	"duplicate_window", "result_retention", "priority_step", "quiet", "target", "callbacks",
	"retry", "max_jobs", "max_bytes", "dead"}

var algorithmNumbers = func() (names []string) {
	for _, field := range decode.Fields(reflect.TypeFor[Rule]()) {
		names = append(names, field.Name)
		if field.Name == "outflow" {
			names = append(names, "outflow_total", "peak", "peak_total")
		}
	}
	return names[1:] // without the algorithm
}()

// Validate reports all problems of the policy with defaults.
func (p Policy) Validate() []Problem {
	p = p.WithDefaults()
	var c checker
	switch {
	case p.Name == "":
		c.add("name", "is required")
	case !namePattern.MatchString(p.Name):
		c.add("name", "%s: %s", quote(p.Name), nameForm)
	case slices.Contains(reservedNames, p.Name):
		c.add("name", "%s is reserved: its stream would collide with one of Penstock's own",
			quote(p.Name))
	}
	known := true
	switch {
	case len(p.Limits) > 0 && p.Algorithm == LeakingBucket:
		known = p.checkAlgorithm(&c)
		p.checkStartLimits(&c)
	case len(p.Limits) > 0 && (p.Algorithm == "" || p.Algorithm.known() != nil):
		known = p.checkLimits(&c)
	default:
		known = p.checkAlgorithm(&c)
	}
	if p.WindowMargin != 0 && (len(p.Limits) == 0 || !p.Paced()) {
		c.add("window_margin", "applies only to limits on starts of a leaking bucket with a queue")
	}
	switch {
	case p.MaxDelay == 0:
	case !p.CountsArrivals():
		c.add("max_delay", "applies only with a limit that has count_from: %s or %s",
			CountFromAnswer, CountFromEnd)
	case p.MaxDelay < shortest || p.MaxDelay > Duration(time.Minute):
		c.add("max_delay", "must be %s to 1m, not %s", shortest, p.MaxDelay)
	}
	switch {
	case p.Weight == 0:
	case !p.HasQueue():
		c.add("weight", "requires a queue: it is the share of turns that its jobs get")
	case p.Weight < 1 || p.Weight > MaxWeight:
		c.add("weight", "must be 1 to %d, not %d", MaxWeight, p.Weight)
	}
	if p.Shadow && p.Paced() {
		c.add("shadow", "applies only to policies without a queue; set it in one of the "+
			"limits, such as {name: pace, algorithm: leaking_bucket, outflow: 10/s, shadow: "+
			"true}, in addition to an outflow or in its place")
	}
	p.checkAdapt(&c)
	p.checkNumbers(&c)
	p.checkQueue(&c, known)
	p.checkStoreError(&c)
	return c.problems
}

func (p Policy) checkAlgorithm(c *checker) bool {
	known := p.Algorithm.known()
	switch {
	case p.Algorithm == "":
		return c.add("algorithm", "is required: want %s", enumerate(Algorithms()))
	case !oneOf(c, "algorithm", p.Algorithm, Algorithms()...):
		return false
	}
	p.checkFields(c, known.demands, known.allows)
	return true
}

func (p Policy) checkAdapt(c *checker) {
	switch a := p.AdaptiveRate; {
	case a == nil:
	case !p.Paced() || p.Outflow.IsZero():
		c.add("adaptive_rate",
			"applies only to leaking buckets with a queue and an outflow")
	case !a.Min.IsZero() && a.Min.Validate() != nil:
		c.rate("adaptive_rate.min", a.Min)
	case p.Outflow.Validate() == nil && a.Min.PerSecond() > p.Outflow.PerSecond():
		c.add("adaptive_rate.min", "must be at most the outflow (%s), not %s", p.Outflow, a.Min)
	default:
		c.drain("adaptive_rate.min", p.Capacity, a.Min)
	}
}

func (p Policy) checkStoreError(c *checker) {
	if oneOf(c, "on_store_error", p.OnStoreError, Open, Closed, Local) && p.Paced() &&
		p.OnStoreError != "" {
		c.add("on_store_error",
			"applies only to policies that check a limit, not to leaking buckets with a queue")
	}
}

func (p Policy) checkFields(c *checker, demands, allows []string) {
	given := given(p)
	for _, field := range algorithmNumbers {
		if slices.Contains(demands, field) {
			other := given["outflow_total"] || given["limits"]
			if !given[field] && !(field == "outflow" && other) {
				c.add(field, "is required by %s", p.Algorithm)
			}
		} else if given[field] && !slices.Contains(allows, field) {
			c.add(field, "applies only to %s, not to %s", owners(field), p.Algorithm)
		}
	}
}

func owners(field string) string {
	return enumerate(slices.DeleteFunc(Algorithms(), func(a Algorithm) bool {
		known := a.known()
		return !slices.Contains(known.demands, field) && !slices.Contains(known.allows, field)
	}))
}

func wordsOf[T ~string](values []T) (words []string) {
	for _, v := range values {
		words = append(words, string(v))
	}
	return words
}

func (p Policy) checkNumbers(c *checker) {
	c.rate("outflow", p.Outflow)
	c.rate("outflow_total", p.OutflowTotal)
	c.peak("peak", p.Peak, "outflow", p.Outflow)
	c.peak("peak_total", p.PeakTotal, "outflow_total", p.OutflowTotal)
	c.rate("refill", p.Refill)
	largest := int64(MaxCapacity)
	if p.Paced() {
		largest = maxJobs
	}
	within := c.number("capacity", p.Capacity, largest)
	if c.number("burst", p.Burst, MaxCapacity) && within && p.Burst > p.Capacity &&
		p.Capacity != 0 {
		c.add("burst", "must be at most the capacity (%d), not %d", p.Capacity, p.Burst)
	}
	most := int64(MaxLimit)
	if a := p.Algorithm.known(); a != nil {
		most = cmp.Or(a.largest, most)
	}
	c.number("limit", p.Limit, most)
	if c.duration("window", p.Window) && time.Duration(p.Window)%time.Microsecond != 0 {
		c.add("window", "must be a whole number of microseconds, not %s", p.Window)
	}
	p.checkCalendar(c)
	oneOf(c, "count", p.Count, CountAll, CountAccepted)
	if within {
		c.drain("outflow", p.Capacity, p.Outflow)
		c.drain("outflow_total", p.Capacity, p.OutflowTotal)
		c.drain("refill", p.Capacity, p.Refill)
	}

	c.number("concurrency", int64(p.Concurrency), maxConcurrency)
	c.number("workers", int64(p.Workers), maxWorkers)
	c.number("partitions", int64(p.Partitions), maxPartitions)
	c.duration("timeout", p.Timeout)
	c.duration("max_age", p.MaxAge)
	c.remembered("duplicate_window", p.DuplicateWindow)
	c.remembered("result_retention", p.ResultRetention)
	switch {
	case p.Callbacks == "":
	case !IsName(p.Callbacks):
		c.add("callbacks", "%s: %s", quote(p.Callbacks), nameForm)
	case p.Target.Calls():
		c.add("callbacks", "cannot be set in a policy whose jobs are callbacks")
	}
	if p.Target.Calls() && !p.Paced() {
		c.add("target.http.url", "%s requires a leaking bucket with a queue", CallbackURL)
	}
	c.duration("priority_step", p.PriorityStep)
	p.checkQuiet(c)
	c.number("retry.max_attempts", int64(p.Retry.MaxAttempts), MaxAttempts)
	first := c.duration("retry.backoff", p.Retry.Backoff)
	last := c.duration("retry.max_backoff", p.Retry.MaxBackoff)
	if first && last && p.Retry.MaxBackoff != 0 && p.Retry.Backoff > p.Retry.MaxBackoff {
		c.add("retry.backoff", "must be at most max_backoff (%s), not %s", p.Retry.MaxBackoff,
			p.Retry.Backoff)
	}
	c.duration("retry.max_cooldown", p.Retry.MaxCooldown)
	if deepest := p.QueueCapacity(); c.number("max_jobs", p.MaxJobs, maxJobs) &&
		p.MaxJobs != 0 && p.MaxJobs < deepest && deepest <= maxJobs {
		c.add("max_jobs", "must be at least the capacity of one key (%d), not %d", deepest,
			p.MaxJobs)
	}
	c.size("max_bytes", p.MaxBytes)
	c.size("dead.max_bytes", p.Dead.MaxBytes)
}

// checkQueue checks the queue, or that no field needs one.
func (p Policy) checkQueue(c *checker, algorithmKnown bool) {
	if p.Target != nil {
		p.checkTarget(c)
	}
	switch {
	case !algorithmKnown:
		return
	case p.Queue == nil || p.Queue.Off:
	case p.Algorithm == LeakingBucket:
		c.add("queue",
			"must be false for a meter, or omitted: capacity is the size of the queue")
	case p.Queue.Capacity == 0:
		c.add("queue.capacity", "is required: want 1 to %d", maxJobs)
	default:
		c.number("queue.capacity", p.Queue.Capacity, maxJobs)
	}
	if p.HasQueue() {
		p.checkTotal(c)
		return
	}
	given := given(p)
	if p.Algorithm == LeakingBucket {
		for _, field := range []string{"outflow_total", "peak", "peak_total"} {
			if given[field] {
				c.add(field, "applies only to policies with a queue")
			}
		}
	}
	for _, field := range runFields {
		if given[field] {
			c.add(field, "applies only to policies with a queue")
		}
	}
}

// checkTotal: one valve must see all buckets.
func (p Policy) checkTotal(c *checker) {
	if p.Algorithm != LeakingBucket || p.OutflowTotal.IsZero() {
		return
	}
	if p.Partitions > 1 {
		c.add("partitions", "must be 1 with outflow_total, not %d", p.Partitions)
	}
	if p.Outflow.IsZero() && p.Burst > 1 {
		c.add("burst", "requires an outflow: outflow_total alone permits no bursts")
	}
}

func (p Policy) checkTarget(c *checker) {
	switch {
	case p.Target.HTTP != nil && p.Target.NATS != nil:
		c.add("target.nats", "cannot be combined with target.http: a policy has one target")
	case p.Target.HTTP != nil:
		p.Target.HTTP.check(c)
		p.Target.HTTP.Headers.check(c)
		p.Target.HTTP.Sign.check(c)
		p.Target.HTTP.OAuth2.check(c, p.Target.HTTP.Headers)
		p.Target.HTTP.TLS.check(c, "target.http.tls")
		p.Target.HTTP.checkProducers(c)
		p.Target.HTTP.CostFromResponse.check(c, p.Limits)
		CheckAnswers(p.Target.HTTP.Like, p.Target.HTTP.Answers,
			func(field, format string, args ...any) {
				c.add("target.http."+field, format, args...)
			})
	case p.Target.NATS != nil:
		p.Target.NATS.check(c)
		p.Target.NATS.Forward.check(c, "target.nats.forward")
	default:
		c.add("target", "requires http or nats")
	}
}

// A protocol line of NATS is at most 4 KiB without headers and payload.
const mostSubject = 1024

// Subjects beginning with $ belong to the server.
func (t *NATSTarget) check(c *checker) {
	const field = "target.nats.subject"
	bad := func(r rune) bool { return r <= ' ' || r == 0x7f || r == utf8.RuneError }
	switch subject := t.Subject; {
	case subject == "":
		c.add(field, "is required")
	case len(subject) > mostSubject:
		c.add(field, "must have at most %d bytes, not %d", mostSubject, len(subject))
	case strings.ContainsFunc(subject, bad):
		c.add(field, "%s: must not contain spaces or control characters", quote(subject))
	case strings.HasPrefix(subject, "$"):
		c.add(field, "%s: must not begin with $, reserved for the NATS server", quote(subject))
	default:
		for token := range strings.SplitSeq(subject, ".") {
			if token == "" || token == "*" || token == ">" {
				c.add(field, "%s: want tokens separated by single dots, none of them * or >",
					quote(subject))
				return
			}
		}
	}
}

// The URL must have no password, because every process can read it, and no query, because paths are
// appended.
func (t *HTTPTarget) check(c *checker) {
	const field = "target.http.url"
	text := t.URL
	if text == "" {
		c.add(field, "is required")
		return
	}
	if text == CallbackURL {
		for _, field := range t.FromFiles() {
			if field != "sign" {
				c.add("target.http."+field, "cannot be combined with %s, whose URL varies",
					CallbackURL)
			}
		}
		return
	}
	u, err := url.Parse(text)
	if err != nil {
		// The error of url.Parse quotes the URL, and with it a password.
		c.add(field, "is not a URL: want http://HOST or https://HOST")
		return
	}
	if u.User != nil {
		c.add(field, "must not contain a user name or password")
		return
	}
	switch port, err := strconv.ParseUint(cmp.Or(u.Port(), "80"), 10, 16); {
	case u.Scheme != "http" && u.Scheme != "https":
		c.add(field, "%s: want http:// or https://", quote(text))
	case u.Hostname() == "":
		c.add(field, "%s has no host", quote(text))
	case err != nil || port == 0:
		c.add(field, "%s: the port must be 1 to 65535", quote(text))
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#"):
		c.add(field, "%s: must not have a query or fragment, because a job's path is appended",
			quote(text))
	}
}

// checker collects problems. Its checks skip zero values, and report whether a value is valid.
type checker struct {
	at       string // prefix of each field
	problems []Problem
}

func (c *checker) add(field, format string, args ...any) bool {
	c.problems = append(c.problems, Problem{c.at + field, fmt.Sprintf(format, args...)})
	return false
}

// oneOf reports a word that is not one of those wanted.
func oneOf[T ~string](c *checker, field string, word T, wanted ...T) bool {
	return word == "" || slices.Contains(wanted, word) || c.add(field, "%s: want %s%s",
		quote(string(word)), enumerate(wanted), nearest.Hint(string(word), wordsOf(wanted)))
}

func (c *checker) number(field string, n, most int64) bool {
	if n < 0 || n > most {
		return c.add(field, "must be 1 to %d, not %d", most, n)
	}
	return true
}

func (c *checker) duration(field string, d Duration) bool {
	if d != 0 && (d < shortest || d > longest) {
		return c.add(field, "must be %s to 366d, not %s", shortest, d)
	}
	return true
}

func (c *checker) remembered(field string, d Duration) {
	if d != 0 && (d < Duration(time.Second) || d > 7*day) {
		c.add(field, "must be 1s to 7d, not %s", d)
	}
}

func (c *checker) size(field string, s Size) {
	if s != 0 && (s < MinBytes || s > maxBytes) {
		c.add(field, "must be %s to %s, not %s", MinBytes, maxBytes, s)
	}
}

func (c *checker) rate(field string, r algorithms.Rate) {
	if r.IsZero() {
		return
	}
	if err := r.Validate(); err != nil {
		c.add(field, "%d/%s: %v", r.Count, algorithms.FormatDuration(r.Per), err)
	}
}

func (c *checker) peak(field string, peak algorithms.Rate, of string, outflow algorithms.Rate) {
	switch {
	case peak.IsZero():
	case outflow.IsZero():
		c.add(field, "requires an %s", of)
	case peak.Validate() != nil:
		c.rate(field, peak)
	case outflow.Validate() == nil && peak.PerSecond() < outflow.PerSecond()*(1-1e-12):
		c.add(field, "must be at least the %s (%s), not %s", of, outflow, peak)
	}
}

func (c *checker) drain(field string, n int64, r algorithms.Rate) {
	if r.Validate() == nil && float64(n)*float64(r.Per)/float64(r.Count) > float64(longestDrain) {
		c.add(field, "%s: a full bucket of %d would take more than 100 years", r, n)
	}
}

func quote(s string) string { return decode.Quote(s) }

func enumerate[T ~string](all []T) string {
	words := wordsOf(all)
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
