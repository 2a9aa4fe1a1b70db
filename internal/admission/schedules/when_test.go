package schedules

import (
	"errors"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/kit/brokertest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
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

func TestPatternsAreReadAsTheirTimersReadThem(t *testing.T) {
	_, nc := brokertest.Start(t, embedded.Options{})
	broker := brokertest.Open(t, nc)
	taken := true // those before the empty one
	for _, when := range []string{"@every 1s", "@every 1h30m", "@every 1d", "@every 1w12h",
		"@every 36500d", "@at 2262-04-11T00:00:00Z", "@at 2031-01-31T12:00:00Z",
		"@at 2031-01-31T12:00:00+02:00", "30 6 * * 1-5", "0 30 6 * * 7", "@daily",

		"", "@every 1ms", "@every soon", "@every", "@at noon", "@at 2031-01-31", "@Daily",
		"0 0 30 2 *", "0-59/61 * * * *",
	} {
		taken = taken && when != ""
		if _, err := checkTimes(when, ""); taken != (err == nil) {
			t.Errorf("%q: %v", when, err)
		}
		if when == "" {
			continue
		}
		err := broker.Schedules().Put(t.Context(), jet.Schedule{Policy: "p", Name: "n", Key: "k",
			When: pattern(when)})
		if err != nil && !errors.Is(err, jet.ErrSchedule) {
			t.Fatal(err)
		}
		if taken != (err == nil) {
			t.Errorf("%q: the timer says %v", when, err)
		}
	}
}

func TestARefusalNamesThePartThatIsWrong(t *testing.T) {
	for _, test := range []struct{ when, zone, header, says string }{
		{"30 25 * * *", "", jet.HeaderSchedule, `"30 25 * * *": hour "25": want 0 to 23`},
		{"0-59/61 * * * *", "", jet.HeaderSchedule, `minute "0-59/61": the step is longer`},
		{"CRON_TZ=Asia/Tokyo 30 6 * * *", "", jet.HeaderSchedule, "no prefix CRON_TZ="},
		{"TZ=Asia/Tokyo 30 6 * * *", "", jet.HeaderSchedule,
			"no prefix TZ= here: a zone is given in Penstock-Schedule-Zone"},
		{"0 9 30 2 *", "", jet.HeaderSchedule, "no such time comes"},
		{"* * * *", "", jet.HeaderSchedule, "want a cron pattern"},
		{"0 9 * * *", "Asia/Tokio", jet.HeaderScheduleZone, "Asia/Tokyo"},
		{"@every 1h", "Asia/Tokyo", jet.HeaderScheduleZone, "only to cron patterns"},
	} {
		header, err := checkTimes(test.when, test.zone)
		if err == nil || header != test.header || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s, %s: %s: %v", test.when, test.zone, header, err)
		}
	}
}
