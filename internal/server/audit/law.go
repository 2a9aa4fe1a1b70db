package audit

import (
	"slices"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

type start struct {
	at    int64 // Unix nanoseconds
	seq   uint64
	units int64
	until int64 // counted until then, where that depends on the answer
}

// law is a limit on a bucket's starts, with its state. Starts may be reported out of order. A law
// never overcounts.
type law interface {
	// add counts a start, and returns the fullest known window with it.
	add(s start) view
	settle(s start, diff int64)
	size() int
}

type view struct {
	units    int64
	most     float64
	length   time.Duration
	from, to int64
	starts   []start // the window's first start, and its last ones
}

type spec struct {
	limit  string
	cost   string // name of the cost; empty: the default
	kind   kind
	window time.Duration
	zone   string  // of clock windows
	most   float64 // units per window, or at once for a rate
	rate   float64
	// slots counts a window's last start as one unit: it may take slots in advance.
	slots bool
	// from says when units of a window begin to count; until then they are open.
	from policy.CountFrom
}

type kind int

const (
	byRate    kind = iota // any window of at least a length
	byWindow              // any window of one length
	byClock               // windows of the clock
	byCounter             // a sliding counter
)

// reorder is the tolerated delay of a report.
const reorder = 250 * time.Millisecond

// law2 returns the law of rate for windows of a second or more, and windows to show.
func law2(limit string, outflow algorithms.Rate, ratio float64, burst int64) []spec {
	if outflow.IsZero() {
		return nil
	}
	const slack = 2 * time.Millisecond
	peak := outflow.PerSecond() * ratio
	most := func(t time.Duration) float64 { return peak*(t+slack).Seconds() + float64(burst) }
	specs := []spec{
		{limit: limit, kind: byRate, window: time.Second, rate: peak, most: most(0), slots: true},
		{limit: limit, kind: byWindow, window: time.Second, most: most(time.Second), slots: true},
	}
	if outflow.Per > time.Second && outflow.Count <= mostRemembered {
		specs = append(specs, spec{limit: limit, kind: byWindow, window: outflow.Per,
			most: most(outflow.Per), slots: true})
	}
	return specs
}

// mostRemembered bounds a rate's windows, in starts.
const mostRemembered = 100_000

// promises returns what a limit promises. A rate that counts from the answer bounds the starts, and
// in the time that refills it what is open or was answered.
func promises(l policy.Limit) []spec {
	s := specOf(l)
	if l.CountFrom == "" || s.kind != byRate {
		return []spec{s}
	}
	arrivals := s
	arrivals.kind, arrivals.window = byWindow, time.Duration(s.most/s.rate*float64(time.Second))
	arrivals.most += s.most
	return []spec{s, arrivals}
}

func specOf(l policy.Limit) spec {
	b := l.OnStarts().Bound()
	s := spec{limit: l.Name, cost: l.Cost, window: b.Window, zone: l.Zone, most: float64(b.Units),
		from: l.CountFrom}
	switch {
	case b.Window == 0:
		s.kind, s.rate = byRate, b.Rate.PerSecond()
	case !b.Aligned:
		s.kind = byWindow
	case b.Estimated:
		s.kind = byCounter
	default:
		s.kind = byClock
	}
	return s
}

// arrives reports whether a window counts units from the answer or the end.
func (s spec) arrives() bool { return s.from != "" && s.kind != byRate }

func (s spec) law() law {
	switch {
	case s.arrives():
		return &openLaw{spec: s}
	case s.kind == byRate:
		return &rateLaw{spec: s}
	case s.kind == byWindow:
		return &windowLaw{spec: s}
	}
	return &clockLaw{spec: s, clock: s.clock()}
}

// clock makes the clock's windows anew, because zones cannot be compared.
func (s spec) clock() algorithms.FixedWindow {
	return policy.Rule{Limit: 1, Window: policy.Duration(s.window), Zone: s.zone}.Fixed()
}

func (s spec) taken(last start) int64 {
	if s.slots {
		return min(last.units, 1)
	}
	return last.units
}

// rateLaw judges all windows of at least a length. With S the units before a start, and t its
// instant, a window from start i to start j breaks the law if
//
//	(S_j + last) − S_i − rate·(t_j − t_i) > most
//
// so among starts early enough, the one with the least S_i − rate·t_i begins the fullest window,
// and the others can be dropped.
type rateLaw struct {
	spec
	origin int64
	sum    int64
	recent []counted
	near   int // number at least a window before the last
	far    lowest
	low    lowest
}

type counted struct {
	start
	before int64
}

type lowest struct {
	counted
	level float64
	known bool
}

func (l *rateLaw) take(low *lowest, c counted) {
	level := float64(c.before) - l.rate*time.Duration(c.at-l.origin).Seconds()
	if !low.known || level <= low.level {
		*low = lowest{c, level, true}
	}
}

func (l *rateLaw) size() int { return len(l.recent) }

func (l *rateLaw) add(s start) view {
	if l.origin == 0 {
		l.origin = s.at
	}
	p := l.insert(s)
	fullest := l.judge(p)
	for j := p + 1; j < len(l.recent); j++ {
		if v := l.judge(j); float64(v.units)/v.most > float64(fullest.units)/fullest.most {
			fullest = v
		}
	}
	return fullest
}

// settle counts the difference at the last start.
func (l *rateLaw) settle(_ start, diff int64) {
	if n := len(l.recent); n > 0 {
		l.insert(start{at: l.recent[n-1].at, units: diff})
	}
}

func (l *rateLaw) insert(s start) (p int) {
	p = len(l.recent)
	for p > 0 && l.recent[p-1].at > s.at {
		p--
	}
	c := counted{s, l.sum}
	if p > 0 {
		c.before = l.recent[p-1].before + l.recent[p-1].units
	}
	l.recent = slices.Insert(l.recent, p, c)
	for i := p + 1; i < len(l.recent); i++ {
		l.recent[i].before += s.units
	}
	newest := l.recent[len(l.recent)-1].at
	forgotten := 0
	for l.recent[forgotten].at < newest-int64(l.window+reorder) {
		l.take(&l.far, l.recent[forgotten])
		l.sum += l.recent[forgotten].units
		forgotten++
	}
	l.recent = l.recent[forgotten:]
	if l.near -= forgotten; l.near < 0 || p-forgotten < l.near {
		l.near, l.low = 0, l.far
	}
	for l.near < len(l.recent) && l.recent[l.near].at <= newest-int64(l.window) {
		l.take(&l.low, l.recent[l.near])
		l.near++
	}
	return max(p-forgotten, 0)
}

// judge returns the fullest window that ends with a start.
func (l *rateLaw) judge(j int) view {
	last := l.recent[j]
	low, first := l.low, l.near
	if j < len(l.recent)-1 {
		low, first = l.far, 0
		for first <= j && l.recent[first].at <= last.at-int64(l.window) {
			l.take(&low, l.recent[first])
			first++
		}
	}
	v := l.from(l.recent[min(first, j)], last, j)
	if low.known {
		if w := l.from(low.counted, last, j); float64(w.units)-w.most > float64(v.units)-v.most {
			v = w
		}
	}
	return v
}

func (l *rateLaw) from(first, last counted, j int) view {
	length := max(l.window, time.Duration(last.at-first.at))
	v := view{units: last.before - first.before + l.taken(last.start), length: length,
		most: l.most + l.rate*length.Seconds(), from: first.at, to: last.at}
	for i := max(0, j-mostNamed+1); i <= j; i++ {
		if c := l.recent[i]; c.at >= first.at && c.units >= 0 {
			v.starts = append(v.starts, c.start)
		}
	}
	if len(v.starts) == 0 || v.starts[0].seq != first.seq {
		v.starts = slices.Insert(v.starts, 0, first.start)
	}
	return v
}

type windowLaw struct {
	spec
	recent []start
	sum    int64
}

func (l *windowLaw) size() int { return len(l.recent) }

func (l *windowLaw) add(s start) view {
	p := len(l.recent)
	for p > 0 && l.recent[p-1].at > s.at {
		p--
	}
	l.recent = slices.Insert(l.recent, p, s)
	l.sum += s.units
	n := 0
	for newest := l.recent[len(l.recent)-1].at; l.recent[n].at <= newest-int64(l.window); n++ {
		l.sum -= l.recent[n].units
	}
	l.recent = l.recent[n:]
	last := len(l.recent) - 1
	v := l.view(0, last, l.sum)
	for j := max(p-n, 0); j < last; j++ {
		i, units := j, int64(0)
		for ; i >= 0 && l.recent[i].at > l.recent[j].at-int64(l.window); i-- {
			units += l.recent[i].units
		}
		if w := l.view(i+1, j, units); w.units > v.units {
			v = w
		}
	}
	return v
}

func (l *windowLaw) view(i, j int, units int64) view {
	last := l.recent[j]
	return view{units: units - last.units + l.taken(last), most: l.most, length: l.window,
		from: l.recent[i].at, to: last.at, starts: l.recent[max(i, j+1-mostNamed) : j+1]}
}

func (l *windowLaw) settle(s start, diff int64) {
	for i := len(l.recent) - 1; i >= 0 && l.recent[i].at >= s.at; i-- {
		if l.recent[i].seq == s.seq {
			l.recent[i].units += diff
			l.sum += diff
			return
		}
	}
}

// clockLaw judges clock windows, or a sliding counter's estimate from two of them.
type clockLaw struct {
	spec
	clock        algorithms.FixedWindow
	begin, end   int64
	before, here int64
	first        int64
	last         []start
}

func (l *clockLaw) size() int { return len(l.last) }

func (l *clockLaw) add(s start) view {
	if l.turn(s.at); s.at < l.begin {
		l.before += s.units
		return view{most: l.most}
	}
	if l.here == 0 {
		l.first, l.last = s.at, nil
	}
	l.here += s.units
	if l.last = append(l.last, s); len(l.last) > mostNamed {
		l.last = slices.Clone(l.last[1:])
	}
	v := view{units: l.here, most: l.most, length: l.window, from: l.first, to: s.at,
		starts: l.last}
	if l.kind == byCounter {
		left := float64(l.end-s.at) / float64(l.window)
		v.units += int64(float64(l.before) * left)
	}
	return v
}

func (l *clockLaw) turn(at int64) {
	if at < l.end {
		return
	}
	begin, end := l.clock.Bounds(time.Unix(0, at))
	if l.before = 0; begin.UnixNano() == l.end {
		l.before = l.here
	}
	l.begin, l.end, l.here = begin.UnixNano(), end.UnixNano(), 0
}

func (l *clockLaw) settle(s start, diff int64) {
	switch {
	case s.at >= l.begin:
		l.here += diff
	case s.at >= l.begin-int64(l.window):
		l.before += diff
	}
}
