// Package hints reads a target's rate-limit headers: whether its quota is used up, and how long a
// target asks to wait.
package hints

import (
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// Longer pauses are cut to it.
const Longest = 100 * 365 * 24 * time.Hour

// spellings are headers of the remaining quota and its reset: of the IETF draft up to version 6,
// also GitLab's; GitHub's, shared by nearly all others, and Discord's variant; X's; OpenAI's two;
// Anthropic's; Linear's; Contentful's. With a unit, a number is a time from now: BigCommerce's, and
// the windows of HubSpot and Trello.
var spellings = []struct {
	remaining, reset string
	unit             time.Duration
}{
	{"Ratelimit-Remaining", "Ratelimit-Reset", 0},
	{"Ratelimit-Remaining", "Ratelimit-Resettime", 0},
	{"X-Ratelimit-Remaining", "X-Ratelimit-Reset-After", 0},
	{"X-Ratelimit-Remaining", "X-Ratelimit-Reset", 0},
	{"X-Rate-Limit-Remaining", "X-Rate-Limit-Reset", 0},
	{"X-User-Limit-24hour-Remaining", "X-User-Limit-24hour-Reset", 0},
	{"X-App-Limit-24hour-Remaining", "X-App-Limit-24hour-Reset", 0},
	{"X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests", 0},
	{"X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens", 0},
	{"Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset", 0},
	{"Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset", 0},
	{"Anthropic-Ratelimit-Input-Tokens-Remaining", "Anthropic-Ratelimit-Input-Tokens-Reset", 0},
	{"Anthropic-Ratelimit-Output-Tokens-Remaining", "Anthropic-Ratelimit-Output-Tokens-Reset", 0},
	{"X-Ratelimit-Requests-Remaining", "X-Ratelimit-Requests-Reset", 0},
	{"X-Ratelimit-Complexity-Remaining", "X-Ratelimit-Complexity-Reset", 0},
	{"X-Ratelimit-Endpoint-Requests-Remaining", "X-Ratelimit-Endpoint-Requests-Reset", 0},
	{"X-Contentful-Ratelimit-Remaining", "X-Contentful-Ratelimit-Reset", 0},
	{"X-Rate-Limit-Requests-Left", "X-Rate-Limit-Time-Reset-Ms", time.Millisecond},
	{"X-Hubspot-Ratelimit-Remaining", "X-Hubspot-Ratelimit-Interval-Milliseconds",
		time.Millisecond},
	{"X-Rate-Limit-Api-Token-Remaining", "X-Rate-Limit-Api-Token-Interval-Ms", time.Millisecond},
	{"X-Rate-Limit-Api-Key-Remaining", "X-Rate-Limit-Api-Key-Interval-Ms", time.Millisecond},
}

// Pause returns how long a target's quota is used up, the longest of several pauses; 0: not, or
// unknown. Dates are relative to the response's Date, or else to now.
func Pause(header http.Header, now time.Time) (pause time.Duration) {
	now = Clock(header, now)
	for _, s := range spellings {
		if left := header[s.remaining]; left != nil {
			pause = max(pause, usedUp(left, header[s.reset], s.unit, now))
		}
	}
	for name, values := range header {
		switch {
		case strings.HasPrefix(name, "Zendesk-Ratelimit-"):
			pause = max(pause, zendesk(values))
		case name == "X-Sentry-Rate-Limits":
			pause = max(pause, sentry(values))
		}
	}
	return max(pause, structured(header), shopify(header.Get("X-Shopify-Shop-Api-Call-Limit")))
}

// Resets returns the latest reset in headers that do not say how much remains, for an answer that
// throttles; 0: none.
func Resets(header http.Header, now time.Time) (reset time.Duration) {
	now = Clock(header, now)
	for _, s := range spellings {
		if header[s.remaining] == nil {
			reset = max(reset, usedUp([]string{"0"}, header[s.reset], s.unit, now))
		}
	}
	return reset
}

// usedUp returns the latest reset of the quotas of which 0 or less remains. Fields in several lines
// or in a list ("0, 12") belong together in their order.
func usedUp(left, resets []string, unit time.Duration, now time.Time) (pause time.Duration) {
	left = list(left)
	if len(resets) == 1 && len(left) > 1 {
		if _, whole := RetryAfter(resets[0], now); !whole { // dates have commas
			resets = list(resets)
		}
	}
	for i, text := range left {
		text, _, _ = strings.Cut(text, ";") // the parameters of some
		if n, ok := number(strings.TrimPrefix(text, "-")); !ok || n > 0 && text[0] != '-' {
			continue
		}
		for j, reset := range resets {
			if len(resets) != len(left) || i == j {
				pause = max(pause, in(reset, unit, now))
			}
		}
	}
	return pause
}

func list(fields []string) (values []string) {
	for _, field := range fields {
		for value := range strings.SplitSeq(field, ",") {
			values = append(values, strings.TrimSpace(value))
		}
	}
	return values
}

// in reads a number in a unit, or else any form.
func in(text string, unit time.Duration, now time.Time) time.Duration {
	if n, ok := number(text); ok && unit > 0 {
		return Seconds(n * unit.Seconds())
	}
	after, _ := RetryAfter(text, now)
	return after
}

// Asked returns the pause that an answer requests: Retry-After, or one of its variants in
// milliseconds.
func Asked(header http.Header, now time.Time) (after time.Duration, named bool) {
	for _, name := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if ms, ok := number(header.Get(name)); ok {
			return Seconds(ms / 1000), true
		}
	}
	return RetryAfter(header.Get("Retry-After"), Clock(header, now))
}

