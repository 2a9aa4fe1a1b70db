package algorithms

import "time"

// Month is an average month, a twelfth of 365.2425 days. As the window of a [FixedWindow] it means
// a calendar month. No number of days up to [MaxWindow] is a multiple of it.
const Month = 2_629_746 * time.Second

// ByCalendar reports whether windows are calendar days or months, which vary in length.
func (f FixedWindow) ByCalendar() bool { return f.Zone != nil || f.Window%Month == 0 }

// window is a window's bounds, in Unix microseconds.
type window struct{ start, end int64 }

// Caching returns the rule with a memory of its last calendar window, for one goroutine: to look a
// window up takes a microsecond.
func (f FixedWindow) Caching() FixedWindow {
	f.last = &window{}
	return f
}

// window returns the bounds, in Unix microseconds, of the window that contains t.
func (f FixedWindow) window(t int64) (start, end int64) {
	if !f.ByCalendar() {
		w, offset := f.Window.Microseconds(), f.offset()
		start = windowStart(t-offset, w) + offset
		return start, start + w
	}
	if f.last == nil {
		return f.lookUp(t)
	}
	if t < f.last.start || t >= f.last.end {
		f.last.start, f.last.end = f.lookUp(t)
	}
	return f.last.start, f.last.end
}

// offset is how much later windows begin than those of [windowStart], in microseconds.
func (f FixedWindow) offset() int64 {
	if f.SinceEpoch {
		return monday
	}
	return 0
}

func (f FixedWindow) lookUp(t int64) (start, end int64) {
	zone := f.Zone
	if zone == nil {
		zone = time.UTC
	}
	at := time.UnixMicro(t).In(zone)
	for date := at; ; {
		first, next := f.dates(date.Date())
		if start, end, ok := steady(first, next, at); ok {
			return start, end
		}
		if end := begin(next, zone); at.Before(end) {
			return begin(first, zone).UnixMicro(), end.UnixMicro()
		}
		// Clocks were set back across midnight: the repeated end of the day belongs to the next
		// window.
		date = next
	}
}

// steady computes the starts of two dates from the zone's offset at an instant between them, if it
// does not change between the day before the first date and the second date.
func steady(first, next, at time.Time) (start, end int64, ok bool) {
	_, offset := at.Zone()
	set, until := at.ZoneBounds()
	shift := time.Duration(offset) * time.Second
	before := first.Add(-24 * time.Hour)
	first, next = first.Add(-shift), next.Add(-shift)
	return first.UnixMicro(), next.UnixMicro(), (set.IsZero() || !set.After(before)) &&
		(until.IsZero() || next.Before(until)) && !at.Before(first) && at.Before(next)
}

// dates returns the first days of a date's window and of the next one, as midnights in UTC.
func (f FixedWindow) dates(year int, month time.Month, day int) (first, next time.Time) {
	date := func(year, month, day int) time.Time {
		return time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	}
	if f.Window%Month == 0 {
		months := int(f.Window / Month)
		n := year*12 + int(month) - 1
		n -= n % months
		return date(0, n+1, 1), date(0, n+months+1, 1)
	}
	const seconds = 24 * 60 * 60
	days := int64(f.Window / (24 * time.Hour))
	monday := date(1969, 12, 29).Unix()
	n := (date(year, int(month), day).Unix() - monday) / seconds
	n -= n % days
	at := func(n int64) time.Time { return time.Unix(monday+n*seconds, 0).UTC() }
	return at(n), at(n + days)
}

// begin returns when the zone's clocks first show the date or a later one: the first midnight if
// there are two, or the first instant after a skipped one.
func begin(date time.Time, zone *time.Location) time.Time {
	// Start before clocks of any zone show the date.
	for from := date.Add(-24 * time.Hour); ; {
		in := from.In(zone)
		_, offset := in.Zone()
		_, until := in.ZoneBounds()
		if !until.IsZero() && !until.After(from) {
			// package time's answer on 31 December of leap years that the zone's file does not list
			until = from.Add(time.Hour)
		}
		at := date.Add(-time.Duration(offset) * time.Second)
		if at.Before(from) {
			at = from
		}
		if until.IsZero() || at.Before(until) {
			return at
		}
		from = until
	}
}
