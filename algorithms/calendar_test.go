package algorithms_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // tests must not depend on installed zones

	"github.com/penstock-mq/penstock/algorithms"
)

func location(t *testing.T, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

func TestCalendarWindowsBeginByTheClocksOfTheirZone(t *testing.T) {
	const day, week = 24 * time.Hour, 7 * 24 * time.Hour
	for _, test := range []struct {
		zone             string
		window           time.Duration
		now, starts, end string
	}{
		{"Europe/Berlin", day, "2026-03-28T23:30:00Z", "2026-03-28T23:00:00Z",
			"2026-03-29T22:00:00Z"},
		{"Europe/Berlin", day, "2026-10-25T22:59:59Z", "2026-10-24T22:00:00Z",
			"2026-10-25T23:00:00Z"}, // 25
		{"Europe/Berlin", week, "2026-03-29T12:00:00Z", "2026-03-22T23:00:00Z",
			"2026-03-29T22:00:00Z"},
		{"Europe/Berlin", algorithms.Month, "2026-03-31T21:59:59Z", "2026-02-28T23:00:00Z",
			"2026-03-31T22:00:00Z"},
		{"Europe/Berlin", algorithms.Month, "2026-03-31T22:00:00Z", "2026-03-31T22:00:00Z",
			"2026-04-30T22:00:00Z"},
		{"Europe/Berlin", day, "2040-12-31T00:00:00Z", "2040-12-30T23:00:00Z",
			"2040-12-31T23:00:00Z"},
		{"", algorithms.Month, "2028-02-29T23:59:59Z", "2028-02-01T00:00:00Z",
			"2028-03-01T00:00:00Z"},
		{"", 3 * algorithms.Month, "2026-12-31T23:59:59Z", "2026-10-01T00:00:00Z",
			"2027-01-01T00:00:00Z"},
		{"", 12 * algorithms.Month, "2026-12-31T23:59:59Z", "2026-01-01T00:00:00Z",
			"2027-01-01T00:00:00Z"},
		{"Pacific/Kiritimati", day, "2026-01-01T09:59:59Z", "2025-12-31T10:00:00Z",
			"2026-01-01T10:00:00Z"},
		// no midnight: the day began at 1:00
		{"America/Sao_Paulo", day, "2018-11-04T03:00:00Z", "2018-11-04T03:00:00Z",
			"2018-11-05T02:00:00Z"},
		// set back from 24:00 to 23:00 of the same day, which has 25 hours
		{"America/Sao_Paulo", day, "2018-02-18T02:30:00Z", "2018-02-17T02:00:00Z",
			"2018-02-18T03:00:00Z"},
		// set back from 1:00 to midnight, which occurs twice; the first counts
		{"America/Havana", day, "2026-11-01T05:30:00Z", "2026-11-01T04:00:00Z",
			"2026-11-02T05:00:00Z"},
		// set back from 0:01 to 23:01 of the previous day: the new day has begun and continues
		{"America/St_Johns", day, "2010-11-07T03:00:00Z", "2010-11-07T02:30:00Z",
			"2010-11-08T03:30:00Z"},
		// 30 December was skipped
		{"Pacific/Apia", day, "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z",
			"2011-12-31T10:00:00Z"},
		{"Pacific/Apia", day, "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z",
			"2011-12-30T10:00:00Z"},
	} {
		rule := algorithms.FixedWindow{Limit: 1, Window: test.window}
		if test.zone != "" {
			rule.Zone = location(t, test.zone)
		}
		now, err := time.Parse(time.RFC3339, test.now)
		if err != nil {
			t.Fatal(err)
		}
		start, end := rule.Bounds(now)
		got := fmt.Sprint(start.UTC().Format(time.RFC3339), " ", end.UTC().Format(time.RFC3339))
		if want := test.starts + " " + test.end; got != want {
			t.Errorf("%s %s at %s: %s, want %s", test.zone,
				algorithms.FormatDuration(test.window), test.now, got, want)
		}
		if _, d := rule.Take(algorithms.FixedWindowState{}, now, 1); d.ResetAfter != end.Sub(now) {
			t.Errorf("%s at %s: as good as new in %s", test.zone, test.now, d.ResetAfter)
		}
	}
}

// Each instant lies in one window of its zone, and windows are contiguous, with three to five
// quarters of the nominal length.
func TestWindowsOfACalendarCoverAllTime(t *testing.T) {
	names, err := os.ReadFile("../internal/base/zones/names.txt")
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(names)) {
		zone := location(t, name)
		for _, window := range []time.Duration{24 * time.Hour, 7 * 24 * time.Hour,
			algorithms.Month} {
			rule := algorithms.FixedWindow{Limit: 1, Window: window, Zone: zone}
			at := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
			for last := at.AddDate(4, 0, 0); at.Before(last); {
				start, end := rule.Bounds(at)
				if length := end.Sub(start); at.Before(start) || !at.Before(end) ||
					length < window*3/4 || length > window*5/4 {
					t.Fatalf("%s: %s lies from %s to %s", zone, at, start, end)
				}
				for _, in := range []time.Time{start, end.Add(-time.Microsecond)} {
					if s, e := rule.Bounds(in); !s.Equal(start) || !e.Equal(end) {
						t.Fatalf("%s: from %s to %s, and at %s from %s to %s", zone, start, end,
							in, s, e)
					}
				}
				if h, m, s := start.In(zone).Clock(); h+m+s > 0 {
					if before := start.Add(-time.Nanosecond).In(zone); before.Day() ==
						start.In(zone).Day() {
						t.Fatalf("%s: begins at %s", zone, start.In(zone))
					}
				}
				at = end
			}
		}
	}
}

func BenchmarkWindowsOfACalendar(b *testing.B) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		b.Fatal(err)
	}
	rule := algorithms.FixedWindow{Limit: 1 << 30, Window: 24 * time.Hour, Zone: zone}
	s, now := algorithms.FixedWindowState{}, time.Now()
	for b.Loop() {
		s, _ = rule.Take(s, now, 1)
	}
}
