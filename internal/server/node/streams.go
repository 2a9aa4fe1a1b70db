package node

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/internal/base/notice"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

const (
	// of one stream
	applyTimeout = 10 * time.Second
	// interval of checks of correct streams: a crashed process leaves its stream's door closed
	applyAgain = 30 * time.Second
	// interval of checks of draining policies' streams
	drainAgain = 5 * time.Second

	applyFirst = time.Second // after the first failure, then doubled
	applyLast  = 30 * time.Second

	// concurrent changes
	applyAtOnce = 16
	// up to this many new policies may be applied without listing all streams, whose time grows
	// with the number of policies; the next regular check counts them
	fewComing = 10
	// a change that takes longer counts as tried and delays no others
	applyPatience = time.Second
)

type streamBroker interface {
	Ration(ctx context.Context, coming ...policy.Policy) (jet.Storage, error)
	Fits(p policy.Policy) bool
	Apply(ctx context.Context, p policy.Policy) error
	Forget(ctx context.Context, name string) (gone bool, err error)
	AllDepths(ctx context.Context) (map[string]uint64, error)
}

// recorded applies a policy as stored, unless it is draining or gone. A process with outdated
// policies would otherwise recreate the stream with an open door and no drainer.
type recorded struct {
	*jet.Broker
	*store.Store
}

func (r recorded) Apply(ctx context.Context, p policy.Policy) error {
	entry, err := r.Policy(ctx, p.Name)
	if errors.Is(err, jet.ErrNotFound) || err == nil && entry.Draining {
		return nil
	}
	if err != nil {
		return err
	}
	return r.Broker.Apply(ctx, entry.Policy)
}

var unapplied = notice.Kind{Level: slog.LevelWarn, Of: "policy",
	Begin: "policy change not applied to its stream yet",
	End:   "policy change applied",
	Note:  "the stream of %[1]s stays as it is, for now: %[2]s"}

// streams keeps streams in line with their policies. A failed change leaves the stream as it was
// and is retried. All admitters do this concurrently; the broker makes that safe.
type streams struct {
	broker  streamBroker
	known   *known
	log     *slog.Logger
	notices *notice.Log
	sink    queue.Sink
	own     []policy.Policy
	whole   lifecycle.Latch // known includes own
	applied lifecycle.Latch // since then every policy was tried

	late sync.WaitGroup // changes that outlast their pass
	due  chan struct{}

	mu   sync.Mutex
	seen inforce.Entries // by the last pass
	work map[string]*streamWork
}

type streamWork struct {
	revision uint64
	due      time.Time
	failures int
	gone     bool // with its stream
	busy     bool
}

func newStreams(broker streamBroker, known *known, notices *notice.Log,
	sink queue.Sink, log *slog.Logger) *streams {
	return &streams{broker: broker, known: known, notices: notices, sink: sink, log: log,
		applied: make(lifecycle.Latch), whole: make(lifecycle.Latch),
		work: map[string]*streamWork{}, due: make(chan struct{}, 1)}
}

func (s *streams) failed(policy string, failed bool) {
	s.sink.Take(queue.Event{Type: jet.EventApplyFailed, Policy: policy,
		Value: jet.Whether(failed)})
}

func (s *streams) run(ctx context.Context) error {
	defer s.late.Wait()
	return lifecycle.Repeat(s.due, s.pass)(ctx)
}

