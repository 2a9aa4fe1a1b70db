package watch

import (
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/queue"
)

type Stats struct {
	WindowMS int64  `json:"window_ms"`
	Policies []Stat `json:"policies"`
}

type Stat struct {
	Policy    string `json:"policy"`
	Accepted  int64  `json:"accepted"`
	Started   int64  `json:"started"`
	Done      int64  `json:"done"`
	Failed    int64  `json:"failed"`
	Throttled int64  `json:"throttled"`
	Dead      int64  `json:"dead"`
	Cancelled int64  `json:"cancelled"`

	// Answers of this process only.

	Refused       int64 `json:"refused"`
	ChecksAllowed int64 `json:"checks_allowed"`
	ChecksRefused int64 `json:"checks_refused"`

	Keys []KeyStat `json:"keys,omitempty"`

	Shadow map[string]Shadow `json:"shadow,omitempty"`

	Rate     float64    `json:"rate"`
	Wait     *Quantiles `json:"wait_ms,omitempty"`
	Duration *Quantiles `json:"duration_ms,omitempty"`
	Starts   []int64    `json:"starts"`
}

type Shadow struct {
	Over int64 `json:"over"`
	ByMS int64 `json:"by_ms"`
}

// Quantiles are in milliseconds, at most an eighth too large.
type Quantiles struct {
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
}

const (
	window      = 60 // seconds
	partSeconds = 10
	parts       = window/partSeconds + 1

	maxPolicies = 1000
)

type figures struct {
	last    int64 // event, in Unix seconds
	seconds [window]second
	times   [parts]part
	hot     heat
	full    heat
}

type second struct {
	unix   int64
	n      [kinds]int64
	shadow map[string]Shadow
}

func (s *second) shadowed(limit string, ms int64) {
	if s.shadow == nil {
		s.shadow = map[string]Shadow{}
	}
	before := s.shadow[limit]
	s.shadow[limit] = Shadow{before.Over + 1, before.ByMS + ms}
}

type kind int

const (
	accepted kind = iota
	started
	done
	failed
	throttled
	dead
	cancelled
	refused
	checkAllowed
	checkRefused
	kinds
)

var kindOf = map[string]kind{queue.EventAccepted: accepted, queue.EventStarted: started,
	queue.EventDone: done, queue.EventFailed: failed, queue.EventThrottled: throttled,
	queue.EventDead: dead, queue.EventCancelled: cancelled}

type part struct {
	number         int64
	wait, duration histogram
}

// of returns a policy's figures, or nil if there are too many policies.
func (w *Watch) of(policy string) *figures {
	f := w.figures[policy]
	if f == nil {
		begin := w.now().Unix() - window
		maps.DeleteFunc(w.figures, func(_ string, f *figures) bool { return f.last < begin })
	}
	if f == nil && len(w.figures) < maxPolicies {
		f = new(figures)
		w.figures[policy] = f
	}
	return f
}

func (f *figures) count(now time.Time, k kind) { f.second(now).n[k]++ }

func (f *figures) second(now time.Time) *second {
	s := &f.seconds[now.Unix()%window]
	f.last = max(f.last, now.Unix())
	if s.unix != now.Unix() {
		*s = second{unix: now.Unix()}
	}
	return s
}

func (f *figures) heard(now time.Time, e queue.Event) {
	k, counted := kindOf[e.Type]
	if !counted {
		return
	}
	f.count(now, k)
	for limit, ms := range e.Shadow {
		f.second(now).shadowed(limit, ms)
	}
	if k == accepted || k == cancelled || k == dead {
		return
	}
	number := now.Unix() / partSeconds
	p := &f.times[number%parts]
	if p.number != number {
		*p = part{number: number}
	}
	if k == started {
		p.wait.add(e.WaitMS)
	} else {
		p.duration.add(e.DurationMS)
	}
}

func (w *Watch) Take(e queue.Event) {
	switch {
	case e.Type == queue.EventAdmitted && e.Name == string(admission.Rejected):
		w.note(e.Policy, func(f *figures) {
			f.count(w.now(), refused)
			f.full.asked(w.now(), e.Key, false)
		})
	case e.Type == queue.EventChecked:
		w.note(e.Policy, func(f *figures) {
			f.count(w.now(), checkRefused-kind(e.Value)) // checkAllowed comes before it
			f.hot.asked(w.now(), e.Key, e.Value > 0)
		})
	case e.Type == queue.EventShadowed && e.Value > 0:
		w.note(e.Policy, func(f *figures) {
			f.second(w.now()).shadowed(e.Name, e.For.Milliseconds())
		})
	}
}

