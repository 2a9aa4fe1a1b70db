package workers

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// The simulation runs whole drainers (core, valves, clocks: everything but I/O) in virtual time against a model of
// JetStream, from a seed. It checks the laws of DESIGN.md on what the world saw, not on what the drainers believe.

var (
	seeds     = flag.Int("seeds", 200, "how many seeds the simulation runs")
	firstSeed = flag.Uint64("first-seed", 1, "the first of them")
)

// sabotage breaks a law on purpose, to see that the simulation notices.
type sabotage string

const (
	noSabotage          sabotage = ""
	noFence             sabotage = "no fence"
	noTakeoverWait      sabotage = "takeover starts at once"
	oldConsumerStays    sabotage = "old consumer not deleted"
	handedOverRunsAgain sabotage = "handed-over jobs started again"
	lossyAcks           sabotage = "acknowledged before the handler ran"
	clumps              sabotage = "lateness made up at once"
	noHandoffLimit      sabotage = "a job may take any time to its worker"
	countThrottles      sabotage = "a throttle counts as an attempt"
)

func TestSimulationLaws(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+uint64(*seeds); seed++ {
		if broken := simulate(seed, noSabotage); len(broken) > 0 {
			t.Errorf("seed %d (go test ./workers -run TestSimulationLaws -seeds 1 -first-seed %d):\n%s",
				seed, seed, strings.Join(broken, "\n"))
		}
	}
}

// TestSimulationNoticesSabotage breaks laws on purpose: a simulation that passes then proves nothing.
func TestSimulationNoticesSabotage(t *testing.T) {
	for _, s := range []sabotage{
		noFence, noTakeoverWait, oldConsumerStays, handedOverRunsAgain, lossyAcks, clumps, countThrottles,
		noHandoffLimit,
	} {
		t.Run(string(s), func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= uint64(*seeds); seed++ {
				if broken := simulate(seed, s); len(broken) > 0 {
					t.Logf("seed %d: %s", seed, broken[0])
					return
				}
			}
			t.Errorf("%d seeds did not notice", *seeds)
		})
	}
}

// world is the model: true time, a JetStream, drainers, targets.
type world struct {
	rng      *rand.Rand
	sabotage sabotage
	now      time.Duration // true time
	queue    heap[*event]
	events   int

	records  [2]map[string]*record // by table
	attempts map[string]storedAttempt
	revision uint64
	down     bool // JetStream does not answer
	outages  int

	policies []policy.Policy
	set      settings
	streams  map[string]*stream
	drainers []*drainer
	names    int

	accepted map[string]*fate         // by policy:seq
	decided  map[*turn]bool           // the last checks that were made
	active   map[string]map[*run]bool // what runs, by bucket, as far as its process was not disturbed since
	broken   []string
}

// fate is what the world saw of one accepted job.
type fate struct {
	bucket     string
	seq        uint64
	starts     []time.Duration
	failures   int  // outcomes that count as attempts
	excepted   bool // from the order: retried, throttled, returned by a crash …
	handedOver bool // it ran during a planned handover, and its process lived on
	done       bool
	dead       string
}

type stream struct {
	created   time.Time
	seq       uint64
	messages  map[uint64]*queue.Arrived
	consumers map[int][]*consumer // by partition; one, unless sabotaged
	depth     map[queue.Key]int64
}

type consumer struct {
	epoch   uint64
	owner   *drainer
	part    *partition
	pending map[uint64]bool // delivered to someone
	lastAt  time.Duration   // deliveries stay in order
	lost    bool            // a delivery was lost: nothing after it is handed to the valve until the backlog is opened anew
	closed  bool
}

// drainer is one process.
type drainer struct {
	w       *world
	core    *core
	offset  time.Duration // of its clock
	born    time.Duration
	drift   float64
	alive   bool
	frozen  time.Duration // until when
	inbox   []func()      // what came while it was frozen
	leaving bool
	cut     time.Duration            // from NATS, until when
	lastAt  map[string]time.Duration // of a watched record's delivery: changes of one key stay in order
	wakeup  int                      // number of the newest wake-up; older ones are void
}

// event is something that happens at a time.
type event struct {
	at time.Duration
	n  int
	do func()
}

