package core

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// account is the world's record of a job's past, which drainers must have, too, if they witnessed
// it or it was recorded.
type account struct {
	failed    span // attempts that count
	tries     int  // failures allowed; 0: as in its policy
	unsaved   int  // of failed.low, without a record yet
	astray    int  // failures reported to another process than the owner
	crashed   span
	under     map[*drainer]bool
	hopeless  bool
	rests     time.Duration // it backs off, until when at least
	snoozed   bool          // it snoozes, without a record yet
	muddled   bool
	at        *partition
	idle      *partition    // whose owner got its last run's outcome
	idleUntil time.Duration // the latest end of its backoff
}

func (a *account) mayFail(most int) int { return min(cmp.Or(a.tries, most), most) }

type span struct{ low, high int }

func (s span) has(n int) bool { return s.low <= n && n <= s.high }

const (
	// roundOff is the error of a fast clock.
	roundOff = 2 * time.Millisecond
	// wallOff is the largest error of a drainer's estimate of JetStream's clock.
	wallOff = 300 * time.Millisecond
	// surelyNoted is when a checkpoint of the runs must be stored, in spite of losses.
	surelyNoted = 2 * simulatedLease
)

func (w *world) urge(f *fate) {
	if f.priority > 0 || w.has(prioritySteps) {
		w.urgent[f.bucket] = append(w.urgent[f.bucket], f)
	}
}

func (f *fate) precedes(g *fate, step time.Duration) bool {
	if step == 0 || f.priority == g.priority {
		return f.priority > g.priority
	}
	return f.message.Stored.Add(-time.Duration(f.priority) * step).
		Before(g.message.Stored.Add(-time.Duration(g.priority) * step))
}

func (w *world) give(s *stint) {
	f := s.fate
	id, wall := job.ID(f.policy, f.seq), w.wall()
	if due := f.message.NotBefore; !due.IsZero() && wall.Before(due.Add(-wallOff)) &&
		(f.edit == nil || !f.edit.Run) {
		w.fail("not before: %s starts %v too early", id, due.Sub(wall))
	}
	if _, ended := f.ended(wall); ended {
		w.fail("deadline: %s starts too late, after %v", id, f.deadlines())
	}
	w.keepsEdit(s)
	if w.now+roundOff < f.rests {
		w.fail("backoff: %s starts although it backs off until %v at least", id, f.rests)
	}
	if until := w.cool[f.bucket]; w.now+roundOff < until {
		w.fail("cool-down: %s starts although %s cools down until %v", id, f.bucket, until)
	}
	w.urgent[f.bucket] = slices.DeleteFunc(w.urgent[f.bucket], func(g *fate) bool {
		return g.given || g.final()
	})
	for _, g := range w.urgent[f.bucket] {
		if g.precedes(f, time.Duration(s.d.told[f.policy].PriorityStep)) && g.at == s.part &&
			!g.excepted && f.edit == nil {
			w.fail("priority: %s starts before %s", id, job.ID(g.policy, g.seq))
		}
	}
	f.under[s.d] = true
	w.moves(s)
}

func (w *world) tells(s *stint) {
	f := s.fate
	if f.muddled {
		f.failed.low, f.crashed.low = 0, 0
	}
	failed, most := s.Attempt-1, f.mayFail(w.set.tries[f.policy].high)
	switch id := job.ID(f.policy, f.seq); {
	case !f.failed.has(failed):
		w.fail("attempts: %s is told of %d that failed, and had %v", id, failed, f.failed)
	case failed >= most:
		w.fail("attempts: %s goes on after %d, of at most %d", id, failed, most)
	case w.has(damages):
	case !f.crashed.has(s.Crashes):
		w.fail("crashes: %s counts %d, and had %v", id, s.Crashes, f.crashed)
	case f.crashed.low >= 3:
		w.fail("crashes: %s starts after %d", id, f.crashed.low)
	}
	f.failed, f.unsaved, f.crashed = span{failed, failed}, 0, span{s.Crashes, s.Crashes}
	f.under = map[*drainer]bool{s.d: true}
}

// hears follows a run's outcome at a core. No attempt counts while a breaker is open.
func (w *world) hears(s *stint, o record.Outcome, breaks bool) {
	f, d := s.fate, s.d
	ours := s.part.Owned() && (d.lost == 0 || d.lost < s.slot.at)
	w.rests(s, o, ours)
	if o.Kind == record.OutcomeDone && ours {
		w.cool[f.bucket] = max(w.cool[f.bucket], w.now+o.RetryAfter)
	}
	switch {
	case s.part.Lost():
	case o.Again > 0 && ours:
		f.snoozed, f.rests = true, w.now+o.Again
	case o.Kind == record.OutcomePermanent:
		f.hopeless = true
	case o.Kind == record.OutcomeThrottled && ours:
		wait := o.RetryAfter
		if wait == 0 {
			wait = time.Duration(d.told[f.policy].Retry.Backoff)
		}
		w.cool[f.bucket] = max(w.cool[f.bucket], w.now+wait)
	case o.Kind != record.OutcomeFailed || o.Unavailable && breaks:
	case !ours:
		f.failed.high++
		f.astray++
	default:
		f.failed.low++
		f.failed.high++
		f.unsaved++
		retry := d.told[f.policy].Retry
		f.rests = w.now +
			pace.Doubled(time.Duration(retry.Backoff), f.failed.low-1,
				time.Duration(retry.MaxBackoff))/2
	}
}

