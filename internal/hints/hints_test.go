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
	} {
		if got := Pause(header(append(strings.Split(text, "\n"), date)...), now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestPausesOfThrottlingAnswers(t *testing.T) {
	for _, c := range []struct {
		status int
		header string
		left   time.Duration
		want   time.Duration
		is     bool
	}{
		{200, "Retry-After: 3", 0, 3 * time.Second, false},
		{429, "", 0, 0, true},
		{429, "", 5 * time.Second, 5 * time.Second, true},
		{429, "", -1, 0, true},
		{429, "Retry-After: 3", 5 * time.Second, 3 * time.Second, true},
		{429, "Retry-After: 3\nretry-after-ms: 2500", 0, 2500 * ms, true},
		{503, "", time.Second, time.Second, false},
		{503, "Retry-After: 0", 0, 0, true},
		{403, "", 0, 0, false},
		{403, "", time.Second, time.Second, true},
		{403, "Retry-After: 2", 0, 2 * time.Second, true},
		{403, "Retry-After: 2", -1, 2 * time.Second, false},
	} {
		got, is := Throttled(c.status, header(strings.Split(c.header, "\n")...), c.left, now)
		if is != c.is || is && got != c.want {
			t.Errorf("%+v: %v, %v", c, got, is)
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
		"9999-12-31T23:59:59Z": Longest, "Mon, 01 Jan 0001 00:00:00 GMT": 0, "2562047h": Longest,
	} {
		h := header("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: "+reset)
		if got := Pause(h, now); got != want {
			t.Errorf("%q: %v, want %v", reset, got, want)
		}
	}
	for _, left := range []string{"-1", "-0", "NaN", "none", "1", "0.5", ""} {
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
	} {
		if got, named := RetryAfter(value, now); got != want || !named {
			t.Errorf("%q is %v, %v; want %v", value, got, named, want)
		}
	}
	for _, value := range []string{"", "  ", "5s", "1e3", "tomorrow", "NaN", "--1", "-"} {
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
			{"X-Shopify-Shop-Api-Call-Limit": {text}}, {"Date": {text}},
		} {
			if d := Pause(lines, now); d < 0 || d > Longest {
				t.Fatalf("%v: %v", lines, d)
			}
		}
		if d, named := RetryAfter(text, now); d < 0 || d > Longest || !named && d != 0 {
			t.Fatalf("%q: %v, %v", text, d, named)
		}
	})
}
