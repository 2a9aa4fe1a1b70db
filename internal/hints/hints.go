// Package hints reads a target's rate-limit headers: whether its quota is used up, and for how
// long.
package hints

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// Longer pauses are cut to it.
const Longest = 100 * 365 * 24 * time.Hour

// headers of the remaining quota and its reset: of the IETF draft up to version 6, also GitLab's;
// GitHub's, shared by nearly all others, and Discord's variant; X's; OpenAI's two; Anthropic's
var spellings = []struct{ remaining, reset string }{
	{"Ratelimit-Remaining", "Ratelimit-Reset"},
	{"X-Ratelimit-Remaining", "X-Ratelimit-Reset-After"},
	{"X-Ratelimit-Remaining", "X-Ratelimit-Reset"},
	{"X-Rate-Limit-Remaining", "X-Rate-Limit-Reset"},
	{"X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"},
	{"X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"},
	{"Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset"},
	{"Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset"},
	{"Anthropic-Ratelimit-Input-Tokens-Remaining", "Anthropic-Ratelimit-Input-Tokens-Reset"},
	{"Anthropic-Ratelimit-Output-Tokens-Remaining", "Anthropic-Ratelimit-Output-Tokens-Reset"},
}

// Pause returns how long a target's quota is used up, the longest of several pauses; 0: not, or
// unknown. Dates are relative to the response's Date, or else to now.
func Pause(header http.Header, now time.Time) (pause time.Duration) {
	now = Clock(header, now)
	for _, s := range spellings {
		if left, ok := number(header.Get(s.remaining)); ok && left == 0 {
			pause = max(pause, Reset(header.Get(s.reset), now))
		}
	}
	return max(pause, structured(header), shopify(header.Get("X-Shopify-Shop-Api-Call-Limit")))
}

// Throttled reports whether a response throttles, and for how long: by Retry-After-Ms or
// Retry-After, or else by left, the result of [Pause] (less than 0: unknown). GitHub answers 403
// when a limit is used up.
func Throttled(status int, header http.Header, left time.Duration, now time.Time) (
	pause time.Duration, throttled bool) {

	pause, named := RetryAfter(header.Get("Retry-After"), Clock(header, now))
	if ms, ok := number(header.Get("Retry-After-Ms")); ok {
		pause, named = inSeconds(ms/1000), true
	}
	if !named {
		pause = max(0, left)
	}
	return pause, status == http.StatusTooManyRequests ||
		status == http.StatusServiceUnavailable && named ||
		status == http.StatusForbidden && (left > 0 || left == 0 && named)
}

// Clock is the target's, if its response has a Date.
func Clock(header http.Header, now time.Time) time.Time {
	if theirs, err := http.ParseTime(header.Get("Date")); err == nil {
		return theirs
	}
	return now
}

// RetryAfter parses seconds or an HTTP date (RFC 9110, 10.2.3). Shopify's seconds have a fraction.
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

// Reset parses when a limit resets. A number is in seconds from now below 10⁹ (31 years), Unix
// seconds below 10¹¹, else Unix milliseconds. 6m0s and 120ms are durations from now; HTTP dates and
// RFC 3339 are dates.
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

// structured parses RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers): lists
// since version 8, the dictionary of version 7.
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

func numeric(value any) (n float64, ok bool) {
	switch v := value.(type) {
	case int64:
		n, ok = float64(v), v >= 0
	case float64:
		n, ok = v, v >= 0
	}
	return n, ok
}

// Shopify's buckets empty in 20 seconds at any size (40 at 2 a second, 400 at 20): a full one has
// room for a request after 20 s divided by its size.
func shopify(value string) time.Duration {
	used, limit, _ := strings.Cut(strings.TrimSpace(value), "/")
	u, ok := number(used)
	l, also := number(limit)
	if !ok || !also || l < 1 || u < l {
		return 0
	}
	return inSeconds(20 / l)
}

// number parses a decimal without a sign or an exponent.
func number(text string) (n float64, ok bool) {
	text = strings.TrimSpace(text)
	if strings.Trim(text, "0123456789.") != "" {
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	return min(n, 1e18), err == nil
}

// inSeconds returns n seconds, at most Longest.
func inSeconds(n float64) time.Duration {
	if n < Longest.Seconds() {
		return time.Duration(n * float64(time.Second))
	}
	return Longest
}

func bounded(d time.Duration) time.Duration { return min(max(d, 0), Longest) }