func (w *world) asksToRecord(d *drainer, s valve.Save) {
	f := w.fateNamed(s.Ref)
	w.settles(d, s.Ref)
	if r := s.Record; d.consumes(s.Part) && !f.muddled &&
		(!f.failed.has(r.Attempts) || !w.has(damages) && !f.crashed.has(r.Crashes)) {
		w.fail("records: %s has %d attempts and %d crashes, and had %v and %v",
			job.ID(f.policy, f.seq), r.Attempts, r.Crashes, f.failed, f.crashed)
	}
}

// settles is called when an owner requests a record of an outcome, also of another process's run.
// Until then its checkpoints list the job, and a successor cannot detect the end of the run.
func (w *world) settles(d *drainer, r handle.Ref) {
	w.fateNamed(r).under[d] = true
}

// isTold is called when an owner gets the outcome of another process's run, which is reported once.
// Until the job arrives, the owner's records list it as its own.
func (w *world) isTold(p *partition, d *drainer, f *fate) {
	h := p.HandoverBut(d.clock())
	if slices.Contains(h.Running, record.Run{Seq: f.seq, Holder: d.core.Lease.Id}) {
		f.under[d] = true
	}
}

// noteAttempt is called when an attempt record is stored. A former owner's late one may be read by
// the next owner, or by the successor when it writes: it may count afterwards.
func (w *world) noteAttempt(d *drainer, s valve.Save) {
	f := w.fateNamed(s.Ref)
	if d.consumes(s.Part) {
		f.unsaved = max(0, f.failed.low-s.Record.Attempts)
		f.snoozed = false
	} else {
		f.failed.high, f.crashed.high = max(f.failed.high, s.Record.Attempts), max(f.crashed.high,
			s.Record.Crashes)
	}
	f.muddled = false
	if m := w.streams[f.policy].messages[f.seq]; m != nil {
		if g := w.fateOf(f.policy, m); g != f {
			g.muddled = true
		}
	}
}

func (w *world) letter(d *drainer, u valve.Burial, asked time.Duration) {
	f := w.fateNamed(u.Ref)
	f.dead = string(u.Reason)
	d.says("buries %s: %s", job.ID(f.policy, f.seq), u.Reason)
	// A former owner's acknowledgement is lost, and its successor may run the job.
	f.forgiven = f.forgiven || d.lost >= asked || !d.consumes(u.Part)
	id := job.ID(f.policy, f.seq)
	ended, _ := f.ended(w.wall().Add(asked - w.now))
	switch least := f.mayFail(w.set.tries[f.policy].low); {
	case d.lost >= asked:
	case u.Reason == queue.ReasonAttempts && f.failed.high+f.astray < least:
		w.fail("law 6: %s is dead after %d attempts that count, of %d", id, f.failed.high, least)
	case u.Reason == queue.ReasonAttempts && !f.muddled && f.astray == 0 &&
		!f.failed.has(u.Attempts):
		w.fail("letters: %s is told of %d attempts, and had %v", id, u.Attempts, f.failed)
	case u.Reason == queue.ReasonPermanent && !f.hopeless,
		u.Reason == queue.ReasonCrashed && f.crashed.high < 3,
		u.Reason == queue.ReasonDeadline && !ended,
		u.Reason == queue.ReasonMalformed:
		w.fail("letters: %s is dead for reason %q, after %v attempts and %v crashes", id, u.Reason,
			f.failed, f.crashed)
	}
}

func (w *world) forgets(d *drainer) {
	for s := range w.stints() {
		if s.d == d && !d.alive && s.part.Owned() && w.noted(s) {
			s.fate.crashed.low++
		}
	}
	for _, f := range w.accepted {
		if f.unsaved > 0 || f.snoozed {
			f.failed.low, f.unsaved, f.rests = f.failed.low-f.unsaved, 0, 0
			f.snoozed = false
		}
		before := len(f.under)
		maps.DeleteFunc(f.under, func(x *drainer, _ bool) bool { return x == d || !x.alive })
		if len(f.under) < before || f.handed {
			f.crashed.high++
		}
	}
	clear(w.cool)
}

// leavesOut is called when a partition is handed over. A bucket without room in the record loses
// its cool-down, and counts as having started a job (DESIGN.md, checkpoints).
func (w *world) leavesOut(share string, value []byte) {
	var r record.Owner
	if err := record.Decode(value, &r); err != nil {
		panic(err)
	}
	for _, p := range w.policies {
		for _, key := range keys {
			if r.Partial && share == record.ShareKey(p.Name, partitionOf(key, p.Partitions)) &&
				!slices.ContainsFunc(r.Clocks, func(c record.Clock) bool { return c.Key == key }) {
				delete(w.cool, bucketOf(p.Name, key))
			}
		}
	}
}

// noted reports whether a successor can have a running job's record. A checkpoint built before this
// run lists a former one, and one built in between may be in progress.
func (w *world) noted(s *stint) bool {
	if r := w.records[TablePartitions][record.CheckpointKey(s.Part.Policy,
		s.Part.Number)]; r != nil {
		var c record.Checkpoint
		if record.Decode(r.Value, &c) == nil && c.Epoch == s.part.Epoch &&
			w.composed[r.Revision] >= s.slot.number &&
			c.Stream == s.fate.stream.created.UnixNano() &&
			slices.ContainsFunc(c.Running, func(r record.Run) bool {
				return r.Seq == s.Seq && r.Holder == s.d.core.Lease.Id
			}) {
			return true
		}
	}
	return len(w.hazards) == 0 && !s.d.leaving && w.now-s.slot.at > surelyNoted &&
		max(s.d.cut, s.d.frozen) <= s.slot.at
}

func (w *world) arrives(p *partition, jobs []job.Arrived) {
	for i := range jobs {
		w.fateOf(p.Policy, &jobs[i]).at = p
	}
}
