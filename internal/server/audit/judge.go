package audit

import (
	"container/list"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

const (
	// mostNamed bounds the starts listed for a window.
	mostNamed = 20
	// settling is the time after a change of limits without judgement.
	settling = 5 * time.Second
	// The worst window is kept for one to two periods.
	period = time.Hour
	// apart is the tolerated difference of drainers' clocks, and of delays.
	apart       = 10 * time.Millisecond
	mostRunning = 10_000
)

// Judge keeps the fullest windows of active buckets. It drops the longest idle ones first.
type Judge struct {
	most     int
	policies map[string]*audited
	special  map[string]map[queue.Key]inforce.Override // by policy
	shared   map[string]*bucket
	held     int
	recent   *list.List
}

type audited struct {
	policy  policy.Policy
	entry   *inforce.Entry // of the policy
	changed time.Time      // its limits, or a key's
	buckets map[queue.Key]*bucket
	all     *bucket // limits of all keys
	shared  []shared
	sources map[string]*source
	lostAt  time.Time // an event
	figures map[string]*figure
}

type shared struct {
	specs  []spec
	starts *bucket
}

type source struct {
	number uint64
	ahead  time.Duration
}

type figure struct {
	worst  twice[float64]
	broken uint64
}

type bucket struct {
	of      *audited // nil: several policies
	names   []string
	key     queue.Key
	place   *list.Element
	specs   []spec
	laws    []law
	worst   []twice[Window]
	broken  []int64 // until when a law is broken
	breaks  uint64
	since   time.Time
	lostAt  time.Time
	ignore  time.Time
	source  string
	running map[uint64]running
	held    int
}

// running is a start whose costs may be settled, or whose answer counts.
type running struct {
	source string
	at     int64
	cost   int64
	costs  map[string]int64
}

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

// NewJudge returns a judge that remembers at most that many buckets.
func NewJudge(most int) *Judge {
	return &Judge{most: most, policies: map[string]*audited{},
		special: map[string]map[queue.Key]inforce.Override{}, shared: map[string]*bucket{},
		recent: list.New()}
}

// Follow sets the policies.
func (j *Judge) Follow(set inforce.Entries, now time.Time) {
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
			a = &audited{policy: entry.Policy, buckets: map[queue.Key]*bucket{},
				sources: map[string]*source{}, figures: map[string]*figure{}}
			a.all = &bucket{of: a, names: []string{name}, since: now}
			j.policies[name] = a
		} else if a.entry != entry && !reflect.DeepEqual(a.policy, entry.Policy) {
			a.changed = now
		}
		a.policy, a.entry = entry.Policy, entry
	}
	j.share(now)
}

func (j *Judge) share(now time.Time) {
	before := j.shared
	j.shared = map[string]*bucket{}
	for _, a := range j.policies {
		a.shared = nil
		for _, l := range a.policy.SharedLimits() {
			b := j.shared[l.Shared]
			if b == nil {
				if b = before[l.Shared]; b == nil {
					b = &bucket{since: now}
				}
				j.shared[l.Shared] = b
			}
			a.shared = append(a.shared, shared{promises(l), b})
		}
	}
}

// Override sets the limits of one key.
func (j *Judge) Override(name string, key queue.Key, o inforce.Override, now time.Time) {
	if j.special[name] == nil {
		j.special[name] = map[queue.Key]inforce.Override{}
	}
	j.special[name][key] = o
	if o.IsZero() {
		delete(j.special[name], key)
	}
	if a := j.policies[name]; a != nil {
		a.changed = now
	}
}

func (j *Judge) specs(p policy.Policy, key queue.Key) []spec {
	return specsOf(p, j.special[p.Name][key])
}

func specsOf(p policy.Policy, o inforce.Override) []spec {
	if !p.Paced() {
		return nil
	}
	ratio := o.PeakRatio(p)
	p = o.Apply(p)
	specs := law2("outflow", p.Outflow, ratio, max(p.Burst, 1))
	for _, l := range p.Enforced() {
		if l.Key == policy.PlaceholderKey {
			specs = append(specs, promises(l)...)
		}
	}
	return specs
}

func totals(p policy.Policy) []spec {
	if !p.Paced() {
		return nil
	}
	specs := law2("outflow_total", p.OutflowTotal, p.PeakTotalRatio(), 1)
	for _, l := range p.Enforced() {
		if l.Key != policy.PlaceholderKey && l.Shared == "" {
			specs = append(specs, promises(l)...)
		}
	}
	return specs
}

// Heard judges an event of a policy, and returns the laws that it breaks.
func (j *Judge) Heard(name string, e queue.Event, now time.Time) (broken []Breach) {
	a := j.policies[name]
	if a == nil || !a.policy.Paced() {
		return nil
	}
	if a.lost(e, now) {
		j.lost(a, now)
	}
	seq, err := strconv.ParseUint(e.Job[strings.IndexByte(e.Job, ':')+1:], 10, 64)
	switch {
	case err != nil:
		return nil
	case e.Type == queue.EventStarted:
		broken = append(j.started(a, a.bucket(j, e), j.specs(a.policy, e.Key), seq, e, now),
			j.started(a, a.all, totals(a.policy), seq, e, now)...)
		for _, s := range a.shared {
			broken = append(broken, j.started(a, s.starts, s.specs, seq, e, now)...)
		}
		return broken
	case e.Type == queue.EventDone, e.Type == queue.EventFailed, e.Type == queue.EventThrottled:
		counted := []*bucket{a.buckets[e.Key], a.all}
		for _, s := range a.shared {
			counted = append(counted, s.starts)
		}
		for _, b := range counted {
			if b != nil {
				broken = append(broken, j.ended(a, b, b.number(name, seq), e)...)
			}
		}
	}
	return broken
}

