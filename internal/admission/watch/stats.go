package watch

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/queue"
)

const (
	window      = 60 // seconds
	partSeconds = 10
	parts       = window/partSeconds + 1

	maxPolicies = 1000
)

type figures struct {
	last  int64 // event, in Unix seconds
	times [parts]part
}

type part struct {
	number         int64
	wait, duration histogram
	shadow         map[string]api.Shadow
	checked, full  hottest
}

// shadowed adds delays by a shadow limit.
func shadowed(all *map[string]api.Shadow, limit string, by api.Shadow) {
	if *all == nil {
		*all = map[string]api.Shadow{}
	}
	before := (*all)[limit]
	(*all)[limit] = api.Shadow{Over: before.Over + by.Over, ByMS: before.ByMS + by.ByMS}
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

func (f *figures) heard(now time.Time, e queue.Event) {
	f.last = max(f.last, now.Unix())
	for limit, ms := range e.Shadow {
		shadowed(&f.part(now).shadow, limit, api.Shadow{Over: 1, ByMS: ms})
	}
	switch e.Type {
	case queue.EventStarted:
		f.part(now).wait.add(e.WaitMS)
	case queue.EventDone, queue.EventFailed, queue.EventThrottled:
		f.part(now).duration.add(e.DurationMS)
	}
}

func (f *figures) part(now time.Time) *part {
	number := now.Unix() / partSeconds
	p := &f.times[number%parts]
	if p.number != number {
		*p = part{number: number}
	}
	return p
}

// minute yields the parts of the last minute.
func (f *figures) minute(now time.Time) iter.Seq[*part] {
	return func(yield func(*part) bool) {
		for i := range f.times {
			p := &f.times[i]
			if p.number > now.Unix()/partSeconds-parts && !yield(p) {
				return
			}
		}
	}
}

// Take counts an event of this process; see [queue.Sink].
func (w *Watch) Take(e queue.Event) {
	switch {
	case e.Type == jet.EventAdmitted && e.Name == string(admission.Rejected):
		w.note(e.Policy, func(f *figures) {
			f.part(w.now()).full.add(e.Key, false)
		})
	case e.Type == jet.EventChecked:
		w.note(e.Policy, func(f *figures) {
			f.part(w.now()).checked.add(e.Key, e.Value > 0)
		})
	case e.Type == jet.EventShadowed && e.Value > 0:
		w.note(e.Policy, func(f *figures) {
			f.last = max(f.last, w.now().Unix())
			shadowed(&f.part(w.now()).shadow, e.Name,
				api.Shadow{Over: 1, ByMS: e.For.Milliseconds()})
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

// Stats returns the counts of all processes that answer, which run always, with the quantiles, keys
// and shadow limits seen since the watch started, at the first call at the latest.
func (w *Watch) Stats(ctx context.Context, may func(policy string) bool, keys int) (
	api.Stats, error) {

	if err := w.askOthers(ctx); err != nil {
		return api.Stats{}, err
	}
	own := w.broker.Tally().Recents()
	w.mu.Lock()
	defer w.mu.Unlock()
	now, watched, err := w.asked()
	if err != nil {
		return api.Stats{}, err
	}
	sums, counted, longest := own.Policies, own.ForMS, own.ForMS
	for from, other := range w.others {
		if now.Sub(other.at) > jet.RecentTime {
			delete(w.others, from)
			continue
		}
		counted, longest = min(counted, other.ForMS), max(longest, other.ForMS)
		for name, r := range other.Policies {
			sum := sums[name]
			sum.Add(r)
			sums[name] = sum
		}
	}
	if w.unasked {
		counted = 0
	}
	all := api.Stats{WindowMS: counted, WatchedMS: watched.Milliseconds(), Policies: []api.Stat{}}
	for name := range w.figures {
		if _, some := sums[name]; !some {
			sums[name] = jet.Recent{}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		if !may(name) {
			continue
		}
		s := statOf(name, sums[name], longest)
		if f := w.figures[name]; f != nil {
			f.describe(&s, now)
			if keys > 0 {
				s.Keys = f.hottest(now, keys, func(p *part) *hottest { return &p.checked })
			}
		}
		all.Policies = append(all.Policies, s)
	}
	return all, nil
}

// asked also returns for how long the watch has listened, at most a window.
func (w *Watch) asked() (now time.Time, heard time.Duration, err error) {
	if err = w.hear(); err != nil {
		return now, 0, err
	}
	now = w.now()
	return now, min(now.Sub(w.began), window*time.Second), nil
}

func statOf(name string, r jet.Recent, countedMS int64) api.Stat {
	s := api.Stat{Policy: name,
		Accepted: max(r.N[jet.CountAccepted], r.N[jet.CountAdmitted]),
		Started:  r.N[jet.CountStarted],
		Done:     r.N[jet.CountDone], Failed: r.N[jet.CountFailed],
		Throttled: r.N[jet.CountThrottled], Dead: r.N[jet.CountDead],
		Cancelled: r.N[jet.CountCancelled], Refused: r.N[jet.CountRefused],
		ChecksAllowed: r.N[jet.CountAllowed], ChecksRefused: r.N[jet.CountDenied]}
	last := len(r.Starts) - 1 // has only begun
	n := r.N[jet.CountStarted]
	if countedMS == jet.RecentTime.Milliseconds() {
		n -= r.Starts[last]
	}
	s.Rate = float64(n) / max(float64(countedMS)/1000, 1)
	for _, n := range r.Starts[max(last-int(countedMS+1999)/2000, 0):] { // of two seconds each
		s.Starts = append(s.Starts, n-n/2, n/2)
	}
	return s
}

func (f *figures) describe(s *api.Stat, now time.Time) {
	var wait, duration histogram
	for p := range f.minute(now) {
		wait.merge(&p.wait)
		duration.merge(&p.duration)
		for limit, by := range p.shadow {
			shadowed(&s.Shadow, limit, by)
		}
	}
	s.Wait, s.Duration = wait.quantiles(), duration.quantiles()
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

func (h *histogram) quantiles() *api.Quantiles {
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
	return &api.Quantiles{P50: at(50), P99: at(99)}
}

// MostKeys bounds the keys that are counted for a policy.
const MostKeys = 64

// counted is the answers to a key, since up to More earlier ones.
func counted(k api.KeyStat) int64 { return k.Allowed + k.Refused }

// hottest finds the most frequent keys by space-saving (Metwally, Agrawal, El Abbadi 2005): a new
// key replaces the least frequent one and inherits its count as More. Each key with more than a
// 64th of all checks is found.
type hottest struct {
	keys []api.KeyStat
	at   map[queue.Key]int
}

func (h *hottest) add(k queue.Key, allowed bool) {
	if h.at == nil {
		h.at = map[queue.Key]int{}
	}
	i, known := h.at[k]
	switch {
	case known:
	case len(h.keys) < MostKeys:
		i = len(h.keys)
		h.keys = append(h.keys, api.KeyStat{Key: string(k)})
	default:
		for j, other := range h.keys {
			if least := h.keys[i]; counted(other)+other.More < counted(least)+least.More {
				i = j
			}
		}
		delete(h.at, queue.Key(h.keys[i].Key))
		h.keys[i] = api.KeyStat{Key: string(k), More: counted(h.keys[i]) + h.keys[i].More}
	}
	h.at[k] = i
	if allowed {
		h.keys[i].Allowed++
	} else {
		h.keys[i].Refused++
	}
}

// hottest returns the keys of a minute, with most answers first.
func (f *figures) hottest(now time.Time, most int, of func(*part) *hottest) []api.KeyStat {
	sums := map[string]api.KeyStat{}
	for p := range f.minute(now) {
		for _, k := range of(p).keys {
			sum := sums[k.Key]
			sums[k.Key] = api.KeyStat{Key: k.Key, Allowed: sum.Allowed + k.Allowed,
				Refused: sum.Refused + k.Refused, More: sum.More + k.More}
		}
	}
	keys := make([]api.KeyStat, 0, len(sums))
	for form, k := range sums {
		k.Key = queue.Key(form).Raw()
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b api.KeyStat) int {
		return cmp.Or(cmp.Compare(counted(b), counted(a)), cmp.Compare(a.Key, b.Key))
	})
	return keys[:min(len(keys), most)]
}

// Refusals are the keys with most answers of a process, by policy.
type Refusals struct {
	Window time.Duration            // at most a minute
	Keys   map[string][]api.KeyStat // at most [MostKeys] per policy
}

// Refusals are this process's. The first call starts the counting.
func (w *Watch) Refusals(may func(policy string) bool) (Refusals, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, heard, err := w.asked()
	all := Refusals{heard, map[string][]api.KeyStat{}}
	for name, f := range w.figures {
		if may(name) {
			all.Keys[name] = f.hottest(now, MostKeys, func(p *part) *hottest { return &p.full })
		}
	}
	return all, err
}

const (
	askEvery = 500 * time.Millisecond
	// Answers older than this are waited for.
	fresh = 5 * time.Second
	// Processes answer in a round trip; how many there are is unknown.
	answersIn = 100 * time.Millisecond
)

type others struct {
	jet.Recents
	at time.Time
}

// askOthers asks the other processes for their counts, and waits if the last ones are old.
func (w *Watch) askOthers(ctx context.Context) error {
	age, err := w.askAgain()
	if err != nil || age < fresh {
		return err
	}
	select {
	case <-time.After(answersIn):
	case <-ctx.Done():
	}
	return ctx.Err()
}

// askAgain asks the others if it is time, and returns the age of the question before.
func (w *Watch) askAgain() (age time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, _, err := w.asked()
	age = now.Sub(w.askedOthers)
	if err == nil && age >= askEvery {
		w.unasked, w.askedOthers = w.ask() != nil, now
	}
	return age, err
}

func (w *Watch) answered(all jet.Recents) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.others != nil {
		w.others[all.From] = others{all, w.now()}
	}
}
