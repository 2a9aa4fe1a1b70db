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
		add("X-Ratelimit-Retry-After", until.String())
		add("Retry-After", until.String())
	}
	name := `"` + s.quota.Policy + `"`
	described := name + ";q=" + integer(s.quota.Units).String()
	if s.quota.Window > 0 {
		described += ";w=" + seconds(s.quota.Window).String()
	}
	add("RateLimit-Policy", described)
	if s.remaining >= 0 {
		add("RateLimit", name+";r="+integer(s.remaining).String()+";t="+until.String())
	}
	return fields
}

type integer int64

func (i integer) String() string { return strconv.FormatInt(min(int64(i), maxInteger), 10) }

func seconds(d time.Duration) integer { return integer(ceil(d, time.Second)) }
