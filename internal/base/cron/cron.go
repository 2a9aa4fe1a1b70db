// Package cron reads cron patterns and finds their times by the clocks of a zone.
package cron

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Pattern is a set of seconds, minutes, hours, days, months and days of the week.
type Pattern struct {
	second, minute, hour, day, month, weekday set
	either                                    bool // a day of the month or one of the week
}

// set has a bit for each number.
type set uint64

func (s set) has(n int) bool { return s>>n&1 == 1 }

// names of numbers begin at least, and their ranges may go around: fri-mon.
type field struct {
	name        string
	least, most int
	names       string
}

var fields = [6]field{{"second", 0, 59, ""}, {"minute", 0, 59, ""}, {"hour", 0, 23, ""},
	{"day of the month", 1, 31, ""},
	{"month", 1, 12, "jan feb mar apr may jun jul aug sep oct nov dec"},
	{"day of the week", 0, 6, "sun mon tue wed thu fri sat"}}

var shorthands = map[string]string{"@hourly": "0 * * * *", "@daily": "0 0 * * *",
	"@midnight": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *",
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *"}

// ErrFields: the text has another number of fields than a cron pattern.
var ErrFields = errors.New("want five fields, or six with seconds in front")

// Parse reads five fields, six with seconds in front, or a word such as @daily. A field is a list
// of N, N-M, * or ?, perhaps with /STEP; N/STEP goes to the end. The error names the field.
//
// If neither the days of the month nor those of the week begin with *, a day of either counts.
func Parse(text string) (p Pattern, err error) {
	if meant, ok := shorthands[text]; ok {
		text = meant
	}
	words := strings.Fields(text)
	if len(words) == len(fields)-1 {
		words = slices.Insert(words, 0, "0")
	}
	if len(words) != len(fields) {
		return p, ErrFields
	}
	p.either = true
	for i, to := range []*set{&p.second, &p.minute, &p.hour, &p.day, &p.month, &p.weekday} {
		for part := range strings.SplitSeq(words[i], ",") {
			some, all, err := fields[i].parse(part)
			if err != nil {
				return p, fmt.Errorf("%s %q: %w", fields[i].name, part, err)
			}
			*to |= some
			if all && (to == &p.day || to == &p.weekday) {
				p.either = false
			}
		}
	}
	return p, nil
}

func (f field) parse(part string) (some set, all bool, err error) {
	numbers, stepped, hasStep := strings.Cut(part, "/")
	first, last, isRange := strings.Cut(numbers, "-")
	from, to := f.least, f.most
	all = numbers == "*" || numbers == "?"
	if !all {
		from, err = f.number(first)
		to = from
		if isRange && err == nil {
			to, err = f.number(last)
		} else if hasStep {
			to = max(from, f.most)
		}
	}
	if err != nil {
		return 0, false, err
	}
	count := f.most - f.least + 1
	if to < from && f.names != "" {
		to += count
	}
	step := uint64(1)
	if hasStep {
		step, err = strconv.ParseUint(stepped, 10, 16)
	}
	switch {
	case to < from:
		return 0, false, errors.New("the range ends before it begins")
	case err != nil || step == 0:
		return 0, false, errors.New("want a step of at least 1")
	case step > uint64(to-from+1):
		return 0, false, fmt.Errorf("the step is longer than the range of %d", to-from+1)
	}
	for n := from; n <= to; n += int(step) {
		some |= 1 << (f.least + (n-f.least)%count)
	}
	return some, all && step == 1, nil
}

// number takes 7 for Sunday too.
func (f field) number(word string) (int, error) {
	names := strings.Fields(f.names)
	if i := slices.Index(names, strings.ToLower(word)); i >= 0 {
		return f.least + i, nil
	}
	most := f.most
	if f.least == 0 && f.names != "" {
		most++
	}
	n, err := strconv.ParseUint(word, 10, 16)
	switch number := int(n); {
	case err == nil && number >= f.least && number <= most:
		return number, nil
	case f.names != "":
		return 0, fmt.Errorf("want %d to %d, or %s to %s", f.least, most, names[0],
			names[len(names)-1])
	}
	return 0, fmt.Errorf("want %d to %d", f.least, most)
}

// horizon is more than the longest wait for a date: February 29 comes after eight years at most.
const horizon = 40 // years

// Next returns the first time after t at which the zone's clocks show a time of the pattern: a time
// that they skip does not come, and one that they show twice comes twice. It returns a zero time if
// none comes within 40 years.
func (p Pattern) Next(t time.Time, zone *time.Location) time.Time {
	t = t.In(zone).Truncate(time.Second).Add(time.Second)
	for end := t.AddDate(horizon, 0, 0); t.Before(end); {
		// While its offset is constant, the zone's clock is one of UTC.
		_, offset := t.Zone()
		_, until := t.ZoneBounds()
		switch {
		case until.IsZero():
			until = end
		case !until.After(t):
			// package time's answer on 31 December of leap years that the zone's file does not list
			until = t.Add(time.Hour)
		}
		shift := time.Duration(offset) * time.Second
		if shown, ok := p.next(t.UTC().Add(shift), until.UTC().Add(shift)); ok {
			return shown.Add(-shift).In(zone)
		}
		t = until.In(zone)
	}
	return time.Time{}
}

// next searches from t until before end, both in UTC.
func (p Pattern) next(t, end time.Time) (time.Time, bool) {
	for t.Before(end) {
		year, month, day := t.Date()
		hour, minute, second := t.Clock()
		switch {
		case !p.month.has(int(month)):
			t = time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
		case !p.on(day, t.Weekday()):
			t = time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
		case !p.hour.has(hour):
			t = t.Truncate(time.Hour).Add(time.Hour)
		case !p.minute.has(minute):
			t = t.Truncate(time.Minute).Add(time.Minute)
		case !p.second.has(second):
			t = t.Add(time.Second)
		default:
			return t, true
		}
	}
	return t, false
}

func (p Pattern) on(day int, weekday time.Weekday) bool {
	a, b := p.day.has(day), p.weekday.has(int(weekday))
	return a && b || p.either && (a || b)
}
