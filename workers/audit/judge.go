package audit

import (
	"container/list"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

// Window is how full a window of a limit was.
type Window struct {
	// Limit is outflow, outflow_total, or the name of one of the policy's limits.
	Limit string `json:"limit"`
	// Length is that of the window, for limits that hold for any length that of the fullest.
	Length policy.Duration `json:"window"`
	Units  int64           `json:"units"` // that started in it
	Most   float64         `json:"most"`  // that may
	From   time.Time       `json:"from"`  // its first start, and its last
	To     time.Time       `json:"to"`
}

// Share is how much of what it may hold the window held; more than 1: the limit was broken.
func (w Window) Share() float64 { return float64(w.Units) / w.Most }

// Breach is a limit that was broken.
type Breach struct {
	Policy string
	Key    job.Key // of the last of the starts
	Window Window
	// Starts are the ids of jobs that started in the window: its first one, as far as it is known,
	// and its last ones.
	Starts []string
}

// String says what was broken, and by which starts.
func (b Breach) String() string {
	return fmt.Sprintf("%s: %d units started within %s, of at most %.1f, the last ones %s",
		b.Window.Limit, b.Window.Units, time.Duration(b.Window.Length), b.Window.Most,
		strings.Join(b.Starts, " "))
}

// Standing is what was seen of a bucket.
type Standing struct {
	Since time.Time `json:"since"` // it is watched
	// Worst are the fullest windows of the last hour or two, one for each limit and length.
	Worst []Window `json:"worst"`
	// Broken is how often a limit was broken since.
	Broken uint64 `json:"broken"`
	// Incomplete says that events were lost that could have told of more starts in these windows.
	Incomplete bool `json:"incomplete,omitempty"`
}

// Figure is what was seen of one limit of a policy, over all its buckets.
type Figure struct {
	Policy, Limit string
	Worst         float64 // the largest [Window.Share] of the last hour or two
	Broken        uint64
	Incomplete    bool
}

const (
	// mostNamed is how many starts of a window are named.
	mostNamed = 20
	// settling is for how long after a change of limits starts are not judged: drainers follow it
	// at instants of their own.
	settling = 5 * time.Second
	// period is how long the worst is kept for: that of the last whole one and of the present.
	period = time.Hour
	// apart is by how much two drainers' clocks may differ as far as messages tell.
	apart = 10 * time.Millisecond
	// mostRunning is how many starts of a bucket can be settled.
	mostRunning = 10_000
)

// Judge keeps the fullest windows of all buckets that are active. It is pure: events in, breaches
// out. What it has no room for it forgets, the bucket that has been idle for longest first.
type Judge struct {
	most     int // starts that are remembered, about
	policies map[string]*audited
	special  map[string]map[job.Key]policy.Override // by policy
	held     int
	recent   *list.List // of *bucket: the one that started something last in front
}

// audited is a policy.
type audited struct {
	policy  policy.Policy
	changed time.Time // its limits, or those of a key
	buckets map[job.Key]*bucket
	all     *bucket // what limits all keys together
	sources map[string]*source
	lostAt  time.Time // an event
	figures map[string]*figure
}

// source is a process that tells of starts.
type source struct {
	number uint64
	ahead  time.Duration // the least time from a start until it is heard of
}

type figure struct {
	worst  twice[float64]
	broken uint64
}

// bucket is one that is active.
type bucket struct {
	of      *audited
	key     job.Key
	place   *list.Element
	specs   []spec
	laws    []law
	worst   []twice[Window]
	broken  []int64 // up to when a law is known to be broken
	breaks  uint64
	since   time.Time
	lostAt  time.Time
	ignore  time.Time // starts before
	source  string
	running map[uint64]running
	held    int
}

// running is a start whose costs may be settled.
type running struct {
	at    int64
	cost  int64
	costs map[string]int64
}

// twice is the largest of a period and of the one before.
type twice[T any] struct {
	number      int64
	now, before T
}

func (t *twice[T]) turn(at time.Time) {
	n := at.UnixNano() / int64(period)
	var none T
	switch {
	case n <= t.number:
		return
	case n == t.number+1:
		t.before = t.now
	default:
		t.before = none
	}
	t.number, t.now = n, none
}

// note takes what is more than was there.
func (t *twice[T]) note(at time.Time, v T, more func(a, b T) bool) {
	if t.turn(at); more(v, t.now) {
		t.now = v
	}
}

func (t *twice[T]) largest(at time.Time, more func(a, b T) bool) T {
	if t.turn(at); more(t.before, t.now) {
		return t.before
	}
	return t.now
}

func fuller(a, b Window) bool  { return b.Most == 0 || a.Most > 0 && a.Share() > b.Share() }
func larger(a, b float64) bool { return a > b }

// NewJudge makes a judge that remembers about so many starts.
func NewJudge(most int) *Judge {
	return &Judge{most: most, policies: map[string]*audited{},
		special: map[string]map[job.Key]policy.Override{}, recent: list.New()}
}

// Follow takes the policies that there are.
func (j *Judge) Follow(set policy.Entries, now time.Time) {
	for name, a := range j.policies {
		if _, found := set[name]; !found {
			for _, b := range a.buckets {
				j.forget(b)
			}
			delete(j.policies, name)
		}
	}
	for name, entry := range set {
		a := j.policies[name]
		if a == nil {
			a = &audited{policy: entry.Policy, buckets: map[job.Key]*bucket{},
				sources: map[string]*source{}, figures: map[string]*figure{}}
			a.all = &bucket{of: a, since: now}
			j.policies[name] = a
		} else if !reflect.DeepEqual(a.policy, entry.Policy) {
			a.changed = now
		}
		a.policy = entry.Policy
	}
}

// Override takes the limits of one key's own.
func (j *Judge) Override(name string, key job.Key, o policy.Override, now time.Time) {
	if j.special[name] == nil {
		j.special[name] = map[job.Key]policy.Override{}
	}
	j.special[name][key] = o
	if o.IsZero() {
		delete(j.special[name], key)
	}
	if a := j.policies[name]; a != nil {
		a.changed = now
	}
}

// specs are the laws of a key.
func (j *Judge) specs(p policy.Policy, key job.Key) []spec {
	return specsOf(p, j.special[p.Name][key])
}

func specsOf(p policy.Policy, o policy.Override) []spec {
	if !p.Paced() {
		return nil
	}
	ratio := o.PeakRatio(p)
	if o.Outflow != nil {
		p.Outflow = *o.Outflow
	}
	if o.Burst != nil {
		p.Burst = *o.Burst
	}
	specs := law2("outflow", p.Outflow, ratio, max(p.Burst, 1))
	for _, l := range p.Enforced() {
		if l.Key == policy.PlaceholderKey {
			specs = append(specs, specOf(l))
		}
	}
	return specs
}

// totals are the laws of all keys together.
func totals(p policy.Policy) []spec {
	if !p.Paced() {
		return nil
	}
	specs := law2("outflow_total", p.OutflowTotal, p.PeakTotalRatio(), 1)
	for _, l := range p.Enforced() {
		if l.Key != policy.PlaceholderKey {
			specs = append(specs, specOf(l))
		}
	}
	return specs
}

// Heard takes an event, and returns the limits that it shows to be broken.
func (j *Judge) Heard(name string, e queue.Event, now time.Time) []Breach {
	a := j.policies[name]
	if a == nil || !a.policy.Paced() {
		return nil
	}
	a.number(e, now)
	seq, err := strconv.ParseUint(e.Job[strings.IndexByte(e.Job, ':')+1:], 10, 64)
	switch {
	case err != nil:
		return nil
	case e.Type == queue.EventStarted && !e.At.IsZero():
		return append(j.started(a.bucket(j, e), j.specs(a.policy, e.Key), seq, e, now),
			j.started(a.all, totals(a.policy), seq, e, now)...)
	case e.Type == queue.EventStarted:
		a.lostAt = now // an older version does not tell when
	case e.Type != queue.EventAccepted:
		for _, b := range []*bucket{a.buckets[e.Key], a.all} {
			if b != nil {
				b.settle(seq, e.Used)
			}
		}
	}
	return nil
}

// number sees whether events were lost.
func (a *audited) number(e queue.Event, now time.Time) {
	if e.N == 0 {
		return
	}
	s := a.sources[e.From]
	if s == nil {
		if len(a.sources) > 100 { // of processes that are long gone
			clear(a.sources)
		}
		s = &source{number: e.N - 1, ahead: time.Duration(1<<63 - 1)}
		a.sources[e.From] = s
	}
	if e.N != s.number+1 {
		a.lostAt = now
	}
	s.number = e.N
	if !e.At.IsZero() {
		s.ahead = min(s.ahead, now.Sub(e.At))
	}
}

// bucket returns that of a start.
func (a *audited) bucket(j *Judge, e queue.Event) *bucket {
	b := a.buckets[e.Key]
	if b == nil {
		b = &bucket{of: a, key: e.Key, since: e.At}
		b.place = j.recent.PushFront(b)
		a.buckets[e.Key] = b
		j.held += bucketSize
	}
	j.recent.MoveToFront(b.place)
	for last := j.recent.Back(); j.held > j.most && last.Value != b; last = j.recent.Back() {
		old := last.Value.(*bucket)
		if old.of.lostAt.Before(old.lastAt()) {
			old.of.lostAt = old.lastAt() // what it counted would have gone on to count
		}
		j.forget(old)
	}
	return b
}

// bucketSize is what a bucket takes, in starts.
const bucketSize = 32

func (b *bucket) lastAt() time.Time {
	var last time.Time
	for _, w := range b.worst {
		if w.now.To.After(last) {
			last = w.now.To
		}
	}
	return last
}

func (j *Judge) forget(b *bucket) {
	j.recent.Remove(b.place)
	delete(b.of.buckets, b.key)
	j.held -= b.held + bucketSize
}

// started counts a start in all laws of a bucket.
func (j *Judge) started(b *bucket, specs []spec, seq uint64, e queue.Event,
	now time.Time) (broken []Breach) {
	if !slices.Equal(b.specs, specs) {
		if b.specs != nil {
			b.ignore = b.of.changed.Add(settling)
		}
		b.begin(specs)
	}
	if len(specs) == 0 {
		return nil
	}
	b.handedOver(e, now)
	if e.At.Before(b.ignore) {
		return nil
	}
	cost := max(e.Cost, 1)
	if len(b.running) < mostRunning && slices.ContainsFunc(specs, func(s spec) bool {
		return s.cost != ""
	}) {
		b.running[seq] = running{e.At.UnixNano(), cost, e.Costs}
	}
	held := 0
	for i, s := range b.specs {
		units := policy.Limit{Cost: s.cost}.Takes(cost, e.Costs)
		v := b.laws[i].add(start{e.At.UnixNano(), seq, units})
		held += b.laws[i].size()
		w := Window{Limit: s.limit, Length: policy.Duration(v.length), Units: v.units,
			Most: v.most, From: time.Unix(0, v.from).UTC(), To: time.Unix(0, v.to).UTC()}
		b.worst[i].note(e.At, w, fuller)
		f := b.of.figure(s.limit)
		f.worst.note(e.At, w.Share(), larger)
		if float64(v.units) <= v.most+1e-6 || v.from <= b.broken[i] {
			continue
		}
		b.broken[i] = v.to
		if b.breaks++; len(broken) > 0 && broken[len(broken)-1].Window.Limit == s.limit {
			continue // by another of its windows
		}
		f.broken++
		breach := Breach{Policy: b.of.policy.Name, Key: e.Key, Window: w}
		for _, s := range v.starts {
			breach.Starts = append(breach.Starts, job.ID(b.of.policy.Name, s.seq))
		}
		broken = append(broken, breach)
	}
	if b.place != nil {
		j.held += held - b.held
		b.held = held
	}
	return broken
}

// begin forgets all starts.
func (b *bucket) begin(specs []spec) {
	b.specs, b.laws, b.running = specs, nil, map[uint64]running{}
	b.worst, b.broken = make([]twice[Window], len(specs)), make([]int64, len(specs))
	for _, s := range specs {
		b.laws = append(b.laws, s.law())
	}
}

// handedOver sees that another drainer starts the bucket's jobs than before: the last events of one
// that crashed are lost, and where clocks differ nothing of before can be compared.
func (b *bucket) handedOver(e queue.Event, now time.Time) {
	before, is := b.of.sources[b.source], b.of.sources[e.From]
	if b.source != "" && b.source != e.From {
		b.lostAt = now
		if before == nil || is == nil || (before.ahead-is.ahead).Abs() > apart {
			b.begin(b.specs)
		}
	}
	b.source = e.From
}

// settle corrects what a start took by what it turned out to cost.
func (b *bucket) settle(seq uint64, used map[string]int64) {
	r, known := b.running[seq]
	if !known {
		return
	}
	delete(b.running, seq)
	for i, s := range b.specs {
		if n, told := used[s.cost]; told && s.cost != "" {
			units := policy.Limit{Cost: s.cost}.Takes(r.cost, r.costs)
			b.laws[i].settle(start{r.at, seq, units}, n-units)
		}
	}
}

func (a *audited) figure(limit string) *figure {
	f := a.figures[limit]
	if f == nil {
		f = &figure{}
		a.figures[limit] = f
	}
	return f
}

// missing reports whether what was lost at an instant could have counted in windows that are told.
func missing(lost time.Time, specs []spec, now time.Time) bool {
	longest := period
	for _, s := range specs {
		longest = max(longest, period+2*s.window)
	}
	return !lost.IsZero() && now.Sub(lost) < period+longest
}

// Bucket returns what was seen of a bucket, and of all keys together where something limits them;
// false: nothing was.
func (j *Judge) Bucket(name string, key job.Key, now time.Time) (s Standing, known bool) {
	a := j.policies[name]
	if a == nil || a.buckets[key] == nil {
		return Standing{}, false
	}
	s, all := a.buckets[key].standing(now), a.all.standing(now)
	s.Worst, s.Broken = append(s.Worst, all.Worst...), s.Broken+all.Broken
	s.Incomplete = s.Incomplete || all.Incomplete
	return s, true
}

func (b *bucket) standing(now time.Time) Standing {
	s := Standing{Since: b.since.UTC(), Worst: []Window{}, Broken: b.breaks,
		Incomplete: missing(b.lostAt, b.specs, now) || missing(b.of.lostAt, b.specs, now)}
	for i := range b.worst {
		if w := b.worst[i].largest(now, fuller); w.Most > 0 {
			s.Worst = append(s.Worst, w)
		}
	}
	return s
}

// Figures returns what was seen of all limits of all policies.
func (j *Judge) Figures(now time.Time) (all []Figure) {
	for _, name := range slices.Sorted(maps.Keys(j.policies)) {
		a := j.policies[name]
		incomplete := missing(a.lostAt, j.specs(a.policy, ""), now)
		for _, limit := range slices.Sorted(maps.Keys(a.figures)) {
			f := a.figures[limit]
			all = append(all, Figure{name, limit, f.worst.largest(now, larger), f.broken,
				incomplete})
		}
	}
	return all
}
