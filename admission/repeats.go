package admission

import (
	"sync"
	"time"

	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

const maxRepeats = 32 << 10 // per policy (about 10 MB)

// repeats holds accepted jobs: a limiter would refuse their repeats before the stream recognises
// them.
type repeats struct {
	now    func() time.Time
	window time.Duration // the stream's duplicate window

	mu       sync.Mutex
	receipts map[repeatKey]queue.Receipt
	order    []acceptance
}

type repeatKey struct {
	bucket      job.Key
	idempotency string
}

type acceptance struct {
	job repeatKey
	at  time.Time
}

func newRepeats(window time.Duration) *repeats {
	return &repeats{now: time.Now, window: window, receipts: make(map[repeatKey]queue.Receipt)}
}

func (r *repeats) recall(job repeatKey) (queue.Receipt, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(r.now(), len(r.order))
	receipt, found := r.receipts[job]
	return receipt, found
}

func (r *repeats) remember(job repeatKey, receipt queue.Receipt) {
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