// Clock is the target's, if its response has a Date.
func Clock(header http.Header, now time.Time) time.Time {
	if theirs, err := http.ParseTime(header.Get("Date")); err == nil {
		return theirs
	}
	return now
}

// layouts of dates: RFC 3339, without a colon in the zone, and without seconds, as Atlassian's;
// RFC 1123 with a numeric zone; of JavaScript's Date.
var layouts = []string{time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02T15:04Z07:00",
	"2006-01-02T15:04Z0700", time.RFC1123Z, "Mon Jan 02 2006 15:04:05 GMT-0700"}

// RetryAfter parses the forms of Retry-After and of resets. A number is in seconds from now below
// 10⁹ (31 years), Unix seconds below 10¹¹, else Unix milliseconds. 6m0s and 120ms are durations.
// Dates are HTTP's (RFC 9110, 5.6.7), or have one of the layouts.
func RetryAfter(value string, now time.Time) (after time.Duration, named bool) {
	value = strings.TrimSpace(value)
	if n, ok := number(strings.TrimPrefix(value, "-")); ok {
		unix := float64(now.UnixMilli()) / 1000
		switch {
		case value[0] == '-':
			n = 0
		case n >= 1e11:
			n = max(0, n/1000-unix)
		case n >= 1e9:
			n = max(0, n-unix)
		}
		return Seconds(n), true
	}
	if d, err := time.ParseDuration(value); err == nil {
		return bounded(d), true
	}
	if at, err := http.ParseTime(value); err == nil {
		return bounded(at.Sub(now)), true
	}
	value, _, _ = strings.Cut(value, " (") // the name of JavaScript's zone
	for _, layout := range layouts {
		if at, err := time.Parse(layout, value); err == nil {
			return bounded(at.Sub(now)), true
		}
	}
	return 0, false
}

// prose finds a time after the word that introduces it: try again in 9 minutes, retry after
// 2026-01-01T00:15:00.000Z, banned until 1767225780000.
var prose = regexp.MustCompile(`(?i)\b(?:in|after|until|throttled)\b:?\s+(?:(` +
	`\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)|` +
	`[a-z]{3}, \d\d [a-z]{3} \d{4} [\d:]{8} GMT|` +
	`(?:\d+h)?(?:\d+m)?\d+(?:\.\d+)?m?s)\b|` +
	`(\d+(?:\.\d+)?)(?:\s*` +
	`(milliseconds?|ms|seconds?|secs?|minutes?|mins?|hours?|days?)\b|` +
	`(?:[.,;)]|\s*$|\s\W)))`)

// InText parses a time, or else finds one in a sentence.
func InText(text string, now time.Time) (after time.Duration, named bool) {
	if after, named = RetryAfter(text, now); named {
		return after, named
	}
	found := prose.FindStringSubmatch(text)
	switch {
	case found == nil:
		return 0, false
	case found[1] != "":
		return RetryAfter(found[1], now)
	case found[3] == "":
		return RetryAfter(found[2], now)
	}
	n, _ := number(found[2])
	switch unit := strings.ToLower(found[3]); {
	case unit == "ms", strings.HasPrefix(unit, "milli"):
		n /= 1000
	default:
		n *= map[byte]float64{'s': 1, 'm': 60, 'h': 3600, 'd': 86400}[unit[0]]
	}
	return Seconds(n), true
}

// zendesk parses total=100; remaining=0; resets=12, of one endpoint.
func zendesk(values []string) (pause time.Duration) {
	for _, value := range values {
		fields := map[string]string{}
		for field := range strings.SplitSeq(value, ";") {
			name, n, _ := strings.Cut(strings.TrimSpace(field), "=")
			fields[name] = n
		}
		if left, ok := number(fields["remaining"]); ok && left == 0 {
			resets, _ := number(fields["resets"])
			pause = max(pause, Seconds(resets))
		}
	}
	return pause
}

// sentry parses 60:error;transaction:organization:reason, the pause of some kinds of events.
func sentry(values []string) (pause time.Duration) {
	for _, limit := range list(values) {
		seconds, _, _ := strings.Cut(limit, ":")
		n, _ := number(seconds)
		pause = max(pause, Seconds(n))
	}
	return pause
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
				pause = max(pause, Seconds(reset))
			}
		}
		return pause
	}
	if limit, err := httpsfv.UnmarshalDictionary(fields); err == nil {
		if left, ok := member(limit, "remaining"); ok && left == 0 {
			reset, _ := member(limit, "reset")
			return Seconds(reset)
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
	return Seconds(20 / l)
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

// Seconds returns n seconds, at most Longest.
func Seconds(n float64) time.Duration {
	if n < Longest.Seconds() {
		return time.Duration(math.Round(n * float64(time.Second)))
	}
	return Longest
}

func bounded(d time.Duration) time.Duration { return min(max(d, 0), Longest) }