func (e *event) before(f *event) bool { return e.at < f.at || e.at == f.at && e.n < f.n }
func (e *event) moved(int)            {}

func (w *world) after(delay time.Duration, do func()) {
	w.events++
	w.queue.push(&event{w.now + delay, w.events, do})
}

func (w *world) fail(format string, args ...any) {
	if len(w.broken) < 5 {
		w.broken = append(w.broken, fmt.Sprintf("%v: ", w.now)+fmt.Sprintf(format, args...))
	}
}

// between draws a duration.
func (w *world) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.rng.Int64N(int64(high-low)+1))
}

func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

// latency is that of a call or a delivery: mostly short, sometimes long.
func (w *world) latency() time.Duration {
	switch {
	case w.chance(0.02):
		return w.between(5*time.Millisecond, 150*time.Millisecond)
	default:
		return w.between(50*time.Microsecond, 2*time.Millisecond)
	}
}

// wall is JetStream's clock.
func (w *world) wall() time.Time {
	return time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Add(w.now)
}

const simulatedLease = 3 * time.Second

// simulate runs one seed and returns the laws that were broken.
func simulate(seed uint64, s sabotage) []string { return simulateWorld(seed, s).broken }

func simulateWorld(seed uint64, s sabotage) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 20)), sabotage: s, attempts: map[string]storedAttempt{},
		streams: map[string]*stream{}, accepted: map[string]*fate{}, decided: map[*turn]bool{}, active: map[string]map[*run]bool{},
		set: newSettings(),
	}
	w.records = [2]map[string]*record{{}, {}}
	w.pickPolicies()
	for range 1 + w.rng.IntN(4) {
		w.join()
	}
	const busy = 40 * time.Second
	w.publishers(busy)
	w.disturbances(busy)
	w.operators(busy)
	w.after(busy+time.Second, func() { // whatever happened, the end is calm
		for _, d := range w.drainers {
			d.leaving = false
		}
		w.join()
	})
	for len(w.queue) > 0 && w.now < 10*time.Minute && len(w.broken) == 0 {
		e := w.queue.remove(0)
		w.now = e.at
		e.do()
		if w.now > busy+5*time.Second && w.settled() {
			break
		}
	}
	w.judge()
	return w
}

func (w *world) pickPolicies() {
	for i := range 1 + w.rng.IntN(2) {
		p := policy.Policy{
			Name: fmt.Sprintf("p%d", i), Algorithm: policy.LeakingBucket, Outflow: someRate(w), Capacity: 60,
			Burst: 1, Concurrency: w.rng.IntN(3) * 4, Workers: 16, Partitions: 1 + w.rng.IntN(4),
			Timeout: policy.Duration(20 * time.Second),
			Retry:   policy.Retry{MaxAttempts: 3, Backoff: policy.Duration(200 * time.Millisecond), MaxBackoff: policy.Duration(2 * time.Second)},
		}
		if w.chance(0.3) {
			p.Burst = 1 + w.rng.Int64N(5)
		}
		w.vary(&p)
		p = p.WithDefaults()
		if problems := p.Validate(); len(problems) > 0 {
			panic(fmt.Sprint(problems))
		}
		w.policies = append(w.policies, p)
		w.streams[p.Name] = &stream{
			created: w.wall(), messages: map[uint64]*queue.Arrived{}, consumers: map[int][]*consumer{}, depth: map[queue.Key]int64{},
		}
	}
}

// publishers send bursts to a few buckets.
func (w *world) publishers(until time.Duration) {
	for range 2 + w.rng.IntN(3) {
		p := w.policies[w.rng.IntN(len(w.policies))]
		key := queue.Key(fmt.Sprintf("k%d", w.rng.IntN(4)))
		partition := queue.Partition("jobs."+string(key), p.Partitions)
		for at := w.between(0, 2*time.Second); at < until; at += w.between(100*time.Millisecond, 8*time.Second) {
			w.after(at, func() {
				for range 1 + w.rng.IntN(12) {
					w.publish(p, key, partition)
				}
			})
		}
	}
}

