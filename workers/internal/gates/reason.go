package gates

import (
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// A Reason is why a start waits. What lists say of it is in [job.Causes].
type Reason uint8

const (
	None        Reason = iota
	ByProcessor        // the loop was late
	ByNoWorker
	ByWorkersBusy
	ByTotalRate
	ByLimit
	ByConcurrency
	ByPaused
	ByCooling
	ByBreaker
	ByStorage
	ByQuiet
	ByRate
	reasons
)

var names = [reasons]string{ByProcessor: job.LateByProcessor,
	ByNoWorker: job.BlockedByNoWorker, ByWorkersBusy: job.BlockedByWorkersBusy,
	ByTotalRate: job.BlockedByTotalRate, ByLimit: job.LateByLimit,
	ByConcurrency: job.BlockedByConcurrency, ByPaused: job.BlockedByPaused,
	ByCooling: job.BlockedByThrottled, ByBreaker: job.BlockedByBreaker,
	ByStorage: job.BlockedByStorage, ByQuiet: job.BlockedByQuiet, ByRate: job.BlockedByRate}

// meant has the reasons that make nothing late.
var meant = func() (all [reasons]bool) {
	for r, name := range names {
		all[r] = job.Causes[name].Meant
	}
	return all
}()

func (r Reason) String() string { return names[r] }

// Hold is what holds a start back.
type Hold struct {
	By    Reason
	Limit string       // if By is ByLimit
	Until pace.Instant // Never: until some event
}

// Or returns the longer hold.
func (h Hold) Or(other Hold) Hold {
	if other.Until > h.Until {
		return other
	}
	return h
}

func (h Hold) Shut() bool { return h.Until == pace.Never }

// passes reports whether a bucket's clock runs on meanwhile: what is lost then is known when the
// next job starts.
func (h Hold) passes() bool { return h.By == ByLimit || h.By == ByStorage && !h.Shut() }
