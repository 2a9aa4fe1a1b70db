package admit

import (
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
)

const (
	peekHeader   = "Penstock-Peek"
	refundHeader = "Penstock-Refund"
	ipHeader     = "Penstock-Ip"
)

// IPHeader carries the client's address if a proxy connects for it.
const IPHeader = "Penstock-IP"

const contentType = "Content-Type"

const maxIdempotencyKey = 256 // bytes

// storedNames are by their canonical forms; Penstock-Forward-<Name> is stored too.
var storedNames = canonical(
	job.HeaderVersion, job.HeaderDeadline, job.HeaderCost, job.HeaderPriority, job.HeaderNotBefore,
	job.HeaderMaxAttempts, job.HeaderTimeout, job.HeaderRetention, job.HeaderUnique,
	job.HeaderMethod, job.HeaderPath,
	job.HeaderTag, job.HeaderCallback, job.HeaderIdempotencyKey,
	contentType, "Content-Encoding", "traceparent", "tracestate",
)

func canonical(names ...string) map[string]string {
	stored := make(map[string]string, len(names))
	for _, name := range names {
		stored[textproto.CanonicalMIMEHeaderKey(name)] = name
	}
	return stored
}

type jobHeader struct {
	stored      nats.Header // stored with the job; may be nil
	idempotency string
	cost        int64
	costs       map[string]int64
	deadline    time.Time // zero without a deadline
	notBefore   time.Time // zero: at once
	priority    int
	ip          string // of the client
	waits       bool   // for the job's end
}

// readHeader refuses headers that would make a dead letter.
func readHeader(header map[string][]string) (jobHeader, error) {
	j := jobHeader{cost: 1}
	for given, values := range header {
		if err := j.read(given, values); err != nil {
			return jobHeader{}, err
		}
	}
	return j, nil
}

func (j *jobHeader) read(given string, values []string) (err error) {
	key := textproto.CanonicalMIMEHeaderKey(given)
	name, known := storedNames[key]
	switch {
	case strings.HasPrefix(key, job.HeaderForwardPrefix):
		return j.keep(key, values, true)
	case strings.HasPrefix(key, job.HeaderCostPrefix):
		return j.keep(key, values, false)
	case key == ipHeader:
		j.ip, err = readIP(values)
		return err
	case key == WaitHeader:
		j.waits = true
		return nil
	case known:
		return j.keep(name, values, name == job.HeaderTag)
	case strings.HasPrefix(key, job.HeaderPrefix):
		return unknownHeader(given)
	}
	return nil
}

func (j *jobHeader) keep(name string, values []string, several bool) error {
	if name == "tracestate" && len(values) > 1 {
		// W3C Trace Context, 3.3: a list may span several fields
		values = []string{strings.Join(values, ",")}
	}
	if _, twice := j.stored[name]; twice || len(values) != 1 && !several {
		return invalid(name, "must be given once")
	}
	if err := CheckField(name, values); err != nil {
		return err
	}
	if j.stored == nil {
		j.stored = make(nats.Header, 4)
	}
	j.stored[name] = values
	if name == job.HeaderIdempotencyKey {
		j.idempotency = strings.Trim(values[0], " \t") // as HTTP does, and NATS does not
		j.stored[name] = []string{j.idempotency}
		return checkIdempotencyKey(j.idempotency)
	}
	if !strings.HasPrefix(name, job.HeaderPrefix) {
		return nil
	}
	parsed := job.ParseHeader(nats.Header{name: values}, time.Now())
	if bad, ok := errors.AsType[*job.HeaderError](parsed.Malformed); ok {
		return invalid(bad.Header, bad.Reason)
	}
	for cost, n := range parsed.Costs {
		if j.costs == nil {
			j.costs = map[string]int64{}
		}
		j.costs[cost] = n
	}
	switch name {
	case job.HeaderCost:
		j.cost = parsed.Cost
	case job.HeaderDeadline:
		j.deadline = parsed.Deadline
	case job.HeaderPriority:
		j.priority = parsed.Priority
	case job.HeaderNotBefore:
		j.notBefore = parsed.NotBefore
	}
	return nil
}

// typedJSON is all that most jobs store. Who changes a header copies it first.
var typedJSON = nats.Header{contentType: {"application/json"}}

// fit also fills in the body's type.
func (j *jobHeader) fit(p policy.Policy, r *SubmitRequest) error {
	if bad, ok := errors.AsType[*job.HeaderError](job.CheckTarget(p.Target, j.stored)); ok {
		return invalid(bad.Header, bad.Reason)
	}
	given := ""
	if values := j.stored[contentType]; len(values) > 0 {
		given = values[0]
	}
	switch is := job.ContentType(given, r.Body, r.JSON); {
	case is == given:
	case j.stored == nil:
		j.stored = typedJSON
	default:
		j.stored[contentType] = []string{is}
	}
	return nil
}

