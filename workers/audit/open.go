package audit

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// openLaw judges windows that count from the answer: at no instant may the units of runs that are
// open, or were answered within the window's length or in the same window of the clock, be more
// than the limit. A start is dated after its decision, so of the runs that count at an instant all
// counted when the last of them was decided, whatever their order. Fewer known runs, or shorter
// ones, only make a sum less.
type openLaw struct {
	spec
	known  []counting // by until
	latest int64      // start
}

type counting struct {
	start
	sum int64 // of the runs that count at its start
}

// remembered is how much longer than it counts a run is compared with those that end later.
const remembered = 10 * time.Second

// until returns when a run no longer counts, at the earliest: another owner of its limit may have
// dated its answer by a clock that is behind.
func (s spec) until(started int64, end queue.Event) int64 {
	open := end.AnswerMS
	if s.from == policy.CountFromEnd {
		open = max(open, end.DurationMS)
	}
	from := started + int64(time.Duration(open)*time.Millisecond-apart)
	if s.kind == byWindow {
		return from + int64(s.window)
	}
	_, until := s.clock().Bounds(time.Unix(0, from))
	return until.UnixNano()
}

// ended corrects a start to its actual cost, and judges it where the answer counts. Only both
// events of a run together tell how long it was open.
func (j *Judge) ended(a *audited, b *bucket, number uint64, e queue.Event) []Breach {
	r, known := b.running[number]
	if !known {
		return nil
	}
	sent, same := !e.Started.IsZero(), e.From == r.source && e.Started.UnixNano() == r.at
	if sent && !same {
		return nil // the end of an earlier attempt
	}
	delete(b.running, number)
	return j.judged(a, b, e.Key, func(i int, s spec) (v view, known bool) {
		units := policy.Limit{Cost: s.cost}.Takes(r.cost, r.costs)
		n, told := e.Used[s.cost]
		if told = told && s.cost != ""; s.from != "" && !sent {
			n, told = 0, true
		}
		run := start{at: r.at, seq: number, units: units}
		switch {
		case !s.arrives() && told:
			b.laws[i].settle(run, n-units)
		case s.arrives() && e.From == b.source:
			if told {
				run.units = min(units, n) // each was counted for a time
			}
			run.until = max(r.at, s.until(r.at, e))
			return b.laws[i].add(run), true
		}
		return v, false
	})
}

func (l *openLaw) size() int { return len(l.known) }

func (l *openLaw) settle(start, int64) {}

// add takes a run that has ended, and returns the fullest instant that it changed.
func (l *openLaw) add(s start) view {
	fullest, own := counting{}, counting{start: s, sum: s.units}
	p := len(l.known)
	for i := len(l.known) - 1; i >= 0 && l.known[i].until > s.at; i-- {
		c := &l.known[i]
		if c.until > s.until {
			p = i
		}
		switch {
		case c.at <= s.at:
			own.sum += c.units
		case c.at < s.until:
			if c.sum += s.units; c.sum > fullest.sum {
				fullest = *c
			}
		}
	}
	if own.sum >= fullest.sum {
		fullest = own
	}
	l.known = slices.Insert(l.known, p, own)
	v := view{units: fullest.sum, most: l.most, length: l.window, from: fullest.at, to: fullest.at}
	if float64(v.units) > l.most {
		l.name(&v)
	}
	l.latest = max(l.latest, s.at)
	gone := 0
	for gone < len(l.known) && l.known[gone].until <= l.latest-int64(remembered) {
		gone++
	}
	l.known = l.known[gone:]
	return v
}

// name adds the starts that count at an instant.
func (l *openLaw) name(v *view) {
	for i := len(l.known) - 1; i >= 0 && l.known[i].until > v.to; i-- {
		if c := l.known[i]; c.at <= v.to {
			v.from = min(v.from, c.at)
			if len(v.starts) < mostNamed {
				v.starts = append(v.starts, c.start)
			}
		}
	}
	slices.SortFunc(v.starts, func(a, b start) int { return cmp.Compare(a.at, b.at) })
}
