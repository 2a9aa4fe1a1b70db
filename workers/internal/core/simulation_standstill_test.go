package core

import (
	"slices"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// No partition is without an owner, and no bucket that could start a job idle, for longer than the
// design requires. The world checks four times a second; a cause for a delay restarts the time.

const (
	lookEvery = 250 * time.Millisecond
	// answers bounds a few slow messages, with a slow step of a core before each.
	answers = time.Second
	// hindrance bounds the effect of a lost call, until it is read back or arrives late.
	hindrance = 3*time.Second + answers
)

// takeoverWithin bounds how long a partition is without a live owner while the server answers and
// an eligible drainer exists: the former lease expires (by the slowest clock); a tick later its
// owner is declared dead, then the partition is free, and left to its favourite for favouriteFirst;
// then it is claimed, at a tick, and opened. A failed opening is repeated after reopenAfter, and
// longer after several.
func takeoverWithin(failures int) time.Duration {
	opening := answers
	for n := range failures {
		opening += pace.Doubled(reopenAfter, n, reopenMost) + tick
	}
	return simulatedLease + simulatedLease/1000 + tick + answers + tick + favouriteFirst + tick +
		answers + opening
}

type fitness struct {
	d      *drainer
	policy string
}

type standstill struct {
	fit      map[fitness]time.Duration
	shares   map[string]*idleShare
	buckets  map[string]*idleBucket
	failures map[string]int // openings, by partition, since it was live
	apart    apart
}

type idleShare struct {
	since time.Duration
	owner string // by its record, if gone or unable to act at the last look

	read   *Record
	record record.Owner
	err    error
}

type idleBucket struct {
	since time.Duration
	told  *told
	part  *partition
	// when a job last found its target, or its policy's, down; 0: a later one did not
	down      time.Duration
	throttles int
	cool      time.Duration
	cost      int64
}

func (w *world) watchStandstill() {
	w.stands = standstill{
		fit: map[fitness]time.Duration{}, shares: map[string]*idleShare{},
		buckets: map[string]*idleBucket{}, failures: map[string]int{},
		apart: apart{map[string]*drainer{}, map[string]time.Duration{}, 0},
	}
	for _, p := range w.policies {
		for _, key := range keys {
			w.stands.buckets[bucketOf(p.Name, key)] = &idleBucket{cost: 1}
		}
	}
	var look func()
	look = func() {
		w.lookForStandstill()
		w.after(lookEvery, look)
	}
	w.after(lookEvery, look)
}

func (d *drainer) hinder() { d.hindered = d.w.now + hindrance }

func (d *drainer) able() bool {
	w := d.w
	return d.alive && max(d.frozen, d.cut, d.mute, d.hindered) <= w.now && d.jumps == d.heard &&
		!w.down && !w.headless(tableNames[TableDrainers])
}

func (w *world) lookForStandstill() {
	w.lookAtShared()
	for _, d := range w.drainers {
		used := 0
		for _, workers := range d.core.workers {
			used += workers.Busy + workers.Reserved
		}
		if d.alive && used != d.core.slots.Used {
			w.fail("slots: %d are used, and %d workers", d.core.slots.Used, used)
		}
	}
	for _, p := range w.policies {
		quiet := w.lookAtDrainers(p.Name)
		for number := range p.Partitions {
			d, part := w.lookAtShare(p.Name, number, quiet)
			w.lookApart(p, d, quiet)
			for _, key := range keys {
				// Limits on starts are judged by their starts.
				if partitionOf(key, p.Partitions) == number && len(p.Limits) == 0 {
					w.lookAtBucket(p.Name, key, d, part)
				}
			}
		}
	}
}

func (w *world) lookAtDrainers(name string) (quiet bool) {
	quiet = true
	for _, d := range w.drainers {
		f := fitness{d, name}
		switch able := d.able(); {
		case !able || d.leaving || !d.mayOwn(name):
			delete(w.stands.fit, f)
			quiet = quiet && (able || !d.alive)
		case w.stands.fit[f] == 0:
			w.stands.fit[f] = w.now
		}
	}
	return quiet
}

// mayOwn reports whether a drainer may own a policy or, of a shared limit, any of its policies.
func (d *drainer) mayOwn(name string) bool {
	limit, shared := record.Shared(name)
	return slices.ContainsFunc(d.w.policies, func(p policy.Policy) bool {
		named := p.Name == name || shared && sharesLimit(p, limit)
		return named && !d.disowned[p.Name] && d.w.set.retired[p.Name] == nil
	})
}

func (w *world) lookAtShare(name string, number int, quiet bool) (*drainer, *partition) {
	key := record.ShareKey(name, number)
	s := w.stands.shares[key]
	if s == nil {
		s = &idleShare{}
		w.stands.shares[key] = s
	}
	found := w.records[TablePartitions][key]
	if found != s.read {
		s.read, s.record, s.err = found, record.Owner{}, nil
		if found != nil && found.Exists {
			s.err = record.Decode(found.Value, &s.record)
		}
	}
	r := &s.record
	var owner *drainer
	if d := w.named(r.Owner); d != nil && d.alive && d.core.Lease.Id == r.Owner && !r.Released {
		owner = d
	}
	fit := owner != nil && w.stands.fit[fitness{owner, name}] > 0
	if owner != nil && max(owner.frozen, owner.cut) <= w.now {
		c := owner.core.shares.all[key]
		if c != nil && c.part != nil && c.part.Live() &&
			c.part.Epoch == found.Revision {
			s.since, s.owner, w.stands.failures[key] = w.now, "", 0
			if !fit {
				return nil, nil
			}
			return owner, c.part
		}
	}
	longest := w.now
	for f, since := range w.stands.fit {
		if f.policy == name {
			longest = min(longest, since)
		}
	}
	givesUp := owner != nil && (owner.leaving || !owner.mayOwn(name))
	switch {
	case s.err != nil, w.down, w.headless(name), w.headless(attemptsName),
		w.headless(tableNames[TablePartitions]),
		!r.Released && !fit && s.owner != r.Owner,
		givesUp && !quiet:
		s.since = w.now
	}
	s.since = max(s.since, longest)
	if s.owner = r.Owner; fit || r.Released {
		s.owner = ""
	}
	if stands, most := w.now-s.since, takeoverWithin(w.stands.failures[key]); stands > most {
		w.fail(
			"takeover: %s has had no live owner for %v, at most %v need pass; its record says %q",
			key, stands, most, r.Owner)
	}
	return nil, nil
}

// lookAtBucket checks that a bucket with work starts some if its owner can.
func (w *world) lookAtBucket(name string, key queue.Key, d *drainer, part *partition) {
	b := w.stands.buckets[bucketOf(name, key)]
	switch {
	case d == nil, w.headless(name), d.told[name] != b.told, part != b.part,
		!w.mayStart(d, part, key), !w.hasWork(d, part, key), b.cool > w.now:
		b.since = w.now
		b.part = part
		if d != nil {
			b.told = d.told[name]
		}
		return
	}
	if stands, most := w.now-b.since, w.startsWithin(b, key); stands > most {
		w.fail(
			"standstill: %s has started nothing for %v although it could, and at most %v need pass",
			bucketOf(name, key), stands, most)
	}
}

// mayStart reports whether a bucket can start a job: no operator and no lack of workers prevents
// it.
func (w *world) mayStart(d *drainer, part *partition, key queue.Key) bool {
	t, bucket := d.told[part.Policy], bucketOf(part.Policy, key)
	_, paused := w.set.paused[part.Policy]
	_, keyPaused := w.set.paused[bucket]
	running := d.ask(part, job.Question{Op: job.OpBucket, Key: key}).Bucket.Running
	if most := t.concurrency(key); paused || keyPaused || t.paused || t.overrides[key].Paused ||
		most > 0 && len(w.active[bucket]) >= most {
		return false
	}
	if w.set.elsewhere[part.Policy] {
		return slices.ContainsFunc(w.lenders, func(o *lendingProcess) bool {
			return o.policy == part.Policy && !o.dead &&
				running+o.keys[key] <= 3*(o.workers-o.busy-1)
		})
	}
	free := t.Workers - d.local[t.Name]
	if o := d.lends[t.Name]; o != nil {
		free -= o.busy
	}
	return running <= 3*(free-1)
}

func (w *world) hasWork(d *drainer, part *partition, key queue.Key) bool {
	s := w.streams[part.Policy]
	for _, m := range s.messages {
		f := w.fateOf(part.Policy, m)
		if f.key != key || f.at != part || f.final() || !m.Deadline.IsZero() || f.edit != nil ||
			w.wall().Before(m.NotBefore.Add(wallOff)) {
			continue
		}
		if !f.given || f.idle == part && w.now >= f.idleUntil {
			return true
		}
	}
	return false
}

// startsWithin bounds the time without a start of a bucket that could start a job: its last job's
// slots, and one interval after a takeover; under a total outflow, until all others had their
// missed turns, of weight 5 at most. A counted attempt backs off first, and a target that was down
// is probed at least once a minute. Runs without reports hold concurrency for a timeout.
func (w *world) startsWithin(b *idleBucket, key queue.Key) time.Duration {
	most := 2 * answers
	if own := b.told.own(key); own != unpaced {
		rate := own.rate
		if a := b.told.AdaptiveRate; a != nil {
			rate = min(rate, a.Min.PerSecond())
		}
		most += time.Duration(float64(b.cost+1)/rate*1e9) + time.Second/4
	}
	if total := b.told.total(); total != unpaced {
		most += time.Duration(float64(10*5*len(keys)+1) / total.rate * 1e9)
	}
	if b.down > 0 {
		most += time.Minute + time.Duration(b.told.Timeout)
	}
	if b.told.concurrency(key) > 0 {
		most += simulatedLease + 2*time.Duration(b.told.Timeout)
	}
	return most
}

func (w *world) moves(s *stint) {
	s.fate.idle = nil
	if b := w.stands.buckets[s.fate.bucket]; b != nil {
		b.since, b.cost = w.now, s.fate.cost
	}
}

// rests is called when an owner gets a run's outcome that holds its bucket, or its job.
func (w *world) rests(s *stint, o record.Outcome, ours bool) {
	f, b := s.fate, w.stands.buckets[s.fate.bucket]
	if b == nil || !ours {
		return
	}
	retry := s.d.told[f.policy].Retry
	f.idle, f.idleUntil = s.part, w.now+max(time.Duration(retry.MaxBackoff), o.Again)+answers
	switch {
	case o.Kind == record.OutcomeDone:
		b.throttles, b.cool = 0, max(b.cool, w.now+o.RetryAfter+answers)
		if s.given > b.down {
			b.down = 0
		}
	default:
		w.cools(f.bucket, s.d.told[f.policy], o)
	}
}

// cools is called when an owner gets the outcome that a target is down or requests a pause, from
// its own run or a former owner's.
func (w *world) cools(bucket string, t *told, o record.Outcome) {
	b := w.stands.buckets[bucket]
	switch {
	case b == nil:
	case o.Kind == record.OutcomeThrottled:
		wait := max(o.RetryAfter,
			pace.Doubled(time.Duration(t.Retry.Backoff), b.throttles,
				time.Duration(t.Retry.MaxCooldown)))
		b.throttles++
		b.cool = max(b.cool, w.now+wait+answers)
	case o.Kind == record.OutcomeDone:
		b.cool = max(b.cool, w.now+o.RetryAfter+answers)
	case o.Unavailable:
		for _, key := range keys {
			w.stands.buckets[bucketOf(t.Name, key)].down = w.now
		}
	}
}
