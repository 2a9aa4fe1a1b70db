package schedules

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/base/cron"
	"github.com/penstock-mq/penstock/internal/base/zones"
	"github.com/penstock-mq/penstock/queue"
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
)

// pattern is in the stored form: with seconds, and durations without days.
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

// checkTimes returns the header that it refuses.
func checkTimes(when, zone string) (header string, err error) {
	if err := checkWhen(when); err != nil {
		return queue.HeaderSchedule, err
	}
	clocks := time.UTC
	if zone != "" {
		if timed(when) {
			return queue.HeaderScheduleZone, errZone
		}
		if clocks, err = zones.Load(zone); err != nil {
			return queue.HeaderScheduleZone, err
		}
	}
	if timed(when) {
		return "", nil
	}
	times, err := cron.Parse(when)
	if err == nil && times.Next(time.Now(), clocks).IsZero() {
		err = fmt.Errorf("%q: no such time comes", when)
	}
	return queue.HeaderSchedule, err
}

func timed(when string) bool {
	return strings.HasPrefix(when, at) || strings.HasPrefix(when, every)
}

// Instants must be int64 nanoseconds, as the server counts them: it would make jobs of later ones
// at once, and repeatedly.
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
	case strings.HasPrefix(when, "TZ="), strings.HasPrefix(when, "CRON_TZ="):
		prefix, _, _ := strings.Cut(when, "=")
		return fmt.Errorf("%q: no prefix %s= here: a zone is given in %s (in a file: zone)", when,
			prefix, queue.HeaderScheduleZone)
	default:
		if _, err = cron.Parse(when); err != nil && !errors.Is(err, cron.ErrFields) {
			return fmt.Errorf("%q: %w", when, err)
		}
	}
	if err != nil {
		return fmt.Errorf("%q: %s", when, wanted)
	}
	return nil
}