func (w *world) publish(p policy.Policy, key queue.Key, partition int) {
	s := w.streams[p.Name]
	if w.down || s.depth[key] >= p.Capacity {
		return // refused
	}
	s.seq++
	a := &queue.Arrived{Seq: s.seq, Key: key, Partition: partition, Stored: w.wall(), Size: 4, Cost: 1, Body: []byte("body")}
	f := &fate{bucket: p.Name + "/" + string(key), seq: s.seq}
	if w.chance(0.05) {
		a.Cost = 1 + w.rng.Int64N(3)
	}
	if w.chance(0.02) {
		a.Deadline = w.wall().Add(w.between(0, 5*time.Second))
		f.excepted = true
	}
	if w.chance(0.02) {
		a.NotBefore = w.wall().Add(w.between(0, 5*time.Second))
		f.excepted = true
	}
	s.messages[s.seq] = a
	s.depth[key]++
	w.accepted[fmt.Sprintf("%s:%d", p.Name, s.seq)] = f
	if consumers := s.consumers[partition]; len(consumers) > 0 {
		// Of several consumers, which only sabotage leaves, any may get it.
		w.deliver(p.Name, consumers[w.rng.IntN(len(consumers))], []*queue.Arrived{a})
	}
}

// deliver sends messages to a consumer's owner, in order. One that is lost makes a gap, which the backlog notices.
func (w *world) deliver(policy string, c *consumer, messages []*queue.Arrived) {
	for _, a := range messages {
		c.pending[a.Seq] = true
	}
	if w.down || c.owner.cut > w.now || w.chance(0.003) {
		if !c.lost {
			c.lost = true
			w.to(c.owner, w.between(10*time.Millisecond, 6*time.Second), func() { c.owner.core.broke(c.part, c.epoch, c.owner.clock()) })
		}
		return
	}
	at := max(c.lastAt, w.now+w.latency())
	c.lastAt = at
	w.to(c.owner, at-w.now, func() {
		if c.lost || c.closed {
			return
		}
		batch := make([]queue.Arrived, len(messages))
		for i, a := range messages {
			batch[i] = *a
		}
		c.owner.core.arrived(c.part, c.epoch, batch, c.owner.clock(), w.wall())
	})
}

// to gives a drainer an event after a delay; a frozen one gets it when it thaws.
func (w *world) to(d *drainer, delay time.Duration, do func()) {
	w.after(delay, func() { d.receive(do) })
}

func (d *drainer) receive(do func()) {
	switch {
	case !d.alive:
	case d.frozen > d.w.now:
		if d.inbox = append(d.inbox, do); len(d.inbox) == 1 {
			d.w.after(d.frozen-d.w.now, d.thaw)
		}
	default:
		do()
		d.step()
	}
}

// thaw hands over what came meanwhile, in the order in which it came.
func (d *drainer) thaw() {
	if d.alive && d.frozen > d.w.now {
		d.w.after(d.frozen-d.w.now, d.thaw)
		return
	}
	inbox := d.inbox
	d.inbox = nil
	for _, do := range inbox {
		d.receive(do)
	}
}

// clock reads the drainer's own monotonic clock.
func (d *drainer) clock() instant {
	return instant(float64(d.w.now)*(1+d.drift)) + instant(d.offset)
}

// join starts a process.
func (w *world) join() {
	w.names++
	d := &drainer{
		w: w, alive: true, offset: w.between(time.Second, time.Hour), drift: (w.rng.Float64() - 0.5) * 2e-4,
		lastAt: map[string]time.Duration{},
	}
	d.core = newCore(coreOptions{name: fmt.Sprintf("d%d", w.names), lease: simulatedLease, random: w.rng.Float64})
	w.drainers = append(w.drainers, d)
	d.born = w.now
	w.to(d, w.latency(), func() {
		now := d.clock()
		d.core.connection(true, now)
		d.hearSettings()
		for t := range w.records {
			for _, key := range slices.Sorted(maps.Keys(w.records[t])) {
				d.core.watched(table(t), key, *w.records[t][key], now)
			}
		}
		d.core.synced = true
	})
}