func (j jobHeader) startable(p policy.Policy, now time.Time) error {
	last := now.Add(time.Duration(p.MaxAge))
	if !j.deadline.IsZero() && j.deadline.Before(last) {
		last = j.deadline
	}
	switch {
	case !last.After(now):
		return invalid(job.HeaderDeadline, "has passed")
	case !j.notBefore.Before(last):
		return invalid(job.HeaderNotBefore,
			"must be before the job's deadline and the end of the policy's max_age")
	}
	return j.affordable(p)
}

func (j jobHeader) affordable(p policy.Policy) error {
	if p.Paced() && j.cost > p.Capacity {
		return invalid(job.HeaderCost,
			fmt.Sprintf("exceeds the bucket's capacity of %d, so it can never pass", p.Capacity))
	}
	return j.withinLimits(p)
}

func (j jobHeader) withinLimits(p policy.Policy) error {
	if len(p.Limits)+len(j.costs) == 0 {
		return nil
	}
	for _, cost := range slices.Sorted(maps.Keys(j.costs)) {
		counts := func(l policy.Limit) bool { return l.Cost == cost }
		if !p.Paced() || !slices.ContainsFunc(p.Limits, counts) {
			return invalid(job.CostHeader(cost), "no limit of the policy has this cost")
		}
	}
	if name, cost, most := p.BeyondLimits(j.cost, j.costs); name != "" {
		return invalid(job.CostHeader(cost),
			fmt.Sprintf("exceeds the limit %s of at most %d, so it can never pass", name, most))
	}
	return nil
}

// ReadCallHeader rejects the other headers of jobs, which would have no effect.
func ReadCallHeader(header map[string][]string) (cost int64, costs map[string]int64, priority int,
	err error) {
	j, err := readHeader(header)
	if j.waits {
		err = unknownHeader(WaitHeader)
	}
	for name := range j.stored {
		if strings.HasPrefix(name, job.HeaderPrefix) && name != job.HeaderPriority &&
			!strings.HasPrefix(name, job.HeaderCost) || name == job.HeaderIdempotencyKey {
			err = unknownHeader(name)
		}
	}
	return j.cost, j.costs, j.priority, err
}

func checkIdempotencyKey(key string) error {
	switch {
	case key == "":
		return invalid(job.HeaderIdempotencyKey, "is empty")
	case len(key) > maxIdempotencyKey:
		return invalid(job.HeaderIdempotencyKey,
			fmt.Sprintf("is longer than %d bytes", maxIdempotencyKey))
	}
	return nil
}

// CheckField refuses what HTTP forbids (RFC 9110, 5.1 and 5.5) and NATS does not: names that are
// not tokens, and control characters.
func CheckField(name string, values []string) error {
	if !job.IsToken(name) {
		return invalid(fmt.Sprintf("%.100q", name), "cannot be the name of a header")
	}
	control := func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
	for _, value := range values {
		if strings.ContainsFunc(value, control) {
			return invalid(name, "contains control characters, which headers cannot carry")
		}
	}
	return nil
}

// CheckHeader is a check as headers of a message tell it.
type CheckHeader struct {
	Cost         int64
	Peek, Refund bool
	IP           string // as of [ClientIP]; may be empty
}

// ReadCheckHeader rejects unknown Penstock-… headers, which are probably misspelt.
func ReadCheckHeader(header map[string][]string) (CheckHeader, error) {
	read := CheckHeader{Cost: 1}
	for given, values := range header {
		name := textproto.CanonicalMIMEHeaderKey(given)
		if !strings.HasPrefix(name, job.HeaderPrefix) {
			continue
		}
		if len(values) != 1 {
			return CheckHeader{}, invalid(name, "must be given once")
		}
		var err error
		switch name {
		case job.HeaderCost:
			if read.Cost, err = strconv.ParseInt(values[0], 10, 64); err != nil {
				return CheckHeader{}, invalid(name, "must be a whole number of at least 1")
			}
		case peekHeader:
			if read.Peek, err = strconv.ParseBool(values[0]); err != nil {
				return CheckHeader{}, invalid(name, "must be true or false")
			}
		case refundHeader:
			if read.Refund, err = strconv.ParseBool(values[0]); err != nil {
				return CheckHeader{}, invalid(name, "must be true or false")
			}
		case ipHeader:
			if read.IP, err = readIP(values); err != nil {
				return CheckHeader{}, err
			}
		default:
			return CheckHeader{}, unknownHeader(given)
		}
	}
	if read.Peek && read.Refund {
		return CheckHeader{}, invalid(refundHeader, "cannot be combined with "+peekHeader)
	}
	return read, nil
}

func readIP(values []string) (string, error) {
	if len(values) == 1 {
		if ip := ClientIP(values[0]); ip != "" {
			return ip, nil
		}
	}
	return "", invalid(IPHeader, "must be one IP address")
}

func unknownHeader(given string) error {
	return invalid(fmt.Sprintf("%.64s", given), "is not a known header of this request")
}
