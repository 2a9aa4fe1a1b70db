package job

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

// Headers of a stored job, in any case.
const (
	HeaderVersion = "Penstock-V" // default 1
	// RFC 3339, or a duration from the acceptance
	HeaderDeadline = "Penstock-Deadline"
	// slots of the bucket's rate, 1 (default) to MaxCost
	HeaderCost = "Penstock-Cost"
	// a named cost for limits on starts
	HeaderCostPrefix = "Penstock-Cost-"
	// MinPriority to MaxPriority; higher goes first
	HeaderPriority = "Penstock-Priority"
	// RFC 3339, or a duration from the acceptance
	HeaderNotBefore = "Penstock-Not-Before"
	// failures, at most the policy's retry.max_attempts
	HeaderMaxAttempts = "Penstock-Max-Attempts"
	// of one attempt, at most the policy's timeout
	HeaderTimeout = "Penstock-Timeout"
	// of the ended job, at most the policy's result_retention
	HeaderRetention = "Penstock-Retention"
	// unique name of a bucket's waiting job; "; replace" cancels the older one instead of the new
	HeaderUnique = "Penstock-Unique"
	// labels, repeated or separated by commas
	HeaderTag            = "Penstock-Tag"
	HeaderMethod         = "Penstock-Method"   // for HTTP targets
	HeaderPath           = "Penstock-Path"     // see ParsePath
	HeaderForwardPrefix  = "Penstock-Forward-" // a header's name follows
	HeaderIdempotencyKey = "Idempotency-Key"
	// see PayloadSum; set by the admitter
	HeaderSum = "Penstock-Sum"
)

// HeaderPrefix begins the names of all headers that Penstock reads; others are the target's.
const HeaderPrefix = "Penstock-"

// Headers of a run. No stored job has them.
const (
	HeaderJob     = "Penstock-Job"
	HeaderPolicy  = "Penstock-Policy"
	HeaderKey     = "Penstock-Key"
	HeaderAttempt = "Penstock-Attempt"
)

// headerUsedPrefix begins the actual costs in an answer.
const headerUsedPrefix = "Penstock-Used-"

// MaxCostName bounds the name of a cost, in bytes: longer ones could exceed a message.
const MaxCostName = 32

// HeaderAgain asks in an answer to run the job again: RFC 3339, or a duration from now.
const HeaderAgain = "Penstock-Again"

// ReadUsed returns the actual costs in an answer's headers, as [Used] does. It ignores values that
// are not whole numbers.
func ReadUsed(h map[string][]string) (used map[string]int64) {
	for name, values := range h {
		if !HasPrefixFold(name, headerUsedPrefix) || len(values) == 0 {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(values[0]), 10, 64); err == nil {
			used = addUsed(used, name[len(headerUsedPrefix):], n)
		}
	}
	return used
}

// Used returns reported costs by names in lower case, at most [policy.MaxLimits]. It drops negative
// ones, which would add credit.
func Used(reported map[string]int64) (used map[string]int64) {
	for name, n := range reported {
		used = addUsed(used, name, n)
	}
	return used
}

func addUsed(used map[string]int64, name string, n int64) map[string]int64 {
	if n < 0 || name == "" || len(name) > MaxCostName || len(used) == policy.MaxLimits {
		return used
	}
	if used == nil {
		used = map[string]int64{}
	}
	used[strings.ToLower(name)] = min(n, policy.MaxLimit)
	return used
}

// HeaderStatus is an answer's status over NATS, as over HTTP.
const HeaderStatus = "Penstock-Status"

// Bounds of headers' values.
const (
	MaxCost     = 1_000_000
	MinPriority = -9
	MaxPriority = 9
	MaxTags     = 8
	maxTag      = 64 // bytes
)

// ParseHeader returns the Cost, Priority, Deadline, NotBefore and Malformed (with a [*HeaderError]
// each) that these headers give a job.
func ParseHeader(h map[string][]string, stored time.Time) Arrived {
	a := Arrived{Stored: stored}
	a.ReadHeader(h)
	return a
}

