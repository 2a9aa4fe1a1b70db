package algorithms_test

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

const (
	aDay  = 24 * time.Hour
	aWeek = 7 * aDay
)

func TestParseRate(t *testing.T) {
	for text, want := range map[string]algorithms.Rate{
		"96/s":      {Count: 96, Per: time.Second},
		"10/m":      {Count: 10, Per: time.Minute},
		"5/h":       {Count: 5, Per: time.Hour},
		"10/d":      {Count: 10, Per: aDay},
		"1/w":       {Count: 1, Per: aWeek},
		"3/10s":     {Count: 3, Per: 10 * time.Second},
		"5/.5s":     {Count: 5, Per: 500 * time.Millisecond},
		"1/1d12h":   {Count: 1, Per: 36 * time.Hour},
		"1000/ms":   {Count: 1000, Per: time.Millisecond},
		"1000000/s": {Count: 1_000_000, Per: time.Second},
	} {
		if got, err := algorithms.ParseRate(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v; want %v", text, got, err, want)
		}
	}
	for text, reason := range map[string]string{
		"":              "want a rate",
		"10":            "want a rate",
		"10/":           "want a rate per",
		"10/x":          "want a rate per",
		"10/10":         "want a rate per",
		"10/-1s":        "at least 1ms",
		"10/+1s":        "want a rate per",
		"10/0s":         "at least 1ms",
		"x/s":           "not a whole number",
		"+1/s":          "not a whole number",
		"1.5/s":         "not a whole number",
		"/s":            "not a whole number",
		" 1/s":          "not a whole number",
		"0/s":           "must be positive",
		"-1/s":          "must be positive",
		"1/1us":         "at least 1ms",
		"1/1.0000001s":  "whole microseconds",
		"1/367d":        "at most 366 days",
		"1/9999999999d": "at most 366 days",
		"1000001/s":     "at most 1000000/s",
		"2000000000/1w": "at most 1000000000",
	} {
		if got, err := algorithms.ParseRate(text); err == nil ||
			!strings.Contains(err.Error(), reason) {
			t.Errorf("%q: got %v, %v; want an error with %q", text, got, err, reason)
		}
	}
}