// step lets a drainer act, carries out what it wants, and sets its next wake-up.
func (d *drainer) step() {
	w := d.w
	now := d.clock()
	if w.sabotage == noFence && d.core.lease.held {
		d.core.lease.fence = never
	}
	if w.sabotage == clumps {
		for _, v := range d.core.valves {
			for _, p := range v.parts {
				for _, b := range p.buckets {
					b.clock.tat = 0
				}
			}
		}
	}
	d.core.advance(now)
	d.perform()
	if d.leaving && d.core.left() {
		w.revision++
		w.write(tableDrainers, d.core.lease.id, record{revision: w.revision})
		d.alive = false
		return
	}
	d.wakeup++
	n := d.wakeup
	delay := max(0, d.core.wake(now).since(now))
	delay += w.between(0, time.Millisecond) // timers are late
	if w.chance(0.002) {
		delay += w.between(0, 40*time.Millisecond) // and machines stall
	}
	w.after(delay, func() {
		if n == d.wakeup {
			d.receive(func() {})
		}
	})
}

func (d *drainer) perform() {
	w := d.w
	out := &d.core.out
	o := *out
	*out = actions{}
	for _, p := range o.closes {
		d.closeConsumers(p)
	}
	for _, x := range o.opens {
		d.open(x)
	}
	for _, r := range o.starts {
		d.start(&r)
	}
	for _, l := range o.lent {
		d.start(&l.run)
	}
	for _, name := range o.offers {
		d.propose(name)
	}
	for _, a := range o.acks {
		d.ack(a)
	}
	for _, p := range o.puts {
		d.put(p)
	}
	for _, r := range o.reads {
		d.read(r.put)
	}
	for _, p := range o.deletes {
		w.after(w.latency(), func() {
			if r := w.records[p.table][p.key]; r != nil && (p.revision == 0 || p.revision == r.revision) && !w.down {
				w.revision++
				w.write(p.table, p.key, record{revision: w.revision})
			}
		})
	}
	for _, s := range o.saves {
		d.call(func() {
			w.attempts[attemptKey(s.bucket.part, s.Seq)] = storedAttempt{s.record, w.wall()}
		}, func() { d.core.valves[s.bucket.part.policy].saved(s.job, d.clock()) })
	}
	for _, u := range o.burials {
		d.call(func() {
			f := w.accepted[fmt.Sprintf("%s:%d", u.bucket.part.policy, u.Seq)]
			f.dead = string(u.reason)
			if u.reason == ReasonAttempts && f.failures < w.policyOf(u.bucket.part.policy).Retry.MaxAttempts {
				w.fail("law 6: %s:%d is dead after %d attempts that count", u.bucket.part.policy, u.Seq, f.failures)
			}
		}, func() { d.core.valves[u.bucket.part.policy].buried(u.job) })
	}
	for _, f := range o.forgets {
		w.after(w.latency(), func() { delete(w.attempts, attemptKey(f.part, f.seq)) })
	}
	for _, r := range o.reports {
		d.tell(r)
	}
	if o.vanished > 0 {
		w.fail("a job vanished")
	}
}

func (w *world) policyOf(name string) policy.Policy {
	i := slices.IndexFunc(w.policies, func(p policy.Policy) bool { return p.Name == name })
	return w.policies[i]
}

// call does something on the server and then tells the drainer, and repeats it until the answer came.
func (d *drainer) call(do, then func()) {
	w := d.w
	w.after(w.latency(), func() {
		applied := !w.down && d.cut <= w.now && !w.chance(0.01)
		if applied {
			do()
		}
		if applied && !w.chance(0.01) {
			w.to(d, w.latency(), then)
		} else if d.alive {
			w.after(time.Second, func() { d.call(do, then) })
		}
	})
}

// start plays a worker: the last check, then the handler.
func (d *drainer) start(r *run) {
	w := d.w
	delay := w.between(0, 200*time.Microsecond)
	if w.chance(0.005) {
		delay = w.between(0, 10*time.Millisecond)
	}
	if w.sabotage == lossyAcks && w.chance(0.1) {
		d.ackSeq(r.part, r.Seq)
	}
	w.after(delay, func() { d.decide(r) })
}