// ReadHeader sets the fields from a job's headers; it keeps Malformed if set.
func (a *Arrived) ReadHeader(h map[string][]string) {
	a.Cost = 1
	a.Header = h
	var problems []error
	seen, tagged := 0, false
	for name, values := range h {
		var err error
		switch {
		case !HasPrefixFold(name, HeaderPrefix):
		case HasPrefixFold(name, HeaderForwardPrefix):
			err = checkForwarded(name[len(HeaderForwardPrefix):])
		case HasPrefixFold(name, HeaderCostPrefix):
			err = a.readCost(strings.ToLower(name[len(HeaderCostPrefix):]), values)
		case strings.EqualFold(name, HeaderTag):
			tagged = true
		default:
			for i, known := range jobHeaders {
				if !strings.EqualFold(name, known.name) {
					continue
				}
				name = known.name
				if seen&(1<<i) != 0 || len(values) != 1 {
					err = errTwice
				} else {
					err = known.read(a, strings.TrimSpace(values[0]))
				}
				seen |= 1 << i
			}
		}
		if err != nil {
			problems = append(problems, headerError(name, err))
		}
	}
	if tagged {
		if err := checkTags(Tags(h)); err != nil {
			problems = append(problems, headerError(HeaderTag, err))
		}
	}
	if len(problems) > 0 && a.Malformed == nil {
		a.Malformed = errors.Join(problems...)
	}
}

// Tags returns a job's tags.
func Tags(h map[string][]string) (tags []string) {
	for name, values := range h {
		if !strings.EqualFold(name, HeaderTag) {
			continue
		}
		for _, value := range values {
			for tag := range strings.SplitSeq(value, ",") {
				tags = append(tags, strings.TrimSpace(tag))
			}
		}
	}
	return tags
}

func checkTags(tags []string) error {
	if len(tags) > MaxTags {
		return fmt.Errorf("want at most %[2]d, not %[1]d", len(tags), MaxTags)
	}
	for _, tag := range tags {
		if err := CheckTag(tag); err != nil {
			return err
		}
	}
	return nil
}

// CheckTag returns why a job cannot have the tag.
func CheckTag(tag string) error {
	bad := func(r rune) bool { return r <= ' ' || r >= 0x7F || r == ',' }
	if tag == "" || len(tag) > maxTag || strings.ContainsFunc(tag, bad) {
		return fmt.Errorf("%.80q: want 1 to %d printable ASCII characters, without spaces and "+
			"commas", tag, maxTag)
	}
	return nil
}

// CostHeader is the header of a named cost; of "" it is the job's own.
func CostHeader(name string) string {
	if name == "" {
		return HeaderCost
	}
	return HeaderCostPrefix + strings.ToUpper(name[:1]) + name[1:]
}

func (a *Arrived) readCost(name string, values []string) error {
	if _, twice := a.Costs[name]; twice || len(values) != 1 {
		return errTwice
	}
	if name == "" || len(name) > MaxCostName || len(a.Costs) == policy.MaxLimits {
		return fmt.Errorf("want at most %d costs, with names of 1 to %d bytes", policy.MaxLimits,
			MaxCostName)
	}
	n, err := parseCost(strings.TrimSpace(values[0]), math.MaxInt32)
	if err != nil {
		return err
	}
	if a.Costs == nil {
		a.Costs = map[string]int64{}
	}
	a.Costs[name] = n
	return nil
}

func parseCost(value string, most int64) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%q: want a whole number from 1 to %d", value, most)
	}
	return n, nil
}