func (j *Judge) lost(a *audited, now time.Time) {
	a.lostAt = now
	for _, s := range a.shared {
		s.starts.lostAt = now
	}
}

func (a *audited) lost(e queue.Event, now time.Time) bool {
	if e.N == 0 {
		return false
	}
	s := a.sources[e.From]
	if s == nil {
		if len(a.sources) > 100 {
			clear(a.sources)
		}
		s = &source{number: e.N - 1, ahead: time.Duration(1<<63 - 1)}
		a.sources[e.From] = s
	}
	if !e.At.IsZero() {
		s.ahead = min(s.ahead, now.Sub(e.At))
	}
	lost := e.N != s.number+1
	s.number = e.N
	return lost
}

func (a *audited) bucket(j *Judge, e queue.Event) *bucket {
	b := a.buckets[e.Key]
	if b == nil {
		b = &bucket{of: a, names: a.all.names, key: e.Key, since: e.At}
		b.place = j.recent.PushFront(b)
		a.buckets[e.Key] = b
		j.held += bucketSize
	}
	j.recent.MoveToFront(b.place)
	for last := j.recent.Back(); j.held > j.most && last.Value != b; last = j.recent.Back() {
		old := last.Value.(*bucket)
		if old.of.lostAt.Before(old.lastAt()) {
			old.of.lostAt = old.lastAt()
		}
		j.forget(old)
	}
	return b
}

const inStream = 48

func (b *bucket) number(policy string, seq uint64) uint64 {
	i := slices.Index(b.names, policy)
	if i < 0 {
		i, b.names = len(b.names), append(b.names, policy)
	}
	return uint64(i)<<inStream | seq
}

func (b *bucket) id(number uint64) string {
	return job.ID(b.names[number>>inStream], number&(1<<inStream-1))
}

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

func (j *Judge) started(a *audited, b *bucket, specs []spec, seq uint64, e queue.Event,
	now time.Time) (broken []Breach) {
	if !slices.Equal(b.specs, specs) {
		if b.specs != nil {
			b.ignore = a.changed.Add(settling)
		}
		b.begin(specs)
	}
	if len(specs) == 0 {
		return nil
	}
	b.handedOver(a, e, now)
	if e.At.Before(b.ignore) {
		return nil
	}
	cost, number := max(e.Cost, 1), b.number(a.policy.Name, seq)
	ends := func(s spec) bool { return s.cost != "" || s.from != "" }
	if len(b.running) < mostRunning && slices.ContainsFunc(specs, ends) {
		b.running[number] = running{e.From, e.At.UnixNano(), cost, e.Costs}
	}
	return j.judged(a, b, e.Key, func(i int, s spec) (v view, known bool) {
		if s.arrives() {
			return v, false
		}
		units := policy.Limit{Cost: s.cost}.Takes(cost, e.Costs)
		return b.laws[i].add(start{at: e.At.UnixNano(), seq: number, units: units}), true
	})
}

// judged notes what the laws that know more say, and returns the breaches.
func (j *Judge) judged(a *audited, b *bucket, key queue.Key,
	say func(int, spec) (v view, known bool)) (broken []Breach) {
	held := 0
	for i, s := range b.specs {
		v, known := say(i, s)
		held += b.laws[i].size()
		if !known {
			continue
		}
		at := time.Unix(0, v.to)
		w := Window{Limit: s.limit, Length: policy.Duration(v.length), Units: v.units,
			Most: v.most, From: time.Unix(0, v.from).UTC(), To: time.Unix(0, v.to).UTC()}
		b.worst[i].note(at, w, fuller)
		f := a.figure(s.limit)
		f.worst.note(at, w.Share(), larger)
		if float64(v.units) <= v.most+1e-6 || v.from <= b.broken[i] {
			continue
		}
		b.broken[i] = v.to
		if b.breaks++; len(broken) > 0 && broken[len(broken)-1].Window.Limit == s.limit {
			continue
		}
		f.broken++
		breach := Breach{Policy: a.policy.Name, Key: key, Window: w}
		for _, s := range v.starts {
			breach.Starts = append(breach.Starts, b.id(s.seq))
		}
		broken = append(broken, breach)
	}
	if b.place != nil {
		j.held += held - b.held
		b.held = held
	}
	return broken
}

func (b *bucket) begin(specs []spec) {
	b.specs, b.laws, b.running = specs, nil, map[uint64]running{}
	b.worst, b.broken = make([]twice[Window], len(specs)), make([]int64, len(specs))
	for _, s := range specs {
		b.laws = append(b.laws, s.law())
	}
}

// handedOver detects another drainer: a crashed one's last events may be lost, and if the clocks
// differ, earlier starts are not comparable.
func (b *bucket) handedOver(a *audited, e queue.Event, now time.Time) {
	before, is := a.sources[b.source], a.sources[e.From]
	if b.source != "" && b.source != e.From {
		b.lostAt = now
		if before == nil || is == nil || (before.ahead-is.ahead).Abs() > apart {
			b.begin(b.specs)
		}
	}
	if b.source != e.From {
		for _, l := range b.laws {
			if open, is := l.(*openLaw); is {
				open.known = nil // its instants are by another clock
			}
		}
	}
	b.source = e.From
}

func (a *audited) figure(limit string) *figure {
	f := a.figures[limit]
	if f == nil {
		f = &figure{}
		a.figures[limit] = f
	}
	return f
}