func (d *drainer) decide(r *run) {
	w := d.w
	switch {
	case !d.alive:
		return
	case d.frozen > w.now:
		w.after(d.frozen-w.now, func() { d.decide(r) })
		return
	case r.previous != nil && !w.decided[r.previous]:
		w.after(50*time.Microsecond, func() { d.decide(r) })
		return
	}
	now := d.clock()
	w.decided[r.turn] = true
	if !r.decide(func() bool {
		return now < d.core.fence() && (r.latest == 0 || now <= r.latest || w.sabotage == noHandoffLimit)
	}) {
		w.to(d, w.between(0, 100*time.Microsecond), func() {
			d.core.finished(*r, outcome{Seq: r.Seq, Kind: outcomeReturned}, d.clock())
		})
		return
	}
	d.ran(r)
}

// ran records a start and draws how it ends.
func (d *drainer) ran(r *run) {
	w := d.w
	p := w.policyOf(r.part.policy)
	f := w.accepted[fmt.Sprintf("%s:%d", p.Name, r.Seq)]
	f.starts = append(f.starts, w.now)
	if w.active[f.bucket] == nil {
		w.active[f.bucket] = map[*run]bool{}
	}
	w.active[f.bucket][r] = true
	if n := len(w.active[f.bucket]); p.Concurrency > 0 && n > p.Concurrency {
		w.fail("concurrency: %d jobs of %s run, at most %d may", n, f.bucket, p.Concurrency)
	}
	w.startedWhilePaused(d, f.bucket)
	if f.handedOver {
		w.fail("law 3: %s:%d started again although its handover was planned and its process lives", p.Name, r.Seq)
	}
	if f.done || f.dead != "" {
		f.excepted = true // after a crash a finished job may run again
	}
	took := w.between(time.Millisecond, 200*time.Millisecond)
	if w.chance(0.01) {
		took = w.between(time.Second, 15*time.Second)
	}
	o := outcome{Seq: r.Seq, Kind: outcomeDone}
	switch x := w.rng.Float64(); {
	case x < 0.04:
		o.Kind, o.Error = outcomeFailed, "500"
	case x < 0.05:
		o.Kind = outcomeThrottled
		if w.chance(0.5) {
			o.RetryAfter = w.between(0, 3*time.Second)
		}
	case x < 0.055:
		o.Kind, o.Error = outcomePermanent, "404"
	}
	if r.remote {
		took, o = d.ranElsewhere(r, took, o)
	}
	w.after(took, func() { d.end(r, f, o) })
}

func (d *drainer) end(r *run, f *fate, o outcome) {
	w := d.w
	if d.alive && d.frozen > w.now {
		w.after(d.frozen-w.now, func() { d.end(r, f, o) })
		return
	}
	f.handedOver = false
	delete(w.active[f.bucket], r)
	if !d.alive {
		f.excepted = true // it runs again elsewhere
		return
	}
	switch o.Kind {
	case outcomeDone:
		f.done = f.done || r.part.state <= partitionSurrendered
	case outcomeFailed:
		f.excepted = true
		f.failures++
	case outcomeUncounted:
		f.excepted = true
	case outcomeThrottled:
		f.excepted = true
		if w.sabotage == countThrottles {
			o.Kind = outcomeFailed
		}
	}
	if r.part.state == partitionLost {
		f.excepted = true
	}
	d.receive(func() { d.core.finished(*r, o, d.clock()) })
}

func (d *drainer) ack(a recordOf) { d.ackSeq(a.part, a.seq) }

// ackSeq acknowledges until it is confirmed or the backlog is closed.
func (d *drainer) ackSeq(p *partition, seq uint64) {
	w := d.w
	s := w.streams[p.policy]
	for _, c := range s.consumers[p.number] {
		if c.owner != d || c.part != p || c.epoch != p.epoch {
			continue
		}
		var try func()
		try = func() {
			if c.closed || !d.alive {
				return
			}
			if w.down || d.cut > w.now || !c.pending[seq] || w.chance(0.005) {
				w.after(2*time.Second, try)
				return
			}
			if m := s.messages[seq]; m != nil {
				delete(s.messages, seq)
				s.depth[m.Key]--
			}
			if w.chance(0.005) {
				w.after(2*time.Second, try) // the confirmation was lost
				return
			}
			w.to(d, w.latency(), func() { d.core.confirmed(p, []uint64{seq}, d.clock()) })
		}
		w.after(w.latency(), try)
	}
}

