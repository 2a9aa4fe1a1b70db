package cron

import (
	"fmt"
	"os"
	"sort"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // tests must not depend on installed zones
)

func pattern(t *testing.T, text string) Pattern {
	t.Helper()
	p, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func location(t *testing.T, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

func TestTimesAreThoseThatAZonesClocksShow(t *testing.T) {
	for _, test := range []struct{ pattern, zone, after, want string }{
		// no midnight on 6 September 2026 and on 2 September 2029
		{"0 9 1 * *", "America/Santiago", "2026-08-02T00:00:00Z",
			"2026-09-01T09:00-04 2026-10-01T09:00-03 2026-11-01T09:00-03"},
		{"0 9 1 9 *", "America/Santiago", "2025-10-01T00:00:00Z", "2026-09-01T09:00-04 " +
			"2027-09-01T09:00-04 2028-09-01T09:00-04 2029-09-01T09:00-04 2030-09-01T09:00-04"},
		{"0 0 * * *", "America/Santiago", "2026-09-05T00:00:00Z",
			"2026-09-05T00:00-04 2026-09-07T00:00-03"},
		// Friday, 24 April 2026 begins at 1:00
		{"0 3 * * 4", "Africa/Cairo", "2026-04-17T00:00:00Z",
			"2026-04-23T03:00+02 2026-04-30T03:00+03"},
		// half an hour: from 2:00 to 2:30, and from 2:00 back to 1:30
		{"15 2 * * *", "Australia/Lord_Howe", "2026-10-02T12:00:00Z",
			"2026-10-03T02:15+1030 2026-10-05T02:15+11"},
		{"45 1 * * *", "Australia/Lord_Howe", "2026-04-03T14:00:00Z",
			"2026-04-04T01:45+11 2026-04-05T01:45+11 2026-04-05T01:45+1030 2026-04-06T01:45+1030"},
		{"0 9 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z",
			"2026-04-05T09:00+1030 2026-04-06T09:00+1030"},
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z",
			"2026-03-28T02:30+01 2026-03-30T02:30+02"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T00:00:00Z",
			"2026-10-24T02:30+02 2026-10-25T02:30+02 2026-10-25T02:30+01 2026-10-26T02:30+01"},
		// 30 December 2011 did not come
		{"0 9 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z",
			"2011-12-29T09:00-10 2011-12-31T09:00+14"},
		{"0 9 29 2 *", "UTC", "2096-03-01T00:00:00Z", "2104-02-29T09:00Z"},
		{"0 9 31 12 *", "Europe/Berlin", "2036-01-01T00:00:00Z",
			"2036-12-31T09:00+01 2037-12-31T09:00+01"},
		{"0 0 13 * fri", "UTC", "2026-02-01T00:00:00Z",
			"2026-02-06T00:00Z 2026-02-13T00:00Z 2026-02-20T00:00Z 2026-02-27T00:00Z " +
				"2026-03-06T00:00Z 2026-03-13T00:00Z"},
	} {
		at, err := time.Parse(time.RFC3339, test.after)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for range strings.Fields(test.want) {
			at = pattern(t, test.pattern).Next(at, location(t, test.zone))
			got = append(got, at.Format("2006-01-02T15:04Z07"))
			if _, offset := at.Zone(); offset%3600 != 0 {
				got[len(got)-1] = at.Format("2006-01-02T15:04Z0700")
			}
		}
		if got := strings.Join(got, " "); got != test.want {
			t.Errorf("%s in %s: %s, want %s", test.pattern, test.zone, got, test.want)
		}
	}
}

func TestATimeThatNeverComesIsNone(t *testing.T) {
	for _, text := range []string{"0 0 30 2 *", "0 0 31 4,6,9,11 *"} {
		if at := pattern(t, text).Next(time.Now(), time.UTC); !at.IsZero() {
			t.Errorf("%s: %s", text, at)
		}
	}
}

// shown says, from what a zone's clock shows, whether that is one of the times of a pattern.
type shown struct {
	pattern string
	is      func(month, day, hour, minute int, weekday time.Weekday) bool
}

// The rare ones have times at multiples of half an hour.
var looks = []shown{
	{"0 9 1 * *", func(_, d, h, m int, _ time.Weekday) bool {
		return d == 1 && h == 9 && m == 0
	}},
	{"30 23,0 1,*/5 * *", func(_, d, h, m int, _ time.Weekday) bool {
		return (d%5 == 1) && h%23 == 0 && m == 30
	}},
	{"0 3 * * thu", func(_, _, h, m int, w time.Weekday) bool {
		return w == time.Thursday && h == 3 && m == 0
	}},
	{"15,45 0-3 * * *", func(_, _, h, m int, _ time.Weekday) bool {
		return m%30 == 15 && h <= 3
	}},
	{"20 1 8-14 * sun", func(_, d, h, m int, w time.Weekday) bool {
		return (w == time.Sunday || d >= 8 && d <= 14) && h == 1 && m == 20
	}},
	{"* * * * *", func(_, _, _, _ int, _ time.Weekday) bool { return true }},
	{"*/7 * * * *", func(_, _, _, m int, _ time.Weekday) bool { return m%7 == 0 }},
}

const rare = 3 // of them, the first ones

// The reference looks at the clock of each zone at each minute around each change until 2040.
func TestNoMinuteAroundAChangeOfClocksIsMissedOrInvented(t *testing.T) {
	names, err := os.ReadFile("../zones/names.txt")
	if err != nil {
		t.Fatal(err)
	}
	patterns := make([]Pattern, len(looks))
	for i, s := range looks {
		patterns[i] = pattern(t, s.pattern)
	}
	zones, changes := 0, 0
	seen := map[string]bool{}
	for name := range strings.FieldsSeq(string(names)) {
		zone := location(t, name)
		zones++
		last := 1 << 30
		for day := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() < 2040; day =
			day.AddDate(0, 0, 1) {
			_, offset := day.In(zone).Zone()
			if last != 1<<30 && offset != last {
				changes++
				like := fmt.Sprint(day, last, offset) // to most zones others change alike
				agree(t, patterns[:rare], zone, day.Add(-26*time.Hour), day.Add(10*time.Hour),
					15*time.Minute)
				if !seen[like] {
					at := day.Add(-time.Duration(sort.Search(24*60, func(minutes int) bool {
						_, offset := day.Add(-time.Duration(minutes) * time.Minute).In(zone).Zone()
						return offset == last
					})) * time.Minute)
					agree(t, patterns, zone, at.Add(-3*time.Hour), at.Add(3*time.Hour), time.Minute)
				}
				seen[like] = true
			}
			last = offset
		}
	}
	if zones < 597 || changes < 7000 {
		t.Errorf("%d zones with %d changes", zones, changes)
	}
	t.Logf("%d zones, %d changes of clocks, %d different ones", zones, changes, len(seen))
}

func agree(t *testing.T, patterns []Pattern, zone *time.Location, from, until time.Time,
	step time.Duration) {
	t.Helper()
	next := make([]time.Time, len(patterns))
	for i, p := range patterns {
		next[i] = p.Next(from.Add(-time.Second), zone)
	}
	for at := from; at.Before(until); at = at.Add(step) {
		local := at.In(zone)
		_, month, day := local.Date()
		hour, minute, _ := local.Clock()
		for i, p := range patterns {
			s := looks[i]
			if s.is(int(month), day, hour, minute, local.Weekday()) != next[i].Equal(at) {
				t.Fatalf("%s in %s at %s: the next time is %s", s.pattern, zone, local, next[i])
			}
			if next[i].Equal(at) {
				next[i] = p.Next(at, zone)
			}
		}
	}
}

// The reference looks at the clock of each zone at each quarter of an hour around each date.
func TestDatesComeInAllZonesUntil2040(t *testing.T) {
	names, err := os.ReadFile("../zones/names.txt")
	if err != nil {
		t.Fatal(err)
	}
	p := pattern(t, "15 9 1 1,4,9,10 *")
	for name := range strings.FieldsSeq(string(names)) {
		zone := location(t, name)
		at := p.Next(time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC), zone)
		for month := 4; month <= 14*12; month++ {
			date := time.Date(2026, time.Month(month), 1, 0, 0, 0, 0, time.UTC)
			if m := date.Month(); m != time.January && m != time.April && m != time.September &&
				m != time.October {
				continue
			}
			for see := date.Add(-24 * time.Hour); see.Before(date.Add(48 * time.Hour)); see =
				see.Add(15 * time.Minute) {
				if see.In(zone).Format("02 15:04") == "01 09:15" {
					if !at.Equal(see) {
						t.Fatalf("%s: %s, want %s", zone, at, see.In(zone))
					}
					at = p.Next(at, zone)
				}
			}
		}
		if at.Year() != 2040 {
			t.Fatalf("%s: %s", zone, at)
		}
	}
}

