package admit

import (
	"maps"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/queue"
)

const (
	maxRefusals  = 16 << 10 // full buckets per policy (about 2 MB); the server refuses for others
	refusalSweep = 100 * time.Millisecond
	maxHold      = time.Second // then the server is asked again
)

// refusals holds full buckets, to answer a flood at one from memory.
type refusals struct {
	hold     time.Duration // how long a bucket counts as full
	interval time.Duration // between two free places
	drains   time.Duration // time until a full bucket is empty
	now      func() time.Time

	mu      sync.Mutex
	buckets map[queue.Key]*refusal
	crowds  map[queue.Key]time.Time // of the next unassigned place
	swept   time.Time
}

// Fields except until are written before settled is closed.
type refusal struct {
	settled chan struct{} // closed once free is set or stays unknown
	free    time.Time     // when room is expected

	until time.Time // when to ask the server again; guarded by refusals.mu
}

// newRefusals keeps each bucket for one interval, at most maxHold. Refused callers get retry times
// one interval apart, so few collide.
func newRefusals(interval, drains time.Duration) *refusals {
	return &refusals{hold: min(interval, maxHold), interval: interval, drains: drains,
		now: time.Now, buckets: make(map[queue.Key]*refusal), crowds: make(map[queue.Key]time.Time)}
}

func (r *refusals) place(key queue.Key, known *refusal) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.crowds[key]
	if at.Before(known.free) || at.After(known.free.Add(r.drains)) {
		at = known.free // first caller, or all places of a full bucket are assigned
	}
	if len(r.crowds) >= maxRefusals {
		r.sweep(r.now())
	}
	if _, crowded := r.crowds[key]; crowded || len(r.crowds) < maxRefusals {
		r.crowds[key] = at.Add(r.interval)
	}
	return at
}

func (r *refusals) recall(key queue.Key) *refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.buckets[key]
	if known != nil && !r.now().Before(known.until) {
		delete(r.buckets, key)
		return nil
	}
	return known
}

// remember returns mine for the first caller, which must settle the refusal; others wait.
func (r *refusals) remember(key queue.Key) (known *refusal, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if known = r.buckets[key]; known != nil && now.Before(known.until) {
		return known, false
	}
	known = &refusal{settled: make(chan struct{}), until: now.Add(r.hold)}
	if len(r.buckets) >= maxRefusals && r.buckets[key] == nil {
		r.sweep(now)
	}
	if len(r.buckets) < maxRefusals || r.buckets[key] != nil {
		r.buckets[key] = known
	}
	return known, true
}

func (r *refusals) settle(known *refusal, room time.Duration) {
	r.mu.Lock()
	known.free = r.now().Add(room)
	if known.free.Before(known.until) {
		known.until = known.free
	}
	r.mu.Unlock()
	close(known.settled)
}

// The caller holds mu.
func (r *refusals) sweep(now time.Time) {
	if now.Sub(r.swept) < refusalSweep {
		return
	}
	r.swept = now
	maps.DeleteFunc(r.buckets, func(_ queue.Key, known *refusal) bool {
		return !now.Before(known.until)
	})
	maps.DeleteFunc(r.crowds, func(_ queue.Key, next time.Time) bool { return !now.Before(next) })
}

const maxRepeats = 32 << 10 // per policy (about 10 MB)

// repeats holds accepted jobs: a limiter would refuse their repeats before the stream recognises
// them.
type repeats struct {
	now    func() time.Time
	window time.Duration // the stream's duplicate window

	mu       sync.Mutex
	receipts map[repeatKey]jet.Receipt
	order    []acceptance
}

type repeatKey struct {
	bucket      queue.Key
	idempotency string
}

type acceptance struct {
	job repeatKey
	at  time.Time
}

func newRepeats(window time.Duration) *repeats {
	return &repeats{now: time.Now, window: window, receipts: make(map[repeatKey]jet.Receipt)}
}

func (r *repeats) recall(job repeatKey) (jet.Receipt, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(r.now(), len(r.order))
	receipt, found := r.receipts[job]
	return receipt, found
}

func (r *repeats) remember(job repeatKey, receipt jet.Receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.forget(now, maxRepeats)
	if _, found := r.receipts[job]; found {
		return
	}
	r.forget(now, maxRepeats-1)
	r.receipts[job] = receipt
	r.order = append(r.order, acceptance{job, now})
}

// The caller holds mu.
func (r *repeats) forget(now time.Time, most int) {
	for len(r.order) > most || len(r.order) > 0 && now.Sub(r.order[0].at) >= r.window {
		delete(r.receipts, r.order[0].job)
		r.order = r.order[1:]
	}
}
