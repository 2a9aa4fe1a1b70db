package hints

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func header(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		h.Add(name, strings.TrimSpace(value))
	}
	return h
}

func TestEverySpellingOfAnEmptyQuota(t *testing.T) {
	const date = "Date: Tue, 01 Jan 2030 00:00:00 GMT"
	for text, want := range map[string]time.Duration{
		"": 0,
		"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 30":                   30 * time.Second,
		"X-RateLimit-Remaining: 1\nX-RateLimit-Reset: 30":                   0,
		"X-RateLimit-Remaining: 0":                                          0,
		"x-ratelimit-remaining: 0\nx-ratelimit-reset: 1893456060":           time.Minute, // GitHub
		"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1893456060000":        time.Minute,
		"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1893456000.25":        250 * ms,
		"X-RateLimit-Remaining: 0\nX-RateLimit-Reset-After: 1.5":            1500 * ms,
		"x-rate-limit-remaining: 0\nx-rate-limit-reset: 1893456001":         time.Second,
		"RateLimit-Remaining: 0\nRateLimit-Reset: 7":                        7 * time.Second,
		"RateLimit-Remaining: 0\nRateLimit-Reset: 1893456007":               7 * time.Second,
		"RateLimit: limit=100, remaining=0, reset=5":                        5 * time.Second,
		"RateLimit: limit=100, remaining=2, reset=5":                        0,
		`RateLimit: "default";r=0;t=3`:                                      3 * time.Second,
		`RateLimit: "default";r=1;t=3`:                                      0,
		`RateLimit: "a";r=0;t=3, "b";r=0;t=9, "c";r=5;t=60`:                 9 * time.Second,
		"RateLimit: \"a\";r=1;t=3\nRateLimit: \"b\";r=0;t=4":                4 * time.Second,
		"RateLimit: \"a\";r=0\nRateLimit-Policy: \"b\";w=9, \"a\";w=60":     time.Minute,
		`RateLimit: "a";r=0`:                                                0,
		`RateLimit: "a";r=0;t=`:                                             0,
		"x-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 1s": time.Second,
		"x-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 6m0s":   6 * time.Minute,
		"x-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 120ms":  120 * ms,
		"x-ratelimit-remaining-tokens: 9\nx-ratelimit-reset-tokens: 6m0s":   0,
		"anthropic-ratelimit-requests-remaining: 0\nanthropic-ratelimit-requests-reset: " +
			"2030-01-01T00:00:02Z": 2 * time.Second,
		"anthropic-ratelimit-input-tokens-remaining: 0\n" +
			"anthropic-ratelimit-input-tokens-reset: 2030-01-01T00:00:03Z": 3 * time.Second,
		"X-Shopify-Shop-Api-Call-Limit: 39/40":                              0,
		"X-Shopify-Shop-Api-Call-Limit: 40/40":                              500 * ms,
		"X-Shopify-Shop-Api-Call-Limit: 400/400":                            50 * ms,
		"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 2030-01-01T00:00:08Z": 8 * time.Second,
		"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: Tue, 01 Jan 2030 00:00:09 GMT": 9 *
			time.Second,
		"X-RateLimit-Remaining: 0\n" +
			"X-RateLimit-Reset: 2030-01-01T00:14Z": 14 * time.Minute,
		"X-RateLimit-Remaining: 0\n" +
			"X-RateLimit-Reset: 2030-01-01T00:14+0000": 14 * time.Minute,
		"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 2030-01-01T01:00:02+0100":    2 * time.Second,
		"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 2030-01-01T00:00:01.500Z":    1500 * ms,
		"RateLimit-Remaining: 0\nRateLimit-Reset: Tue, 01 Jan 2030 00:01:00 +0000": time.Minute,
		"RateLimit-Remaining: 0\nRateLimit-Reset: " +
			"Tue Jan 01 2030 01:00:42 GMT+0100 (Central European Standard Time)": 42 * time.Second,
		"RateLimit-Remaining: 0\nRateLimit-ResetTime: 2030-01-01T00:00:20+00:00": 20 *
			time.Second,
		"X-RateLimit-Remaining: -3\nX-RateLimit-Reset: 30":       30 * time.Second,
		"X-RateLimit-Remaining: 0, 0\nX-RateLimit-Reset: 30":     30 * time.Second,
		"X-RateLimit-Remaining: 0, 5\nX-RateLimit-Reset: 7, 300": 7 * time.Second,
		"X-RateLimit-Remaining: 5\nX-RateLimit-Remaining: 0\n" +
			"X-RateLimit-Reset: 7\nX-RateLimit-Reset: 300": 5 * time.Minute,
		"X-RateLimit-Remaining: 5, 5\nX-RateLimit-Reset: 30": 0,
		"X-RateLimit-Remaining: 0, 0\nX-RateLimit-Reset: " +
			"Tue, 01 Jan 2030 00:00:09 GMT": 9 * time.Second,
		"RateLimit-Remaining: 0;w=60\nRateLimit-Reset: 30": 30 * time.Second,
		"RateLimit-Remaining: 0;w=21600":                   0, // Docker Hub names no time
		"X-HubSpot-RateLimit-Remaining: 0\n" +
			"X-HubSpot-RateLimit-Interval-Milliseconds: 10000": 10 * time.Second,
		"X-HubSpot-RateLimit-Remaining: 9\n" +
			"X-HubSpot-RateLimit-Interval-Milliseconds: 10000": 0,
		"x-rate-limit-api-token-remaining: 0\n" +
			"x-rate-limit-api-token-interval-ms: 10000": 10 * time.Second,
		"X-Rate-Limit-Requests-Left: 0\nX-Rate-Limit-Time-Reset-Ms: 12500": 12500 * ms,
		"X-RateLimit-Requests-Remaining: 0\n" +
			"X-RateLimit-Requests-Reset: 1893456240000": 4 * time.Minute, // Linear
		"x-rate-limit-remaining: 9\nx-rate-limit-reset: 1893456060\n" +
			"x-user-limit-24hour-remaining: 0\n" +
			"x-user-limit-24hour-reset: 1893463200": 2 * time.Hour,
		"zendesk-ratelimit-tickets-index: total=100; remaining=0; resets=12":      12 * time.Second,
		"zendesk-ratelimit-tickets-index: total=100; remaining=1; resets=12":      0,
		"X-Sentry-Rate-Limits: 30:error:key, 120:transaction;span:organization:x": 2 * time.Minute,
	} {
		if got := Pause(header(append(strings.Split(text, "\n"), date)...), now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// The finest unit wins, and dates are by the target's clock.
func TestWhatAnAnswerAsksFor(t *testing.T) {
	const date = "\nDate: Tue, 01 Jan 2030 00:00:00 GMT"
	for text, want := range map[string]time.Duration{
		"": -1, "Retry-After: soon": -1, "Retry-After: 3": 3 * time.Second, "Retry-After: 0": 0,
		"Retry-After: 3\nretry-after-ms: 2500":            2500 * ms,
		"x-ms-retry-after-ms: 120":                        120 * ms,
		"Retry-After: Tue, 01 Jan 2030 00:00:07 GMT":      7 * time.Second,
		"Retry-After: 2030-01-02T00:00:00Z":               24 * time.Hour,
		"x-ratelimit-reset: 30\nx-ratelimit-remaining: 0": -1,
	} {
		got, named := Asked(header(strings.Split(text+date, "\n")...), now.Add(-time.Hour))
		if named != (want >= 0) || named && got != want {
			t.Errorf("%q: %v, %v", text, got, named)
		}
	}
}

func TestResetsWithoutARemainingQuota(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"":                                     0,
		"X-RateLimit-Reset: 2030-01-01T00:14Z": 14 * time.Minute,
		"X-Contentful-RateLimit-Reset: 1":      time.Second,
		"X-RateLimit-Reset: 30\nX-RateLimit-Remaining: 29": 0,
		"X-RateLimit-Reset: 30\nRateLimit-Reset: 40":       40 * time.Second,
		"X-Rate-Limit-Time-Reset-Ms: 600000":               10 * time.Minute,
	} {
		if got := Resets(header(strings.Split(text, "\n")...), now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestTimesInSentences(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"37s": 37 * time.Second, "512.2": 512200 * ms, "1893456060": time.Minute,
		"Slow down. Please try again in 9 minutes.":               9 * time.Minute,
		"Rate limit reached. Please try again in 41.724s. Visit":  41724 * ms,
		"please retry in 10h17m5.7s.":                             10*time.Hour + 1025700*ms,
		"Budget used up, cost 301 of 1000, reset in 3 seconds":    3 * time.Second,
		"At most 5 in 1 window of 10 seconds. Try in 2 hours":     2 * time.Hour,
		"Too fast. Retry after 2030-01-01T00:15:00.000Z":          15 * time.Minute,
		"try again after Tue, 01 Jan 2030 00:10:00 GMT and write": 10 * time.Minute,
		"IP(192.0.2.7) banned until 1893456180000. Wait":          3 * time.Minute,
		"Throttled: 1893456030":                                   30 * time.Second,
		"Too Many Requests: retry after 17":                       17 * time.Second,
		"Retry after: 21 seconds":                                 21 * time.Second,
		"wait: try in 250 ms":                                     250 * ms,
		"":                                                        -1,
		"too fast":                                                -1,
		"at most 5 a second":                                      -1,
		"in 3 requests":                                           -1,
		"version 2":                                               -1,
		"in the last 10 seconds":                                  -1,
	} {
		got, named := InText(text, now)
		if named != (want >= 0) || named && got != want {
			t.Errorf("%q: %v, %v", text, got, named)
		}
	}
}

func TestADateIsJudgedByTheTargetsClock(t *testing.T) {
	h := header("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1893456060",
		"Date: Tue, 01 Jan 2030 00:00:50 GMT")
	if got := Pause(h, now.Add(-time.Hour)); got != 10*time.Second {
		t.Errorf("by the target's clock it is %v", got)
	}
	h.Del("Date")
	if got := Pause(h, now.Add(40*time.Second)); got != 20*time.Second {
		t.Errorf("without a date it is %v", got)
	}
}

func TestAbsurdPausesAreBounded(t *testing.T) {
	for reset, want := range map[string]time.Duration{
		"-1": 0, "NaN": 0, "Inf": 0, "1e9": 0, "soon": 0, "0x10": 0, "1.2.3": 0, "": 0, "-5s": 0,
		"1893455999": 0, "0": 0, "99999999999999999999": Longest, "86400": 24 * time.Hour,
		"9223372036854775807": Longest, "Fri, 31 Dec 9999 23:59:59 GMT": Longest,
		"9999-12-31T23:59:59Z": Longest, "2030-13-01T00:00Z": 0,
		"Mon, 01 Jan 0001 00:00:00 GMT": 0, "2562047h": Longest,
	} {
		h := header("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: "+reset)
		if got := Pause(h, now); got != want {
			t.Errorf("%q: %v, want %v", reset, got, want)
		}
	}
	for _, left := range []string{"NaN", "none", "1", "0.5", "", ",", "-", "--1", "1,2", ";w=0"} {
		h := header("X-RateLimit-Remaining: "+left, "X-RateLimit-Reset: 60")
		if got := Pause(h, now); got != 0 {
			t.Errorf("with %q left: %v", left, got)
		}
	}
	for _, used := range []string{"40", "40/", "/40", "0/0", "a/b", "-1/40", "41/-40", "40/0.1"} {
		if got := shopify(used); got != 0 {
			t.Errorf("%q of Shopify's: %v", used, got)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"7": 7 * time.Second, " 2 ": 2 * time.Second, "2.0": 2 * time.Second, "0": 0, "-3": 0,
		"Tue, 01 Jan 2030 00:00:30 GMT":   30 * time.Second,
		"Tuesday, 01-Jan-30 00:01:00 GMT": time.Minute, // RFC 850
		"Tue Jan  1 01:00:00 2030":        time.Hour,   // asctime
		"Mon, 31 Dec 2029 23:59:59 GMT":   0,
		"9223372036854775807":             Longest,
		"99999999999999999999":            Longest,
		"Fri, 31 Dec 9999 23:59:59 GMT":   Longest,
		"40s":                             40 * time.Second,
		"1893456060":                      time.Minute,
		"2030-01-01T00:05Z":               5 * time.Minute,
	} {
		if got, named := RetryAfter(value, now); got != want || !named {
			t.Errorf("%q is %v, %v; want %v", value, got, named, want)
		}
	}
	for _, value := range []string{"", "  ", "5 s", "1e3", "tomorrow", "NaN", "--1", "-"} {
		if got, named := RetryAfter(value, now); named {
			t.Errorf("%q is %v", value, got)
		}
	}
}

func FuzzPause(f *testing.F) {
	for _, seed := range []string{"0", "30", "1893456060", "-1", "NaN", "1e400", "6m0s", "40/40",
		`"a";r=0;t=9223372036854775807`, "limit=1, remaining=0, reset=9999999999999.999",
		"Fri, 31 Dec 9999 23:59:59 GMT", "(;r=0", `"a";r=0;t="x"`} {
		f.Add("0", seed)
	}
	f.Fuzz(func(t *testing.T, left, text string) {
		for _, lines := range []http.Header{
			{"X-Ratelimit-Remaining": {left}, "X-Ratelimit-Reset": {text}},
			{"X-Ratelimit-Remaining-Tokens": {left}, "X-Ratelimit-Reset-Tokens": {text}},
			{"Ratelimit": {text}, "Ratelimit-Policy": {left}}, {"Ratelimit": {text, left}},
			{"Zendesk-Ratelimit-X": {text}, "X-Sentry-Rate-Limits": {left}},
			{"X-Rate-Limit-Requests-Left": {left}, "X-Rate-Limit-Time-Reset-Ms": {text}},
			{"X-Shopify-Shop-Api-Call-Limit": {text}}, {"Date": {text}},
		} {
			for _, d := range []time.Duration{Pause(lines, now), Resets(lines, now)} {
				if d < 0 || d > Longest {
					t.Fatalf("%v: %v", lines, d)
				}
			}
		}
		if d, named := RetryAfter(text, now); d < 0 || d > Longest || !named && d != 0 {
			t.Fatalf("%q: %v, %v", text, d, named)
		}
		if d, _ := InText("try again in "+text, now); d < 0 || d > Longest {
			t.Fatalf("%q: %v", text, d)
		}
	})
}