func TestRateStringIsWhatParseRateReads(t *testing.T) {
	for want, rate := range map[string]algorithms.Rate{
		"":          {},
		"96/s":      {Count: 96, Per: time.Second},
		"3/10s":     {Count: 3, Per: 10 * time.Second},
		"3/1m30s":   {Count: 3, Per: 90 * time.Second},
		"10/m":      {Count: 10, Per: time.Minute},
		"10/10m":    {Count: 10, Per: 10 * time.Minute},
		"10/h":      {Count: 10, Per: time.Hour},
		"10/12h":    {Count: 10, Per: 12 * time.Hour},
		"10/d":      {Count: 10, Per: aDay},
		"1/10d":     {Count: 1, Per: 10 * aDay},
		"1/36h":     {Count: 1, Per: 36 * time.Hour},
		"1/w":       {Count: 1, Per: aWeek},
		"1/ms":      {Count: 1, Per: time.Millisecond},
		"1/100ms":   {Count: 1, Per: 100 * time.Millisecond},
		"7/1.0005s": {Count: 7, Per: 1000500 * time.Microsecond},
	} {
		if got := rate.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestRateInJSON(t *testing.T) {
	type policy struct {
		Outflow algorithms.Rate `json:"outflow,omitzero"`
	}
	for _, text := range []string{`{"outflow":"3/10s"}`, `{}`} {
		var p policy
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(p); err != nil || string(got) != text {
			t.Errorf("got %s, %v; want %s", got, err, text)
		}
	}
	var p policy
	if err := json.Unmarshal([]byte(`{"outflow":"3/x"}`), &p); err == nil {
		t.Error("3/x was accepted")
	}
}

func TestRateInterval(t *testing.T) {
	for _, test := range []struct {
		rate algorithms.Rate
		want time.Duration
	}{{perSecond(4), 250 * time.Millisecond}, {perSecond(3), 333333334}, {algorithms.Rate{}, 0}} {
		if got := test.rate.Interval(); got != test.want {
			t.Errorf("%s: got %d, want %d", test.rate, got, test.want)
		}
	}
	if got := (algorithms.Rate{Count: 30, Per: time.Minute}).PerSecond(); got != 0.5 {
		t.Errorf("got %g per second, want 0.5", got)
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"250ms": 250 * time.Millisecond, "30s": 30 * time.Second, "1m30s": 90 * time.Second,
		"1d": aDay, "1w": aWeek,
		"2w3d": 2*aWeek + 3*aDay, "1d12h": 36 * time.Hour, "1.5d": 36 * time.Hour,
		"0.1d": 8640 * time.Second,
		"0s":   0, "0d": 0,
		"-1d2h": -26 * time.Hour, "-5s": -5 * time.Second, "1w0s": aWeek,
		"-2562047h47m16.854775808s": math.MinInt64, "2562047h47m16.854775807s": math.MaxInt64,
	} {
		if got, err := algorithms.ParseDuration(text); err != nil || got != want {
			t.Errorf("%q: got %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "-", "0", "-0", "5", "250", "1d5", "1d0", "d", "w", ".d", "1d1w", "1h1d", "1dd",
		"1d-2h", "1d+2h", "+1s", "--1s",
		"1e3d", "0x1d", "infd", "nand", "1 d", "1D", "99999999999", "9999999999.9.9h",
	} {
		got, err := algorithms.ParseDuration(text)
		if err == nil || !strings.Contains(err.Error(), "want a duration with a unit") {
			t.Errorf("%q: got %s, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"2562048h", "99999999999999999999h", "20000w", "9999999999d", "15250w48h", "1d2562047h",
		"-2562047h47m16.854775809s", "2562047h47m16.854775808s", "-1d2562047h47m16.854775807s",
	} {
		if _, err := algorithms.ParseDuration(text); err == nil ||
			err.Error() != strconv.Quote(text)+": is longer than 292 years" {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "1m30s": 90 * time.Second, "10m": 10 * time.Minute, "1h": time.Hour,
		"1h10m": 70 * time.Minute,
		"10h":   10 * time.Hour, "1d": aDay, "8d": 8 * aDay, "2w": 2 * aWeek, "-1w": -aWeek,
		"36h": 36 * time.Hour, "1h0m1s": time.Hour + time.Second,
	} {
		if got := algorithms.FormatDuration(d); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func FuzzParseRate(f *testing.F) {
	for _, text := range []string{"96/s", "3/10s", "1/1d12h", "5/.5s", "1000/ms", "1/w", "10/x",
		"7/1.0005s"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rate, err := algorithms.ParseRate(text)
		if err != nil {
			return
		}
		if err := rate.Validate(); err != nil {
			t.Fatalf("%q: read as an invalid %v: %v", text, rate, err)
		}
		if again, err := algorithms.ParseRate(rate.String()); err != nil || again != rate {
			t.Fatalf("%q: %v is written %q, which is read as %v, %v", text, rate, rate.String(),
				again, err)
		}
	})
}

func FuzzRateString(f *testing.F) {
	f.Add(int64(3), int64(10_000_000))
	f.Add(int64(1), int64(aWeek/time.Microsecond))
	f.Fuzz(func(t *testing.T, count, micros int64) {
		if micros > int64(366*aDay/time.Microsecond) {
			return
		}
		rate := algorithms.Rate{Count: count, Per: time.Duration(micros) * time.Microsecond}
		if rate.Validate() != nil {
			return
		}
		if again, err := algorithms.ParseRate(rate.String()); err != nil || again != rate {
			t.Fatalf("%+v is written %q, which is read as %+v, %v", rate, rate.String(), again, err)
		}
	})
}

func FuzzParseDuration(f *testing.F) {
	for _, text := range []string{"1d12h", "2w3d", "-1.5d", "1m30s", "0s", "250", "1d-2h",
		"-2562047h47m16.854775808s"} {
		f.Add(text, int64(len(text)))
	}
	f.Fuzz(func(t *testing.T, text string, d int64) {
		want := time.Duration(d)
		if parsed, err := algorithms.ParseDuration(text); err == nil {
			want = parsed
		} else if _, err := time.ParseDuration(text); err == nil &&
			strings.Trim(text, "+-0") != "" && text[0] != '+' {
			t.Fatalf("%q: refused, though the standard library reads it", text)
		}
		for _, want := range []time.Duration{want, time.Duration(d)} {
			written := algorithms.FormatDuration(want)
			if got, err := algorithms.ParseDuration(written); err != nil || got != want {
				t.Fatalf("%d is written %q, which is read as %d, %v", want, written, got, err)
			}
		}
	})
}