func (w *Watch) note(policy string, count func(*figures)) {
	if !w.hears.Load() {
		return // the usual case, on the path of every answer
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop == nil {
		return
	}
	if f := w.of(policy); f != nil {
		count(f)
	}
}

// The first call starts the watch.
func (w *Watch) Stats(may func(policy string) bool, keys int) (Stats, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, heard, err := w.asked()
	if err != nil {
		return Stats{}, err
	}
	all := Stats{WindowMS: heard.Milliseconds(), Policies: []Stat{}}
	for _, name := range slices.Sorted(maps.Keys(w.figures)) {
		if may(name) {
			s := w.figures[name].stat(name, now, heard)
			if keys > 0 {
				s.Keys = w.figures[name].hot.hottest(now, keys)
			}
			all.Policies = append(all.Policies, s)
		}
	}
	return all, nil
}

// heard is at most a window.
func (w *Watch) asked() (now time.Time, heard time.Duration, err error) {
	if err = w.hear(); err != nil {
		return now, 0, err
	}
	now = w.now()
	return now, min(now.Sub(w.began), window*time.Second), nil
}

func (f *figures) stat(name string, now time.Time, heard time.Duration) Stat {
	var n [kinds]int64
	seconds := min(now.Unix()-now.Add(-heard).Unix()+1, window)
	starts := make([]int64, seconds)
	var shadow map[string]Shadow
	for i := range starts {
		unix := now.Unix() - seconds + 1 + int64(i)
		if s := &f.seconds[unix%window]; s.unix == unix {
			starts[i] = s.n[started]
			for k := range n {
				n[k] += s.n[k]
			}
			for limit, more := range s.shadow {
				if shadow == nil {
					shadow = map[string]Shadow{}
				}
				before := shadow[limit]
				shadow[limit] = Shadow{before.Over + more.Over, before.ByMS + more.ByMS}
			}
		}
	}
	var wait, duration histogram
	for i := range f.times {
		if p := &f.times[i]; p.number > now.Unix()/partSeconds-parts {
			wait.merge(&p.wait)
			duration.merge(&p.duration)
		}
	}
	return Stat{
		Policy: name, Accepted: n[accepted], Started: n[started], Done: n[done],
		Failed: n[failed], Throttled: n[throttled], Dead: n[dead], Cancelled: n[cancelled],
		Refused: n[refused], ChecksAllowed: n[checkAllowed], ChecksRefused: n[checkRefused],
		Shadow: shadow,
		Rate:   float64(n[started]) / max(heard.Seconds(), 1),
		Wait:   wait.quantiles(), Duration: duration.quantiles(),
		Starts: starts,
	}
}

// histogram has eight bins per doubling, up to nine hours.
type histogram [bins]uint32

const (
	fine    = 3 // bits: a doubling has 1<<fine bins
	doubles = 22
	bins    = (doubles + 1) << fine
)

func bin(ms int64) int {
	if ms < 1<<fine {
		return int(max(ms, 0))
	}
	e := bits.Len64(uint64(ms)) - 1 - fine
	return min((e<<fine)+int(ms>>e), bins-1)
}

func most(bin int) int64 {
	if bin < 2<<fine {
		return int64(bin)
	}
	e := bin>>fine - 1
	return int64(bin-e<<fine+1)<<e - 1
}

func (h *histogram) add(ms int64) { h[bin(ms)]++ }

func (h *histogram) merge(other *histogram) {
	for i, n := range other {
		h[i] += n
	}
}

func (h *histogram) quantiles() *Quantiles {
	var total uint64
	for _, n := range h {
		total += uint64(n)
	}
	if total == 0 {
		return nil
	}
	at := func(percent uint64) int64 {
		rank := (total*percent + 99) / 100
		for i, n := range h {
			if rank <= uint64(n) {
				return most(i)
			}
			rank -= uint64(n)
		}
		return most(bins - 1)
	}
	return &Quantiles{P50: at(50), P99: at(99)}
}
