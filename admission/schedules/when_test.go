package schedules

import (
	"errors"
	"testing"

	"github.com/penstock-mq/penstock/internal/brokertest"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

func TestTimesThatTheServerCannotCountAreRefused(t *testing.T) {
	for _, when := range []string{"@at 2262-04-12T00:00:00Z", "@at 9999-12-31T23:59:59Z",
		"@at 1600-01-01T00:00:00Z", "@every 36501d"} {
		if checkWhen(when) == nil {
			t.Errorf("%s is taken", when)
		}
	}
}

// The server's parser decides about all others.
func TestPatternsAreReadAsTheServerReadsThem(t *testing.T) {
	_, nc := brokertest.Start(t, embedded.Options{})
	broker := brokertest.Open(t, nc)
	taken := true // those before the empty one
	for _, when := range []string{"30 6 * * 1-5", "0 30 6 * * 1-5", "*/5 * * * * *",
		"0 0 0 1 jan-MAR ?", "0 0 0 1,15 * mon,wed", "0 5/15 * * * *", "@every 1s", "@every 1h30m",
		"@every 1d", "@every 1w12h", "@every 36500d", "@at 2262-04-11T00:00:00Z",
		"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually",
		"@at 2031-01-31T12:00:00Z", "@at 2031-01-31T12:00:00+02:00",

		"", "now", "* * * *", "* * * * * * *", "60 * * * * *", "0 60 * * * *", "0 0 24 * * *",
		"0 0 0 0 * *", "0 0 0 32 * *", "0 0 0 * 13 *", "0 0 0 * 0 *", "0 0 0 * * 7",
		"0 0 0 * * 5-1", "*/0 * * * * *", "0 1-2-3 * * * *", "0 1/2/3 * * * *", "0 x * * * *",
		"0 -5 * * * *", "0 0 0 * mon *", "@every 1ms", "@every soon", "@every", "@fortnightly",
		"@at noon", "@at 2031-01-31", "@Daily",
	} {
		taken = taken && when != ""
		if err := checkWhen(when); taken && err != nil {
			t.Error(err)
		}
		for _, zone := range []string{"", "Europe/Berlin", "Europe/Atlantis"} {
			ours := checkWhen(when) == nil && checkZone(when, zone) == nil
			err := queue.ErrSchedule
			if when != "" {
				err = broker.PutSchedule(t.Context(), queue.Schedule{Policy: "p", Name: "n",
					Key: "k", When: pattern(when), Zone: zone})
			}
			if err != nil && !errors.Is(err, queue.ErrSchedule) {
				t.Fatal(err)
			}
			if ours != (err == nil) {
				t.Errorf("%q in zone %q: the server says %v, and we %v, %v", when, zone, err,
					checkWhen(when), checkZone(when, zone))
			}
		}
	}
}
