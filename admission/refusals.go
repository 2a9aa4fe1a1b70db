package admission

import (
	"maps"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
)

const (
	// maxRefusals bounds what one policy remembers of full buckets (about 2 MB). Beyond it a
	// refusal is not remembered, so a flood over very many buckets costs publishes again, which the
	// server refuses as cheaply as ever.
	maxRefusals = 16 << 10
	// refusalSweep is the least time between two searches for forgotten entries in a full memory.
	refusalSweep = 100 * time.Millisecond
	// maxHold is the longest that a bucket counts as full without asking the server again.
	maxHold = time.Second
)

// refusals remembers which buckets of one policy were full a moment ago, so that a flood at a full
// bucket is answered from memory. A policy's change starts a new one.
type refusals struct {
	hold     time.Duration // how long a bucket counts as full
	interval time.Duration // between two places that come free
	drains   time.Duration // how long a full bucket takes to drain
	now      func() time.Time

	mu      sync.Mutex
	buckets map[job.Key]*refusal
	crowds  map[job.Key]time.Time // when the next place comes free that nobody was told of
	swept   time.Time
}

// refusal is one bucket found full. Its fields but until are written before settled is closed and
// read after.
type refusal struct {
	settled chan struct{} // closed when the bucket's room is known, or known to be unknown
	free    time.Time     // when room is expected

	until time.Time // when to ask the server again; guarded by refusals.mu
}

// newRefusals returns a memory that keeps each bucket for one interval of the policy, at most a
// second.
//
// The crowd that a full bucket refuses is told places that come free one interval apart, over at
// most the time in which a full bucket drains: whoever comes then finds few others, and nobody a
// wait that is longer than the queue.
func newRefusals(interval, drains time.Duration) *refusals {
	return &refusals{hold: min(interval, maxHold), interval: interval, drains: drains,
		now: time.Now, buckets: make(map[job.Key]*refusal), crowds: make(map[job.Key]time.Time)}
}

// place returns when one more who is refused may hope for a place: the n-th of them when the n-th
// place comes free. What is remembered of a bucket is when the next one does that nobody was told
// of; so it decays at the outflow, and is forgotten when that instant has passed.
func (r *refusals) place(key job.Key, known *refusal) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.crowds[key]
	if at.Before(known.free) || at.After(known.free.Add(r.drains)) {
		at = known.free // it is the first, or all places of a full bucket are promised
	}
	if len(r.crowds) >= maxRefusals {
		r.sweep(r.now())
	}
	if _, crowded := r.crowds[key]; crowded || len(r.crowds) < maxRefusals {
		r.crowds[key] = at.Add(r.interval)
	}
	return at
}

// recall returns the refusal of a bucket that still counts as full, nil when there is none.
func (r *refusals) recall(key job.Key) *refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.buckets[key]
	if known != nil && !r.now().Before(known.until) {
		delete(r.buckets, key)
		return nil
	}
	return known
}

// remember notes that a bucket is full. The first to note it gets mine and must settle the refusal;
// the others wait for that.
func (r *refusals) remember(key job.Key) (known *refusal, mine bool) {
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

// settle sets in how long the bucket will have room. No client is refused from memory at the time
// at which it was asked to come back.
func (r *refusals) settle(known *refusal, room time.Duration) {
	r.mu.Lock()
	known.free = r.now().Add(room)
	if known.free.Before(known.until) {
		known.until = known.free
	}
	r.mu.Unlock()
	close(known.settled)
}

// sweep drops what has expired; mu is held.
func (r *refusals) sweep(now time.Time) {
	if now.Sub(r.swept) < refusalSweep {
		return
	}
	r.swept = now
	maps.DeleteFunc(r.buckets, func(_ job.Key, known *refusal) bool {
		return !now.Before(known.until)
	})
	maps.DeleteFunc(r.crowds, func(_ job.Key, next time.Time) bool { return !now.Before(next) })
}
