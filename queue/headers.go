package queue

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/algorithms"
)

// Headers of a stored job. Names are read case-insensitively.
const (
	HeaderVersion        = "Penstock-V"          // format version, 1 when absent
	HeaderDeadline       = "Penstock-Deadline"   // RFC 3339, or a positive duration from the stored timestamp
	HeaderCost           = "Penstock-Cost"       // slots of its bucket's rate, 1 (default) to MaxCost and the bucket's capacity
	HeaderPriority       = "Penstock-Priority"   // MinPriority to MaxPriority, default 0, higher goes first
	HeaderNotBefore      = "Penstock-Not-Before" // RFC 3339, or a duration from the stored timestamp
	HeaderMethod         = "Penstock-Method"     // for HTTP targets
	HeaderPath           = "Penstock-Path"       // for HTTP targets: see ParsePath
	HeaderForwardPrefix  = "Penstock-Forward-"   // for HTTP targets: the rest is a header's name
	HeaderIdempotencyKey = "Idempotency-Key"
	HeaderSum            = "Penstock-Sum" // set by the admitter beside an Idempotency-Key: see PayloadSum
)

// Bounds of what headers may say.
const (
	MaxCost     = 1_000_000
	MinPriority = -9
	MaxPriority = 9
)

// headerSize is what the server puts in place of a body that it leaves out.
const headerSize = "Nats-Msg-Size"

// ParseHeader tells what a job with these headers would be if it were stored at the given time: its Cost, Priority,
// Deadline and NotBefore, and in Malformed what cannot be understood. Whoever accepts jobs refuses the latter.
func ParseHeader(h nats.Header, stored time.Time) Arrived {
	a := Arrived{Stored: stored}
	a.parseHeader(h)
	return a
}

// parseHeader fills in what a job's headers say. Whatever cannot be understood is reported in a.Malformed, where a reason
// that is there already (a strange subject) stays.
func (a *Arrived) parseHeader(h nats.Header) {
	a.Cost = 1
	a.Header = h
	var problems []error
	seen := 0 // bits of known, to notice one header in two spellings
	for name, values := range h {
		if len(name) < len("Penstock-") || !strings.EqualFold(name[:len("Penstock-")], "Penstock-") {
			continue
		}
		if hasPrefixFold(name, HeaderForwardPrefix) {
			if !isToken(name[len(HeaderForwardPrefix):]) {
				problems = append(problems, fmt.Errorf("%s: not a header's name", name))
			}
			continue
		}
		for i, known := range jobHeaders {
			if !strings.EqualFold(name, known.name) {
				continue
			}
			if seen&(1<<i) != 0 || len(values) != 1 {
				problems = append(problems, fmt.Errorf("%s: given more than once", known.name))
			} else if err := known.read(a, strings.TrimSpace(values[0])); err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", known.name, err))
			}
			seen |= 1 << i
		}
	}
	if len(problems) > 0 && a.Malformed == nil {
		a.Malformed = errors.Join(problems...)
	}
}

// jobHeaders are the headers that are read here; others that begin with Penstock- are nobody's business yet.
var jobHeaders = []struct {
	name string
	read func(a *Arrived, value string) error
}{
	{HeaderVersion, func(_ *Arrived, value string) error {
		if value != strconv.Itoa(formatVersion) {
			return fmt.Errorf("%w: %q", ErrVersion, value)
		}
		return nil
	}},
	{HeaderDeadline, func(a *Arrived, value string) (err error) {
		a.Deadline, err = instant(value, a.Stored, 1)
		return err
	}},
	{HeaderNotBefore, func(a *Arrived, value string) (err error) {
		a.NotBefore, err = instant(value, a.Stored, 0)
		return err
	}},
	{HeaderCost, func(a *Arrived, value string) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 1 || n > MaxCost {
			return fmt.Errorf("%q: want a whole number from 1 to %d", value, MaxCost)
		}
		a.Cost = n
		return nil
	}},
	{HeaderPriority, func(a *Arrived, value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < MinPriority || n > MaxPriority {
			return fmt.Errorf("%q: want a whole number from %d to %d", value, MinPriority, MaxPriority)
		}
		a.Priority = n
		return nil
	}},
	{HeaderMethod, func(_ *Arrived, value string) error {
		if !isToken(value) || len(value) > 32 {
			return fmt.Errorf("%q: not a method", value)
		}
		return nil
	}},
	{HeaderPath, func(_ *Arrived, value string) error {
		_, err := ParsePath(value)
		return err
	}},
}

// ParsePath reads a [HeaderPath]: an escaped path, perhaps with a query, that stays where it is appended. It names no
// host, and no segment of it is "." or "..".
func ParsePath(value string) (*url.URL, error) {
	if !strings.HasPrefix(value, "/") || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r == 0x7F }) {
		return nil, fmt.Errorf("%q: want a path that begins with / and holds no spaces", value)
	}
	path, err := url.Parse(value)
	if err != nil {
		return nil, fmt.Errorf("%q: not a path", value)
	}
	if path.Host != "" || path.User != nil || path.Path == "" {
		return nil, fmt.Errorf("%q: names a host", value)
	}
	for segment := range strings.SplitSeq(path.Path, "/") {
		if segment == "." || segment == ".." {
			return nil, fmt.Errorf("%q: holds the segment %q", value, segment)
		}
	}
	return path, nil
}

// instant reads a point in time, or a duration of at least least from one.
func instant(value string, from time.Time, least time.Duration) (time.Time, error) {
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
		t = t.Add(1) // for the zero time means none
	}
	return t, nil
}

// isToken reports whether s is a token of HTTP's grammar.
func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}
