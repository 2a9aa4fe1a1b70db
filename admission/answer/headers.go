package answer

import (
	"strconv"
	"time"

	"github.com/penstock-mq/penstock/admission"
)

// maxInteger is the largest integer of structured fields (RFC 9651, 3.3.1).
const maxInteger = 999_999_999_999_999

type quotaState struct {
	quota     admission.Quota
	remaining int64
	reset     time.Duration
	retry     time.Duration
	refused   bool
}

// fields returns X-Ratelimit-…, Retry-After, and the structured fields of
// draft-ietf-httpapi-ratelimit-headers-11, without unknown remaining units.
func (s quotaState) fields(contentType string) []Field {
	fields := make([]Field, 0, 7)
	add := func(name, value string) { fields = append(fields, Field{name, value}) }

	add("Content-Type", contentType)
	add("X-Ratelimit-Limit", strconv.FormatInt(s.quota.Units, 10))
	if s.remaining >= 0 {
		add("X-Ratelimit-Remaining", strconv.FormatInt(s.remaining, 10))
	}
	// The draft requires t and Retry-After to mean the same instant.
	until := seconds(s.reset)
	if s.refused {
		until = max(1, seconds(s.retry))
		retry := strconv.FormatInt(until, 10)
		add("X-Ratelimit-Retry-After", retry)
		add("Retry-After", retry)
	}
	var room [128]byte
	name := append(append(append(room[:0], '"'), s.quota.Policy...), '"')
	described := integer(append(name, ";q="...), s.quota.Units)
	if s.quota.Window > 0 {
		described = integer(append(described, ";w="...), seconds(s.quota.Window))
	}
	add("RateLimit-Policy", string(described))
	if s.remaining >= 0 {
		state := integer(append(name, ";r="...), s.remaining)
		add("RateLimit", string(integer(append(state, ";t="...), until)))
	}
	return fields
}

func integer(text []byte, n int64) []byte { return strconv.AppendInt(text, min(n, maxInteger), 10) }

func seconds(d time.Duration) int64 { return ceil(d, time.Second) }