// write changes a record and tells everyone who watches.
func (w *world) write(t table, key string, r record) {
	r.stored = w.wall()
	w.records[t][key] = &r
	if t == tablePartitions && strings.HasSuffix(key, checkpointSuffix) {
		return
	}
	for _, d := range w.drainers {
		at := max(d.lastAt[key], w.now+w.latency())
		if d.cut > w.now || w.down {
			at = max(at, d.cut+w.latency()) // a watch reads everything again after a break
		}
		d.lastAt[key] = at
		w.to(d, at-w.now, func() { d.core.watched(t, key, r, d.clock()) })
	}
}

// put plays a compare-and-set whose answer, or which itself, may be lost or late.
func (d *drainer) put(p put) {
	w := d.w
	const patience = time.Second
	apply := func() (putResult, uint64) {
		current := w.records[p.table][p.key]
		switch {
		case w.down || d.cut > w.now:
			return putUnknown, 0
		case current == nil && p.revision != 0,
			current != nil && current.exists && current.revision != p.revision,
			current != nil && !current.exists && p.revision != 0 && p.revision != current.revision:
			return putConflict, 0
		}
		if p.why == whyTombstone {
			w.unplanned() // so many renewals of its lease were lost that it was declared dead
		}
		w.revision++
		w.write(p.table, p.key, record{exists: true, value: p.value, revision: w.revision})
		return putOK, w.revision
	}
	answer := func(delay time.Duration, result putResult, revision uint64) {
		w.to(d, delay, func() { d.core.put(p, result, revision, d.clock()) })
	}
	switch x := w.rng.Float64(); {
	case x < 0.01: // never arrives
		answer(patience, putUnknown, 0)
	case x < 0.02: // applied, the answer is lost
		w.after(w.latency(), func() { apply() })
		answer(patience, putUnknown, 0)
	case x < 0.03: // applied late
		w.after(w.between(0, 3*time.Second), func() { apply() })
		answer(patience, putUnknown, 0)
	default:
		w.after(w.latency(), func() {
			result, revision := apply()
			if result == putUnknown {
				answer(patience, result, 0)
			} else {
				answer(w.latency(), result, revision)
			}
		})
	}
}

func (d *drainer) read(p put) {
	w := d.w
	w.after(w.latency(), func() {
		if w.down || d.cut > w.now || w.chance(0.05) {
			if d.alive {
				w.after(250*time.Millisecond, func() { d.read(p) })
			}
			return
		}
		var found record
		if r := w.records[p.table][p.key]; r != nil {
			found = *r
		}
		w.to(d, w.latency(), func() { d.core.read(p, found, d.clock()) })
	})
}

// open plays the opening of a backlog: what the predecessor left is read, other consumers are deleted, everything that is
// stored is delivered.
func (d *drainer) open(o opening) {
	w := d.w
	epoch := o.part.epoch
	policy, number := o.part.policy, o.part.number
	for _, c := range w.streams[policy].consumers[number] {
		if c.owner == d && c.part == o.part {
			c.closed = true
		}
	}
	fails := func() { w.to(d, w.latency(), func() { d.core.unopened(o, epoch, d.clock()) }) }
	w.after(w.between(time.Millisecond, 60*time.Millisecond), func() {
		if w.down || d.cut > w.now || w.chance(0.02) {
			fails()
			return
		}
		found := opened{attempts: map[uint64]storedAttempt{}}
		if o.inherit {
			w.readLegacy(o.part, epoch, &found)
		}
		s := w.streams[policy]
		if slices.ContainsFunc(s.consumers[number], func(c *consumer) bool { return c.epoch > epoch }) {
			fails()
			return
		}
		held := map[uint64]bool{} // by a consumer that sabotage leaves: until its acknowledgement wait ends
		c := &consumer{epoch: epoch, owner: d, part: o.part, pending: map[uint64]bool{}}
		if w.sabotage == oldConsumerStays {
			for _, old := range s.consumers[number] {
				maps.Copy(held, old.pending)
			}
			s.consumers[number] = append(s.consumers[number], c)
		} else {
			for _, old := range s.consumers[number] {
				old.closed = true
				w.to(old.owner, w.latency(), func() { old.owner.core.broke(old.part, old.epoch, old.owner.clock()) })
			}
			s.consumers[number] = []*consumer{c}
		}
		var stored []*queue.Arrived
		for _, seq := range slices.Sorted(maps.Keys(s.messages)) {
			if m := s.messages[seq]; m.Partition == number && !held[seq] {
				stored = append(stored, m)
			}
		}
		found.stored, found.created = uint64(len(stored)), s.created
		c.lastAt = w.now + w.latency()
		w.to(d, c.lastAt-w.now, func() {
			share := d.core.shares[shareKey(policy, number)]
			if w.sabotage == handedOverRunsAgain && share != nil {
				share.before.record.Running = nil
			}
			d.core.opened(o, epoch, found, d.clock())
			if w.sabotage == noTakeoverWait {
				o.part.crashedAt = 0
				for _, b := range o.part.buckets {
					b.clock = clock{}
				}
			}
		})
		for batch := range slices.Chunk(stored, 16) {
			w.deliver(policy, c, batch)
		}
	})
}