// pass does the due work that ends in time, and returns when more is due.
func (s *streams) pass(ctx context.Context) (time.Duration, error) {
	whole := s.whole.Closed()
	set := s.known.policies()
	var doing sync.WaitGroup
	places := make(chan struct{}, applyAtOnce)
	s.notices.Only(&unapplied, has(set))
	now := time.Now() // the next checks share a pass
	due, coming := s.duties(set, now)
	if len(coming) > max(1, len(set)/fewComing) {
		if !whole {
			// with room for those being written, or bounds would fall repeatedly
			coming = append(coming, s.own...)
		}
		// One look at all streams sets bounds with room for all. If it fails, each is checked.
		if _, err := s.broker.Ration(ctx, coming...); err != nil {
			s.log.Debug("the store is not divided among new policies yet", "error", err)
		}
	}
	again := roundAgain(applyAgain, len(set))
	for name, work := range due {
		places <- struct{}{}
		doing.Go(func() {
			defer func() { <-places }()
			s.try(ctx, name, set[name], work, now, again)
		})
	}
	doing.Wait()
	if whole && set != nil && ctx.Err() == nil && !s.applied.Closed() {
		close(s.applied)
	}
	next := time.Now().Add(again)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, work := range s.work {
		if !work.busy && !work.gone && work.due.Before(next) {
			next = work.due
		}
	}
	return time.Until(next), nil
}

// duties returns the work that is due, which is busy from now on, and policies that are new.
func (s *streams) duties(set inforce.Entries, now time.Time) (due map[string]*streamWork,
	coming []policy.Policy) {

	s.mu.Lock()
	defer s.mu.Unlock()
	changed := inforce.Changed(s.seen, set)
	s.seen = set
	for _, name := range changed {
		entry, work := set[name], s.work[name]
		switch {
		case entry == nil, !entry.HasQueue() && !entry.Draining:
			delete(s.work, name)
		case work == nil || work.revision != entry.Revision:
			s.work[name] = &streamWork{revision: entry.Revision}
			if work == nil && !entry.Draining {
				coming = append(coming, entry.Policy)
			}
		}
	}
	due = map[string]*streamWork{}
	for name, work := range s.work {
		if !work.busy && !work.gone && !now.Before(work.due) {
			due[name], work.busy = work, true
		}
	}
	return due, coming
}

// try does the work, which delays no other if it takes longer.
func (s *streams) try(ctx context.Context, name string, entry *inforce.Entry, work *streamWork,
	now time.Time, again time.Duration) {
	result := make(chan error, 1)
	go func() { result <- s.do(ctx, name, entry) }()
	timer := time.NewTimer(applyPatience)
	defer timer.Stop()
	select {
	case err := <-result:
		s.done(ctx, name, entry, work, err, now, again)
	case <-timer.C:
		s.notices.Tell(&unapplied, name, "it is under way, and takes its time")
		s.failed(name, true)
		s.late.Go(func() {
			s.done(ctx, name, entry, work, <-result, now, again)
			wake(s.due)
		})
	}
}

var errDrains = errors.New("jobs are left")

func (s *streams) do(ctx context.Context, name string, entry *inforce.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	if entry.Draining {
		gone, err := s.broker.Forget(ctx, name)
		if err == nil && !gone {
			err = errDrains
		}
		return err
	}
	if s.broker.Fits(entry.Policy) {
		return nil
	}
	return s.broker.Apply(ctx, entry.Policy)
}

func (s *streams) done(ctx context.Context, name string, entry *inforce.Entry, work *streamWork,
	err error, now time.Time, again time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	work.busy = false
	if ctx.Err() != nil {
		return
	}
	if errors.Is(err, errDrains) {
		again, err = drainAgain, nil
	} else if work.gone = entry.Draining && err == nil; work.gone {
		s.log.Warn("policy drained and gone; its dead letters stay", "policy", name)
	}
	away := errors.Is(err, jet.ErrUnavailable) // not caused by the change
	s.failed(name, err != nil && !away)
	if err == nil {
		work.failures = 0
	} else {
		again = min(applyFirst<<min(work.failures, 10), applyLast)
		work.failures++
	}
	if work.due = now.Add(again); away {
		s.log.Debug(unapplied.Begin, "policy", name, "error", err)
		return
	}
	s.notices.Tell(&unapplied, name, notice.Error(err), "revision", entry.Revision, "draining",
		entry.Draining, "again", again, "error", err)
}

func (s *streams) depths(ctx context.Context) (map[string]uint64, error) {
	all, err := s.broker.AllDepths(ctx)
	known := s.known.policies()
	maps.DeleteFunc(all, func(name string, _ uint64) bool {
		return !known[name].HasQueue()
	})
	return all, err
}
