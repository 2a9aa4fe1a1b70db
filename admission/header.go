package admission

import (
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

const (
	ourPrefix    = "Penstock-"
	peekHeader   = "Penstock-Peek"
	refundHeader = "Penstock-Refund"
	ipHeader     = "Penstock-Ip" // as a canonical name
)

// IPHeader names the client of a request for limits that count by its address, when that is not the one that connects.
const IPHeader = "Penstock-IP"

const contentType = "Content-Type"

// maxIdempotencyKey is the longest Idempotency-Key, in bytes.
const maxIdempotencyKey = 256

// storedNames are the headers that belong to a stored job, besides Penstock-Forward-<Name>: how the canonical form of a
// name is stored.
var storedNames = canonical(
	queue.HeaderVersion, queue.HeaderDeadline, queue.HeaderCost, queue.HeaderPriority, queue.HeaderNotBefore,
	queue.HeaderMethod, queue.HeaderPath, queue.HeaderIdempotencyKey, contentType, "Content-Encoding", "traceparent",
	"tracestate",
)

func canonical(names ...string) map[string]string {
	stored := make(map[string]string, len(names))
	for _, name := range names {
		stored[textproto.CanonicalMIMEHeaderKey(name)] = name
	}
	return stored
}

// jobHeader is what the headers of a submitted job say.
type jobHeader struct {
	stored      nats.Header // what is stored with the job; nil when there is nothing to store
	idempotency string      // empty: none
	cost        int64
	deadline    time.Time // zero: none of its own
	notBefore   time.Time // zero: at once
	ip          string    // of the client; empty: not told
}

// readHeader keeps what belongs to a stored job, and refuses what would make it a dead letter. A request has a dozen
// headers of other kinds, which stay behind.
func readHeader(header map[string][]string) (jobHeader, error) {
	job := jobHeader{cost: 1}
	for given, values := range header {
		key := textproto.CanonicalMIMEHeaderKey(given)
		name, known := storedNames[key]
		forwarded := strings.HasPrefix(key, queue.HeaderForwardPrefix)
		switch {
		case forwarded:
			name = key
		case key == ipHeader:
			var err error
			if job.ip, err = readIP(values); err != nil {
				return jobHeader{}, err
			}
			continue
		case !known && strings.HasPrefix(key, ourPrefix):
			return jobHeader{}, unknownHeader(given)
		case !known:
			continue
		}
		if name == "tracestate" && len(values) > 1 { // a list, which may stand in several fields: W3C Trace Context, 3.3
			values = []string{strings.Join(values, ",")}
		}
		if _, twice := job.stored[name]; twice || len(values) != 1 && !forwarded {
			return jobHeader{}, &RequestError{name, "must be given once"}
		}
		if slices.ContainsFunc(values, hasControl) {
			return jobHeader{}, &RequestError{name, "holds control characters, which no header can carry on"}
		}
		if job.stored == nil {
			job.stored = make(nats.Header, 4)
		}
		job.stored[name] = values
		if name == queue.HeaderIdempotencyKey {
			if err := checkIdempotencyKey(values[0]); err != nil {
				return jobHeader{}, err
			}
			job.idempotency = values[0]
		}
		if !strings.HasPrefix(name, ourPrefix) {
			continue
		}
		// One header at a time, so that the client is told which.
		parsed := queue.ParseHeader(nats.Header{name: values}, time.Now())
		if parsed.Malformed != nil {
			return jobHeader{}, &RequestError{name, strings.TrimPrefix(parsed.Malformed.Error(), name+": ")}
		}
		switch name {
		case queue.HeaderCost:
			job.cost = parsed.Cost
		case queue.HeaderDeadline:
			job.deadline = parsed.Deadline
		case queue.HeaderNotBefore:
			job.notBefore = parsed.NotBefore
		}
	}
	return job, nil
}

// fit says what the job asks for that its policy's target does not take, and gives it the type of its body.
func (j *jobHeader) fit(p policy.Policy, body []byte) error {
	if bad, ok := errors.AsType[*queue.HeaderError](queue.CheckTarget(p.Target, j.stored)); ok {
		return &RequestError{bad.Header, bad.Reason}
	}
	given := ""
	if values := j.stored[contentType]; len(values) > 0 {
		given = values[0]
	}
	if is := queue.ContentType(given, body); is != given {
		if j.stored == nil {
			j.stored = make(nats.Header, 1)
		}
		j.stored[contentType] = []string{is}
	}
	return nil
}

// startable says why a job could never start under a policy: it would become a dead letter.
func (j jobHeader) startable(p policy.Policy, now time.Time) error {
	last := now.Add(time.Duration(p.MaxAge))
	if !j.deadline.IsZero() && j.deadline.Before(last) {
		last = j.deadline
	}
	switch {
	case !last.After(now):
		return &RequestError{queue.HeaderDeadline, "has passed"}
	case !j.notBefore.Before(last):
		return &RequestError{queue.HeaderNotBefore, "is not before the job's deadline or the policy's max_age"}
	case p.Paced() && j.cost > p.Capacity:
		return &RequestError{queue.HeaderCost, fmt.Sprintf("can never pass: the bucket's capacity is %d", p.Capacity)}
	}
	return nil
}

// checkIdempotencyKey keeps the key within what becomes a message id.
func checkIdempotencyKey(key string) error {
	switch {
	case key == "":
		return &RequestError{queue.HeaderIdempotencyKey, "is empty"}
	case len(key) > maxIdempotencyKey:
		return &RequestError{queue.HeaderIdempotencyKey, fmt.Sprintf("is longer than %d bytes", maxIdempotencyKey)}
	}
	return nil
}

// hasControl reports whether a value cannot be one of HTTP's (RFC 9110, section 5.5). Over NATS anything comes.
func hasControl(value string) bool {
	return strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// CheckHeader is what the headers of a check say.
type CheckHeader struct {
	// Cost is that of Penstock-Cost, 1 when it is not given.
	Cost int64
	// Peek is Penstock-Peek: true: answer, and take nothing.
	Peek bool
	// Refund is Penstock-Refund: true: give back what was taken.
	Refund bool
	// IP is that of Penstock-IP, as limits count it; empty when it is not given.
	IP string
}

// ReadCheckHeader reads the headers of a check, in any case. Errors are [*RequestError]: for what cannot be read, and for
// any other Penstock-… header, because it is most likely a misspelt one.
func ReadCheckHeader(header map[string][]string) (CheckHeader, error) {
	read := CheckHeader{Cost: 1}
	for given, values := range header {
		name := textproto.CanonicalMIMEHeaderKey(given)
		if !strings.HasPrefix(name, ourPrefix) {
			continue
		}
		if len(values) != 1 {
			return CheckHeader{}, &RequestError{name, "must be given once"}
		}
		var err error
		switch name {
		case queue.HeaderCost:
			if read.Cost, err = strconv.ParseInt(values[0], 10, 64); err != nil {
				return CheckHeader{}, &RequestError{name, "must be a whole number of at least 1"}
			}
		case peekHeader:
			if read.Peek, err = strconv.ParseBool(values[0]); err != nil {
				return CheckHeader{}, &RequestError{name, "must be true or false"}
			}
		case refundHeader:
			if read.Refund, err = strconv.ParseBool(values[0]); err != nil {
				return CheckHeader{}, &RequestError{name, "must be true or false"}
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
		return CheckHeader{}, &RequestError{refundHeader, "stands beside " + peekHeader}
	}
	return read, nil
}

func readIP(values []string) (string, error) {
	if len(values) == 1 {
		if ip := ClientIP(values[0]); ip != "" {
			return ip, nil
		}
	}
	return "", &RequestError{IPHeader, "must be one IP address"}
}

func unknownHeader(given string) error {
	return &RequestError{fmt.Sprintf("%.64s", given), "is not a header that this request can have"}
}