func (w *world) readLegacy(p *partition, epoch uint64, found *opened) {
	if r := w.records[tablePartitions][shareKey(p.policy, p.number)]; r != nil && r.revision == epoch {
		found.claimed = r.stored
	}
	if r := w.records[tablePartitions][checkpointKey(p.policy, p.number)]; r != nil {
		if err := decode(r.value, &found.checkpoint); err != nil {
			w.fail("checkpoint: %v", err)
		}
		found.noted, found.revision = r.stored, r.revision
	}
	prefix := shareKey(p.policy, p.number) + "."
	for key, a := range w.attempts {
		var seq uint64
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			if _, err := fmt.Sscan(rest, &seq); err != nil {
				panic(err)
			}
			found.attempts[seq] = a
		}
	}
}

func (d *drainer) closeConsumers(p *partition) {
	w := d.w
	for _, c := range w.streams[p.policy].consumers[p.number] {
		if c.owner == d && c.part == p {
			c.closed = true
		}
	}
	if p.state == partitionSurrendered {
		for _, j := range p.jobs {
			if j.stage == stageRunning && j.holder == "" {
				// It may come back without having started; only one whose handler runs must not start again.
				f := w.accepted[fmt.Sprintf("%s:%d", p.policy, j.Seq)]
				f.handedOver = j.bucket.handoffs.Load() == 0 && !f.done
			}
		}
	}
}

// tell reports an outcome to whoever owns the partition now.
func (d *drainer) tell(r report) {
	w := d.w
	w.after(w.latency(), func() {
		heard := false
		if !w.down && d.cut <= w.now {
			for _, other := range w.drainers {
				if other.alive && other.frozen <= w.now && other.cut <= w.now &&
					other.core.reported(r.policy, r.partition, r.outcome, other.clock()) {
					heard = true
					other.step()
					break
				}
			}
		}
		if heard && !w.chance(0.02) {
			w.to(d, w.latency(), func() { d.core.delivered(r) })
		} else if d.alive {
			w.after(250*time.Millisecond, func() { d.tell(r) })
		}
	})
}

// unplanned is called when a process crashes or is declared dead: jobs that were handed over may run again. While all
// processes live, and in time for their leases, neither an outage nor a lost connection may cause that.
func (w *world) unplanned() {
	for _, f := range w.accepted {
		f.handedOver = false
	}
	clear(w.active)
}

// disturbances make drainers join, leave, crash, freeze and lose their connection, and JetStream restart.
func (w *world) disturbances(until time.Duration) {
	for at := w.between(time.Second, 6*time.Second); at < until; at += w.between(500*time.Millisecond, 8*time.Second) {
		w.after(at, w.disturb)
	}
}