func TestFieldsAreReadAndRefusedByName(t *testing.T) {
	bits := func(numbers ...int) (s set) {
		for _, n := range numbers {
			s |= 1 << n
		}
		return s
	}
	for _, test := range []struct {
		word string
		want set
	}{
		{"7", bits(0)}, {"0", bits(0)}, {"fri-mon", bits(5, 6, 0, 1)}, {"5-7", bits(5, 6, 0)},
		{"1-7", bits(0, 1, 2, 3, 4, 5, 6)}, {"0-7", bits(0, 1, 2, 3, 4, 5, 6)},
		{"sat-sun", bits(6, 0)}, {"SUN,wed", bits(0, 3)}, {"fri-mon/2", bits(5, 0)},
		{"7-2", bits(0, 1, 2)}, {"5-1", bits(5, 6, 0, 1)}, {"5/1", bits(5, 6)}, {"7/1", bits(0)},
		{"*/2", bits(0, 2, 4, 6)}, {"?", bits(0, 1, 2, 3, 4, 5, 6)},
	} {
		if got := pattern(t, "0 0 * * "+test.word).weekday; got != test.want {
			t.Errorf("%s: %b, want %b", test.word, got, test.want)
		}
	}
	if got := pattern(t, "0 0 1 nov-feb *").month; got != bits(11, 12, 1, 2) {
		t.Errorf("nov-feb: %b", got)
	}
	for text, want := range map[string]string{
		"60 * * * *":       `minute "60": want 0 to 59`,
		"* 24 * * *":       `hour "24": want 0 to 23`,
		"61 * * * * *":     `second "61": want 0 to 59`,
		"0 0 0 * *":        `day of the month "0": want 1 to 31`,
		"0 0 1 13 *":       `month "13": want 1 to 12, or jan to dec`,
		"0 0 * mon *":      `month "mon": want 1 to 12, or jan to dec`,
		"0 0 * * 8":        `day of the week "8": want 0 to 7, or sun to sat`,
		"0 0 * * fri-x":    `day of the week "fri-x": want 0 to 7, or sun to sat`,
		"0-59/61 * * * *":  `minute "0-59/61": the step is longer than the range of 60`,
		"*/90 * * * *":     `minute "*/90": the step is longer than the range of 60`,
		"0 0 1-7/9 * *":    `day of the month "1-7/9": the step is longer than the range of 7`,
		"*/0 * * * *":      `minute "*/0": want a step of at least 1`,
		"*/ * * * *":       `minute "*/": want a step of at least 1`,
		"0 22-2 * * *":     `hour "22-2": the range ends before it begins`,
		"1-2-3 * * * *":    `minute "1-2-3": want 0 to 59`,
		"1/2/3 * * * *":    `minute "1/2/3": want a step of at least 1`,
		"*-5 * * * *":      `minute "*-5": want 0 to 59`,
		"-5 * * * *":       `minute "-5": want 0 to 59`,
		"+5 * * * *":       `minute "+5": want 0 to 59`,
		"1,,2 * * * *":     `minute "": want 0 to 59`,
		"99999999 * * * *": `minute "99999999": want 0 to 59`,
		"* * * *":          ErrFields.Error(), "* * * * * * *": ErrFields.Error(),
		"@reboot": ErrFields.Error(), "@Daily": ErrFields.Error(), "": ErrFields.Error(),
	} {
		if _, err := Parse(text); fmt.Sprint(err) != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for word, same := range shorthands {
		if pattern(t, word) != pattern(t, "0 "+same) {
			t.Errorf("%s is not %s", word, same)
		}
	}
}

func FuzzNext(f *testing.F) {
	f.Add("0 9 1 * *", int64(1_788_000_000), "America/Santiago")
	f.Fuzz(func(t *testing.T, text string, unix int64, name string) {
		p, err := Parse(text)
		zone, unknown := time.LoadLocation(name)
		if err != nil || unknown != nil {
			return
		}
		at := time.Unix(unix%(1<<32), 0)
		next := p.Next(at, zone)
		if next.IsZero() {
			return
		}
		hour, minute, second := next.Clock()
		if !next.After(at) || !p.second.has(second) || !p.minute.has(minute) ||
			!p.hour.has(hour) || !p.month.has(int(next.Month())) ||
			!p.on(next.Day(), next.Weekday()) {
			t.Errorf("%s after %s: %s", text, at, next)
		}
	})
}

func BenchmarkNext(b *testing.B) {
	p, err := Parse("0 9 29 2 *")
	zone, unknown := time.LoadLocation("America/Santiago")
	if err != nil || unknown != nil {
		b.Fatal(err, unknown)
	}
	at := time.Date(2028, 3, 1, 0, 0, 0, 0, time.UTC)
	for b.Loop() {
		p.Next(at, zone)
	}
}