// jobHeaders are read here. Those that a producer may set are in admission's storedNames, too.
var jobHeaders = []struct {
	name string
	read func(a *Arrived, value string) error
}{
	{HeaderVersion, func(_ *Arrived, value string) error {
		if value != strconv.Itoa(FormatVersion) {
			return fmt.Errorf("%w: %q", ErrVersion, value)
		}
		return nil
	}},
	{HeaderDeadline, func(a *Arrived, value string) (err error) {
		a.Deadline, err = ParseInstant(value, a.Stored, 1)
		return err
	}},
	{HeaderNotBefore, func(a *Arrived, value string) (err error) {
		a.NotBefore, err = ParseInstant(value, a.Stored, 0)
		return err
	}},
	{HeaderCost, func(a *Arrived, value string) (err error) {
		n, err := parseCost(value, MaxCost)
		a.Cost = max(n, 1)
		return err
	}},
	{HeaderPriority, func(a *Arrived, value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < MinPriority || n > MaxPriority {
			return fmt.Errorf("%q: want a whole number from %d to %d", value, MinPriority,
				MaxPriority)
		}
		a.Priority = n
		return nil
	}},
	{HeaderMaxAttempts, func(_ *Arrived, value string) error {
		_, err := parseCost(value, policy.MaxAttempts)
		return err
	}},
	{HeaderTimeout, func(_ *Arrived, value string) error { return checkDuration(value, 1) }},
	{HeaderRetention, func(_ *Arrived, value string) error { return checkDuration(value, 0) }},
	{HeaderUnique, func(_ *Arrived, value string) error {
		if name, _ := cutUnique(value); CheckTag(name) != nil {
			return fmt.Errorf("%.80q: want 1 to %d printable ASCII characters, without spaces, "+
				"commas and semicolons, and perhaps \"; replace\"", value, maxTag)
		}
		return nil
	}},
	{HeaderMethod, func(_ *Arrived, value string) error {
		if !IsToken(value) || len(value) > 32 || policy.NeverMethod(strings.ToUpper(value)) {
			return fmt.Errorf("%q: jobs cannot have this method", value)
		}
		return nil
	}},
	{HeaderPath, func(_ *Arrived, value string) error {
		_, err := ParsePath(value)
		return err
	}},
	{HeaderCallback, func(_ *Arrived, value string) error {
		_, err := ParseCallback(value)
		return err
	}},
}

func cutUnique(value string) (name string, replaces bool) {
	name, option, found := strings.Cut(value, ";")
	if found && strings.TrimSpace(option) != "replace" {
		return "", false
	}
	return strings.TrimSpace(name), found
}

// Unique returns a job's unique name, or "", and whether it replaces the waiting job.
func Unique(h map[string][]string) (name string, replaces bool) {
	return cutUnique(HeaderValue(h, HeaderUnique))
}

func checkDuration(value string, least time.Duration) error {
	d, err := algorithms.ParseDuration(value)
	if err != nil {
		return err
	}
	if d < least {
		return fmt.Errorf("%q: want a duration such as 90s or 2d", value)
	}
	return nil
}

// MaxAttempts returns the most attempts of a job, at most those of its policy.
func MaxAttempts(h map[string][]string, most int) int {
	n, err := strconv.Atoi(strings.TrimSpace(HeaderValue(h, HeaderMaxAttempts)))
	if err != nil || n < 1 {
		return most
	}
	return min(n, most)
}

// DurationAtMost returns a header's duration; most if it is longer, missing or no duration.
func DurationAtMost(most time.Duration, h map[string][]string, name string) time.Duration {
	if value := strings.TrimSpace(HeaderValue(h, name)); value != "" {
		if d, err := algorithms.ParseDuration(value); err == nil && d >= 0 {
			return min(d, most)
		}
	}
	return most
}

var errTwice = errors.New("given more than once")

// HeaderError says what is wrong with a header.
type HeaderError struct {
	Header, Reason string
	cause          error // nil, or with the text Reason
}

func headerError(header string, cause error) error {
	return &HeaderError{header, cause.Error(), cause}
}

func (e *HeaderError) Error() string { return e.Header + ": " + e.Reason }

func (e *HeaderError) Unwrap() error { return e.cause }

// SampledTrace returns the id of a job's trace (W3C Trace Context) if it is sampled, or "".
func SampledTrace(h map[string][]string) string {
	const length = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	parent := HeaderValue(h, "traceparent")
	if len(parent) < length || parent[2] != '-' || parent[35] != '-' || parent[52] != '-' {
		return ""
	}
	flags, err := strconv.ParseUint(parent[53:length], 16, 8)
	id := parent[3:35]
	if err != nil || flags&1 == 0 || strings.Trim(id, "0123456789abcdef") != "" ||
		strings.Trim(id, "0") == "" {
		return ""
	}
	return id
}

// ParseInstant parses a time, or a duration from from of at least least.
func ParseInstant(value string, from time.Time, least time.Duration) (time.Time, error) {
	if d, err := algorithms.ParseDuration(value); err == nil {
		if d < least {
			return time.Time{}, fmt.Errorf("%q: too short", value)
		}
		return from.Add(d), nil
	}
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q: want RFC 3339 or a duration such as 90s or 2d", value)
	}
	if t.IsZero() {
		t = t.Add(1) // the zero time means no deadline
	}
	return t, nil
}

// HasPrefixFold is strings.HasPrefix without regard to case, as names of headers are.
func HasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