func (w *world) disturb() {
	var alive []*drainer
	for _, d := range w.drainers {
		if d.alive {
			alive = append(alive, d)
		}
	}
	if len(alive) == 0 {
		w.join()
		return
	}
	d := alive[w.rng.IntN(len(alive))]
	switch w.rng.IntN(6) {
	case 0:
		if len(alive) < 5 {
			w.join()
		}
	case 1:
		w.unplanned()
		d.alive = false
		if w.chance(0.7) {
			w.after(w.between(0, 5*time.Second), w.join)
		}
	case 2:
		d.frozen = max(d.frozen, w.now+w.between(100*time.Millisecond, 12*time.Second))
	case 3:
		d.receive(func() {
			d.leaving = true
			d.core.leave(d.clock())
		})
		w.after(w.between(0, 3*time.Second), w.join)
	case 4:
		d.disconnect(w.between(100*time.Millisecond, 8*time.Second))
	case 5:
		if w.chance(0.5) {
			w.outage(w.between(200*time.Millisecond, 6*time.Second))
		}
	}
}

func (d *drainer) disconnect(length time.Duration) {
	w := d.w
	d.cut = max(d.cut, w.now+length)
	w.to(d, 0, func() { d.core.connection(false, d.clock()) })
	w.to(d, d.cut-w.now, func() {
		if d.cut <= w.now {
			d.core.connection(true, d.clock())
		}
	})
}

// outage restarts JetStream: consumers in memory are gone afterwards.
func (w *world) outage(length time.Duration) {
	w.down = true
	w.outages++
	n := w.outages
	w.after(length, func() {
		if n != w.outages {
			return
		}
		w.down = false
		for _, s := range w.streams {
			for _, consumers := range s.consumers {
				for _, c := range consumers {
					c.closed = true
				}
			}
			clear(s.consumers)
		}
	})
	for _, d := range w.drainers {
		if d.alive {
			d.disconnect(length + w.between(0, 500*time.Millisecond))
		}
	}
}

func (w *world) settled() bool {
	for _, s := range w.streams {
		if len(s.messages) > 0 {
			return false
		}
	}
	return true
}

// judge checks the laws on what the world saw.
func (w *world) judge() {
	buckets := map[string][]*fate{}
	for _, id := range slices.Sorted(maps.Keys(w.accepted)) {
		f := w.accepted[id]
		buckets[f.bucket] = append(buckets[f.bucket], f)
		if !f.done && f.dead == "" && len(w.broken) == 0 {
			w.fail("law 3: %s has no outcome; starts %v", id, f.starts)
		}
	}
	if !w.settled() && len(w.broken) == 0 {
		w.fail("stuck: jobs are left in a stream")
	}
	all := map[string][]time.Duration{} // starts by policy
	for name, fates := range buckets {
		p := w.policyOf(name[:strings.IndexByte(name, '/')])
		var starts []time.Duration
		slices.SortFunc(fates, func(a, b *fate) int { return cmp.Compare(a.seq, b.seq) })
		var last *fate
		for _, f := range fates {
			starts = append(starts, f.starts...)
			if f.excepted || len(f.starts) != 1 {
				continue
			}
			if last != nil && f.starts[0] < last.starts[0] {
				w.fail("law 4: %s: job %d started at %v, before job %d at %v", name, f.seq, f.starts[0], last.seq, last.starts[0])
			}
			last = f
		}
		slices.Sort(starts)
		all[p.Name] = append(all[p.Name], starts...)
		if most := w.set.most[name]; most > 0 {
			if why := exceeds(starts, most, p.Burst); why != "" {
				w.fail("law 2: %s at %v/s burst %d: %s", name, most, p.Burst, why)
			}
		}
	}
	for name, starts := range all {
		slices.Sort(starts)
		if most := w.set.most[name]; most > 0 {
			if why := exceeds(starts, most, 1); why != "" {
				w.fail("law 2: %s in total at %v/s: %s", name, most, why)
			}
		}
	}
}

// exceeds checks law 2: in any window of length T ≥ 1 s at most rate·(1.002·T + 2 ms) + burst starts.
func exceeds(starts []time.Duration, rate float64, burst int64) string {
	for i := range starts {
		for j := i; j < len(starts); j++ {
			window := max(time.Second, starts[j]-starts[i])
			if most := rate*(1.002*window.Seconds()+0.002) + float64(burst); float64(j-i+1) > most+1e-9 {
				return fmt.Sprintf("%d starts within %v, %v to %v", j-i+1, window, starts[i], starts[j])
			}
		}
	}
	return ""
}
