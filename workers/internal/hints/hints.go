// Package hints reads what HTTP answers say of a target's limits: whether it has anything left, and
// for how long not. It looks at nothing but headers and the time that it is given.
package hints

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// Longest is the longest pause that is told; a longer one counts as this.
const Longest = 100 * 365 * 24 * time.Hour

// spellings are the pairs of headers that say how much is left and when there is more: those of
// the IETF draft until its version 6, which GitLab has too; GitHub's, which nearly all others
// share, and Discord's besides; X's; and OpenAI's for its two limits.
var spellings = []struct{ remaining, reset string }{
	{"Ratelimit-Remaining", "Ratelimit-Reset"},
	{"X-Ratelimit-Remaining", "X-Ratelimit-Reset-After"},
	{"X-Ratelimit-Remaining", "X-Ratelimit-Reset"},
	{"X-Rate-Limit-Remaining", "X-Rate-Limit-Reset"},
	{"X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"},
	{"X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"},
}

// Pause returns for how long a target has nothing left, 0 when it has, when it does not say so, or
// when what it says cannot be understood. Of several limits that are used up the longest counts.
// Dates are judged by the answer's own Date, or by now where it has none.
func Pause(header http.Header, now time.Time) (pause time.Duration) {
	now = Clock(header, now)
	for _, s := range spellings {
		if left, ok := number(header.Get(s.remaining)); ok && left == 0 {
			pause = max(pause, Reset(header.Get(s.reset), now))
		}
	}
	return max(pause, structured(header), shopify(header.Get("X-Shopify-Shop-Api-Call-Limit")))
}

// Clock is what time it is at the target, as its answer says, or else now.
func Clock(header http.Header, now time.Time) time.Time {
	if theirs, err := http.ParseTime(header.Get("Date")); err == nil {
		return theirs
	}
	return now
}

// RetryAfter reads seconds or an HTTP date (RFC 9110, section 10.2.3). Seconds may have a fraction,
// as Shopify's have.
func RetryAfter(value string, now time.Time) (after time.Duration, named bool) {
	value = strings.TrimSpace(value)
	if seconds, ok := number(strings.TrimPrefix(value, "-")); ok {
		if strings.HasPrefix(value, "-") {
			return 0, true
		}
		return inSeconds(seconds), true
	}
	if at, err := http.ParseTime(value); err == nil {
		return bounded(at.Sub(now)), true
	}
	return 0, false
}

// Reset reads when a limit is as good as new. Numbers are told apart by their size: below 10⁹ they
// are seconds from now, since that many are 31 years; below 10¹¹ Unix seconds; above it Unix
// milliseconds. 6m0s and 120ms are durations from now, and dates of HTTP and of RFC 3339 are dates.
func Reset(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if n, ok := number(value); ok {
		unix := float64(now.UnixMilli()) / 1000
		switch {
		case n < 1e9:
			return inSeconds(n)
		case n < 1e11:
			return inSeconds(max(0, n-unix))
		}
		return inSeconds(max(0, n/1000-unix))
	}
	if d, err := time.ParseDuration(value); err == nil {
		return bounded(d)
	}
	if at, err := http.ParseTime(value); err == nil {
		return bounded(at.Sub(now))
	}
	if at, err := time.Parse(time.RFC3339, value); err == nil {
		return bounded(at.Sub(now))
	}
	return 0
}

// structured reads RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers), as lists
// of policies since version 8, and as the one dictionary of version 7.
func structured(header http.Header) (pause time.Duration) {
	fields := header.Values("Ratelimit")
	if list, err := httpsfv.UnmarshalList(fields); err == nil {
		for _, member := range list {
			item, ok := member.(httpsfv.Item)
			if left, has := parameter(item, "r"); ok && has && left == 0 {
				reset, told := parameter(item, "t")
				if !told {
					reset = window(header, item.Value)
				}
				pause = max(pause, inSeconds(reset))
			}
		}
		return pause
	}
	if limit, err := httpsfv.UnmarshalDictionary(fields); err == nil {
		if left, ok := member(limit, "remaining"); ok && left == 0 {
			reset, _ := member(limit, "reset")
			return inSeconds(reset)
		}
	}
	return 0
}

// window is that of a policy: what is used up of it is back by then.
func window(header http.Header, name any) (seconds float64) {
	list, err := httpsfv.UnmarshalList(header.Values("Ratelimit-Policy"))
	if err != nil {
		return 0
	}
	for _, member := range list {
		if item, ok := member.(httpsfv.Item); ok && item.Value == name {
			seconds, _ = parameter(item, "w")
		}
	}
	return seconds
}

func parameter(item httpsfv.Item, name string) (n float64, ok bool) {
	if item.Params == nil {
		return 0, false
	}
	value, _ := item.Params.Get(name)
	return numeric(value)
}

func member(limit *httpsfv.Dictionary, name string) (n float64, ok bool) {
	value, _ := limit.Get(name)
	item, _ := value.(httpsfv.Item)
	return numeric(item.Value)
}

// numeric is a number of a structured field that is not negative.
func numeric(value any) (n float64, ok bool) {
	switch v := value.(type) {
	case int64:
		n, ok = float64(v), v >= 0
	case float64:
		n, ok = v, v >= 0
	}
	return n, ok
}

// shopify reads how much of a leaky bucket is used, as in 39/40. One request has leaked from a full
// one after a part of the 20 seconds in which Shopify's buckets empty, whatever their size: 40 at 2
// a second, 400 at 20.
func shopify(value string) time.Duration {
	used, limit, _ := strings.Cut(strings.TrimSpace(value), "/")
	u, ok := number(used)
	l, also := number(limit)
	if !ok || !also || l < 1 || u < l {
		return 0
	}
	return inSeconds(20 / l)
}

// number reads decimal digits, perhaps with a fraction, and nothing else: no sign, no exponent.
func number(text string) (n float64, ok bool) {
	text = strings.TrimSpace(text)
	if strings.Trim(text, "0123456789.") != "" {
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	return min(n, 1e18), err == nil
}

// inSeconds is a duration that is not negative, and at most the longest.
func inSeconds(n float64) time.Duration {
	if n < Longest.Seconds() {
		return time.Duration(n * float64(time.Second))
	}
	return Longest
}

func bounded(d time.Duration) time.Duration { return min(max(d, 0), Longest) }
