package valve

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/heap"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/walk"
)

func (w View) bucketState(p *Part, key queue.Key) job.BucketState {
	l, b := w.settings.limitsOf(key), p.look(key)
	s := job.BucketState{Key: key}
	s.Paused, s.Reading = l.paused, p.state == partitionOpening
	if l.pace != nil {
		s.Outflow, s.Peak, s.Burst = l.pace.Rate.PerSecond(), l.pace.Peak, l.pace.Burst
	}
	if w.limits.quota != nil {
		s.Limits = left(nil, w.limits.quota, b.Used, w.limits.wall.reading(w.now))
	}
	s.Limits = append(s.Limits, w.LeftOfAll()...)
	if b.learnt != nil {
		s.Adapted = b.pace.Rate.PerSecond()
	}
	s.Depth, s.Waiting, s.Running = int(b.held), b.queue.Len(), b.Running
	s.Calls, s.CallsRunning = b.callers.Len(), b.callers.Running
	if b.callNext() {
		s.Waiting--
	}
	s.Rate = b.rate.Now(b.pace, pace.Few, w.now)
	s.RateMinute = b.minute.Now(b.pace, time.Minute, w.now)
	s.LateMS, _ = w.lateMS(b)
	s.ThrottledMS = max(0, ceilMillis(b.Cool.Since(w.now)))
	slots := b.slotsFor(0, w.limits.wall.at(w.now).UnixNano())
	s.ETAMS = millisTo(w.expectBucket(b, slots, oneSlot), w.now)
	s.Delayed = b.queue.Later()
	by, until := w.held(b)
	s.Hold, s.LastError = w.limits.wall.hold(by, until), b.lastError
	if stored, waits := b.queue.HeadStored(); waits {
		s.HeadAgeMS = max(0, w.limits.wall.at(w.now).Sub(stored).Milliseconds())
	}
	return s
}

// LeftOfAll returns what is left of limits over all buckets.
func (w View) LeftOfAll() (all []api.LimitLeft) {
	for _, t := range w.limits.common {
		if t.here() != nil {
			all = left(all, t.Limits, t.used, w.limits.wall.reading(w.now))
		}
	}
	return all
}

// OpenOfKeys returns the units of limits per key that runs hold until their answers, over all keys.
func (w View) OpenOfKeys() (all []api.LimitLeft) {
	if !w.settings.Policy.CountsArrivals() {
		return nil
	}
	for _, r := range w.crew.Runs() {
		for c := r.Of.charged; c != nil; c = c.next {
			if c.all != nil || !w.limits.here(r.Of, c) {
				continue
			}
			c.Open(func(limit string, units int64) {
				i := slices.IndexFunc(all, func(l api.LimitLeft) bool { return l.Name == limit })
				if i < 0 {
					i, all = len(all), append(all, api.LimitLeft{Name: limit})
				}
				all[i].Open += units
			})
		}
	}
	return all
}

func left(all []api.LimitLeft, of *quota.Limits, used *quota.Set, now quota.Now) []api.LimitLeft {
	of.Left(used, now, func(name string, left, most, open int64) {
		all = append(all, api.LimitLeft{Name: name, Left: left, Most: most, Open: open})
	})
	return all
}

type listed struct {
	*bucket
	size int64
}

func (b listed) Before(c listed) bool {
	return b.size < c.size || b.size == c.size && b.queue.Key > c.queue.Key
}
func (b listed) Moved(int) {}

// listing lists a partition's largest buckets in pieces: 40,000 at once would cost a drainer its
// lease.
type listing struct {
	part          *Part
	by            string // job.ByDepth, job.ByAge or job.ByLate
	asked         pace.Instant
	walk          *walk.Walk[*bucket]
	offset, limit int
	total         int
	page          heap.Heap[listed]
	states        []job.BucketState
}

func (w View) listBuckets(p *Part, by string, offset, limit int) *listing {
	const most = 10_000
	return &listing{
		part: p, by: by, asked: w.now, walk: p.list.Walk(),
		offset: min(max(offset, 0), most), limit: min(max(limit, 0), most),
	}
}

func (l *listing) size(b *bucket) int64 {
	switch l.by {
	case job.ByAge:
		if stored, waits := b.queue.HeadStored(); waits {
			return -stored.UnixNano()
		}
		return math.MinInt64
	case job.ByLate:
		_, late := l.part.v.View(l.asked).lateMS(b)
		return late
	}
	return int64(int(b.held) + b.inCalls())
}

func (b *bucket) inCalls() int {
	return b.callers.Len() + b.callers.Running
}

func (l *listing) find() (done bool) {
	return l.walk.Some(walkPiece, func(b *bucket) {
		if int(b.held)+b.inCalls() > 0 {
			l.total++
			l.pick(listed{b, l.size(b)})
		}
	})
}

func (l *listing) pick(b listed) {
	if len(l.page) < l.offset+l.limit {
		l.page.Push(b)
	} else if len(l.page) > 0 && l.page[0].Before(b) {
		l.page[0] = b
		l.page.Fix(0)
	}
}

func (l *listing) tell(now pace.Instant) (done bool) {
	const mostListedError = 128 // bytes: many buckets must fit a message
	view := l.part.v.View(now)
	for range expectPiece {
		if len(l.page) <= l.offset {
			slices.Reverse(l.states)
			return true
		}
		state := view.bucketState(l.part, l.page.Remove(0).queue.Key)
		state.LastError, state.Limits = record.Clip(state.LastError, mostListedError), nil
		l.states = append(l.states, state)
	}
	return false
}

func (w View) jobState(p *Part, seq uint64) *job.State {
	j := p.seek(seq)
	if j == nil {
		return nil
	}
	s := &job.State{Seq: seq, Key: j.Key, Attempts: j.Attempts, LastError: j.LastError,
		AcceptedAt: j.Stored}
	if edit := p.edits.Of(seq, j.Stored.UnixNano()); edit.Seq != 0 {
		s.Edit = &job.Edit{Run: edit.Run > 0, Front: edit.Front > 0, Priority: edit.Priority,
			Deadline: edit.Deadline}
	}
	zero := int64(0)
	by, until := w.heldJob(j)
	switch j.stage {
	case stageWaiting:
		position, slots := j.Bucket.queue.Position(&j.Job)
		s.State, s.Position = job.Waiting, &position
		s.ETAMS = millisTo(w.expectJob(j, slots), w.now)
		s.Calls = j.Bucket.callers.Len()
		if s.ETAMS != nil && position > 0 &&
			(by == job.BlockedByRate || by == job.BlockedByTotalRate ||
				strings.HasPrefix(by, job.BlockedByLimit)) {
			// not when the first of them starts
			until = w.now.Add(time.Duration(*s.ETAMS) * time.Millisecond)
		}
	case stageDelayed:
		s.State = job.Delayed
		if !j.Bucket.paused {
			s.ETAMS = millisTo(j.At, w.now)
		}
	case stageRunning:
		s.State, s.ETAMS, s.Progress = job.Running, &zero, p.progress[seq]
	default:
		s.State, s.ETAMS = job.Finishing, &zero
	}
	s.Hold = w.limits.wall.hold(by, until)
	return s
}

func (p *Part) cancel(seq uint64) (removed int) {
	j := p.reach(seq)
	if j == nil {
		return 0
	}
	return p.v.stock.dismiss(j, queue.EndCancelled)
}
