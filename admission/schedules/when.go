package schedules

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/zones"
)

const wanted = "want a cron pattern such as 30 6 * * 1-5 (optionally with seconds in front), " +
	"@every 90s (1s to 36500d), @hourly, @daily, @weekly, @monthly, @yearly, or " +
	"@at 2030-01-31T12:00:00Z (until 2262)"

const (
	every   = "@every "
	at      = "@at "
	longest = 36500 * 24 * time.Hour
)

var (
	errZone  = errors.New("applies only to cron patterns")
	errRange = errors.New("out of range")
	calendar = []string{"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly",
		"@annually"}
)

// pattern is in the server's form: with seconds, and durations without days.
func pattern(when string) string {
	if text, ok := strings.CutPrefix(when, every); ok {
		d, err := algorithms.ParseDuration(text)
		if _, unknown := time.ParseDuration(text); unknown != nil && err == nil {
			return every + d.String()
		}
	}
	if !strings.HasPrefix(when, "@") && len(strings.Fields(when)) == 5 {
		return "0 " + when
	}
	return when
}

// asWritten is a pattern as users write it: with days.
func asWritten(pattern string) string {
	if text, ok := strings.CutPrefix(pattern, every); ok {
		if d, err := time.ParseDuration(text); err == nil && text == d.String() {
			return every + algorithms.FormatDuration(d)
		}
	}
	return pattern
}

// Dates that never occur, such as February 30, are accepted. Others must be int64 nanoseconds, as
// the server counts them: it would make jobs of later ones at once, and repeatedly.
func checkWhen(when string) error {
	var err error
	switch {
	case strings.HasPrefix(when, at):
		var t time.Time
		t, err = time.Parse(time.RFC3339, strings.TrimPrefix(when, at))
		if err == nil && !time.Unix(0, t.UnixNano()).Equal(t) {
			err = errRange
		}
	case strings.HasPrefix(when, every):
		var d time.Duration
		d, err = algorithms.ParseDuration(strings.TrimPrefix(when, every))
		if err == nil && (d < time.Second || d > longest) {
			err = errRange
		}
	case slices.Contains(calendar, when):
	default:
		err = checkCron(when)
	}
	if err != nil {
		return fmt.Errorf("%q: %s", when, wanted)
	}
	return nil
}

func checkZone(when, zone string) error {
	if zone == "" {
		return nil
	}
	if strings.HasPrefix(when, at) || strings.HasPrefix(when, every) {
		return errZone
	}
	_, err := zones.Load(zone)
	return err
}

// Names begin at the least number.
type field struct {
	least, most int
	names       string
}

var cron = []field{{0, 59, ""}, {0, 59, ""}, {0, 23, ""}, {1, 31, ""},
	{1, 12, "jan feb mar apr may jun jul aug sep oct nov dec"},
	{0, 6, "sun mon tue wed thu fri sat"}}

var errCron = errors.New("no cron pattern")

func checkCron(when string) error {
	words := strings.Fields(pattern(when))
	if len(words) != len(cron) {
		return errCron
	}
	for i, word := range words {
		for part := range strings.SplitSeq(word, ",") {
			if !cron[i].takes(part) {
				return errCron
			}
		}
	}
	return nil
}

// N, N-M, * or ?, perhaps with /STEP
func (f field) takes(part string) bool {
	numbers, step, stepped := strings.Cut(part, "/")
	if n, err := strconv.Atoi(step); stepped && (err != nil || n < 1) {
		return false
	}
	first, last, ranges := strings.Cut(numbers, "-")
	if first == "*" || first == "?" {
		return !ranges
	}
	least, ok := f.number(first)
	most := least
	if ranges && ok {
		most, ok = f.number(last)
	}
	return ok && f.least <= least && least <= most && most <= f.most
}

func (f field) number(word string) (n int, ok bool) {
	if i := slices.Index(strings.Fields(f.names), strings.ToLower(word)); i >= 0 {
		return f.least + i, true
	}
	n, err := strconv.Atoi(word)
	return n, err == nil
}
