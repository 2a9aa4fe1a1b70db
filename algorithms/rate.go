package algorithms

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// MaxCount is the largest numerator of a [Rate].
const MaxCount = 1_000_000_000

// Rate is Count events per Per, such as 96 per second. It keeps both numbers as written: rules
// compute with fractions and never truncate an interval.
type Rate struct {
	Count int64
	Per   time.Duration
}

// ParseRate parses "96/s", "10/m", "5/h", "10/d", "1/w", or a count per duration such as "3/10s" or
// "1/1d12h".
func ParseRate(s string) (Rate, error) {
	count, per, found := strings.Cut(s, "/")
	if !found {
		return Rate{}, fmt.Errorf("%q: want a rate such as 96/s, 10/m or 3/10s", s)
	}
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil || count[0] == '+' {
		return Rate{}, fmt.Errorf("%q: %q is not a whole number", s, count)
	}
	length := per
	if per != "" && per[0] >= 'a' && per[0] <= 'z' {
		length = "1" + per
	}
	d, err := ParseDuration(length)
	if errors.Is(err, errLong) {
		d, err = math.MaxInt64, nil
	}
	if err != nil {
		return Rate{}, fmt.Errorf("%q: want a rate per s, m, h, d, w or a duration such as 10s", s)
	}
	r := Rate{Count: n, Per: d}
	if err := r.Validate(); err != nil {
		return Rate{}, fmt.Errorf("%q: %w", s, err)
	}
	return r, nil
}

// Validate returns an error unless Count is 1 to [MaxCount], Per is 1 ms to 366 days in whole
// microseconds, and the rate is at most 1,000,000 events per second.
func (r Rate) Validate() error {
	switch {
	case r.Count < 1:
		return errors.New("the rate must be positive")
	case r.Count > MaxCount:
		return fmt.Errorf("the count must be at most %d", int64(MaxCount))
	case r.Per < time.Millisecond:
		return errors.New("the period must be at least 1ms")
	case r.Per > 366*day:
		return errors.New("the period must be at most 366 days")
	case r.Per%time.Microsecond != 0:
		return errors.New("the period must be whole microseconds")
	case r.Count > r.Per.Microseconds():
		return errors.New("the rate must be at most 1000000/s")
	}
	return nil
}

// IsZero reports whether no rate is set.
func (r Rate) IsZero() bool { return r == Rate{} }

// Interval returns the time between two events, rounded up to a nanosecond: too coarse for pacing.
func (r Rate) Interval() time.Duration {
	if r.Count <= 0 {
		return 0
	}
	return (r.Per + time.Duration(r.Count) - 1) / time.Duration(r.Count)
}

// PerSecond returns the units per second.
func (r Rate) PerSecond() float64 { return float64(r.Count) / r.Per.Seconds() }

// String formats the rate as [ParseRate] reads it: "96/s", "3/10s". The zero rate is empty.
func (r Rate) String() string {
	if r.IsZero() {
		return ""
	}
	per := FormatDuration(r.Per)
	switch r.Per {
	case time.Millisecond, time.Second, time.Minute, time.Hour, day, week:
		per = per[1:]
	}
	return strconv.FormatInt(r.Count, 10) + "/" + per
}

// MarshalText returns [Rate.String].
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText parses a rate as [ParseRate] does.
func (r *Rate) UnmarshalText(text []byte) (err error) {
	parsed := Rate{}
	if len(text) > 0 {
		parsed, err = ParseRate(string(text))
	}
	if err == nil {
		*r = parsed
	}
	return err
}

// ParseDuration is [time.ParseDuration] with leading months, weeks and days: "1d", "2w", "1d12h",
// "1.5d", "1mo". A day is 24 h, a week 7 days, a month is [Month]. Numbers need a unit, even 0.
func ParseDuration(s string) (time.Duration, error) {
	rest, negative := strings.CutPrefix(s, "-")
	if rest == "" || rest == "0" || rest[0] == '-' || rest[0] == '+' {
		return 0, badDuration(s)
	}
	var total time.Duration
	for _, unit := range []struct {
		name    string
		seconds time.Duration
	}{{"mo", Month / time.Second}, {"w", week / time.Second}, {"d", day / time.Second}} {
		number, after, found := strings.Cut(rest, unit.name)
		if !found {
			continue
		}
		// Parse as seconds, which time.ParseDuration does exactly, and multiply.
		d, err := time.ParseDuration(number + "s")
		if err != nil || strings.Trim(number, "0123456789.") != "" ||
			d > (math.MaxInt64-total)/unit.seconds {
			return 0, badDuration(s)
		}
		total += d * unit.seconds
		rest = after
	}
	if rest != "" {
		// Parse as negative, because the least int64 has no positive counterpart; a second sign is
		// then an error.
		d, err := time.ParseDuration("-" + rest)
		if err != nil || rest == "0" || d < math.MinInt64+total ||
			d == math.MinInt64+total && !negative {
			return 0, badDuration(s)
		}
		if !negative {
			return total - d, nil
		}
		return d - total, nil
	}
	if negative {
		total = -total
	}
	return total, nil
}

var errLong = errors.New("is longer than 292 years")

func badDuration(s string) error {
	zeros := strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return '0'
		}
		return r
	}, s)
	if zeros != s {
		if _, err := ParseDuration(zeros); err == nil { // only its numbers are wrong
			return fmt.Errorf("%q: %w", s, errLong)
		}
	}
	return fmt.Errorf("%q: want a duration with a unit, such as 250ms, 30s, 5m, 1d or 1w", s)
}

// FormatDuration formats a duration as [ParseDuration] reads it: whole months, weeks and days as
// "1mo", "2w" and "3d", other durations as [time.Duration.String] without trailing zero units
// ("36h", "1m30s").
func FormatDuration(d time.Duration) string {
	switch {
	case d != 0 && d%Month == 0:
		return strconv.FormatInt(int64(d/Month), 10) + "mo"
	case d != 0 && d%week == 0:
		return strconv.FormatInt(int64(d/week), 10) + "w"
	case d != 0 && d%day == 0:
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
