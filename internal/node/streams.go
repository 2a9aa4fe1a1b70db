package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/internal/lifecycle"
	"github.com/penstock-mq/penstock/internal/notice"
	"github.com/penstock-mq/penstock/internal/seldom"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/policy/store"
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
	Ration(ctx context.Context, coming ...policy.Policy) (queue.Storage, error)
	Fits(p policy.Policy) bool
	Apply(ctx context.Context, p policy.Policy) error
	Forget(ctx context.Context, name string) (gone bool, err error)
	AllDepths(ctx context.Context) (map[string]uint64, error)
}

// recorded applies a policy as stored, unless it is draining or gone. A process with outdated
// policies would otherwise recreate the stream with an open door and no drainer.
type recorded struct {
	*queue.Broker
	*store.Store
}

func (r recorded) Apply(ctx context.Context, p policy.Policy) error {
	entry, err := r.Policy(ctx, p.Name)
	if errors.Is(err, queue.ErrNotFound) || err == nil && entry.Draining {
		return nil
	}
	if err != nil {
		return err
	}
	return r.Broker.Apply(ctx, entry.Policy)
}

var unapplied = notice.Kind{Level: slog.LevelWarn, Of: "policy",
	Begin: "policy change not applied to its stream yet",
	End:   "policy change applied"}

// streams keeps streams in line with their policies. A failed change leaves the stream as it was
// and is retried. All admitters do this concurrently; the broker makes that safe.
type streams struct {
	broker  streamBroker
	known   *known
	log     *slog.Logger
	notices *notice.Log
	lines   *seldom.Log // when JetStream is away
	sink    queue.Sink
	own     []policy.Policy
	whole   lifecycle.Latch // known includes own
	applied lifecycle.Latch // since then every policy was tried

	work map[string]*streamWork // of pass
	late sync.WaitGroup         // changes that outlast their pass
	due  chan struct{}

	mu      sync.Mutex // also of streamWork.busy
	trouble map[string]error
}

var errSlow = errors.New("it is under way, and takes its time")

type streamWork struct {
	revision uint64
	due      time.Time
	failures int
	tried    bool // on its stream
	gone     bool // with its stream
	err      error
	busy     bool // do owns the other fields
}

func newStreams(broker streamBroker, known *known, notices *notice.Log,
	sink queue.Sink, log *slog.Logger) *streams {
	return &streams{broker: broker, known: known, notices: notices, sink: sink, log: log,
		lines: seldom.New(log), applied: make(lifecycle.Latch), whole: make(lifecycle.Latch),
		work: map[string]*streamWork{}, trouble: map[string]error{}, due: make(chan struct{}, 1)}
}

func (s *streams) failed(policy string, failed bool) {
	s.sink.Take(queue.Event{Type: queue.EventApplyFailed, Policy: policy,
		Value: queue.Whether(failed)})
}

func (s *streams) note(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trouble[name] = err; err == nil {
		delete(s.trouble, name)
	}
}

func (s *streams) troubles() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(s.trouble)) {
		lines = append(lines, fmt.Sprintf("the stream of %s stays as it is, for now: %v", name,
			s.trouble[name]))
	}
	return lines
}

func (s *streams) run(ctx context.Context) error {
	defer s.late.Wait()
	return lifecycle.Repeat(s.due, s.pass)(ctx)
}

// pass does the due work that ends in time, and returns when more is due.
func (s *streams) pass(ctx context.Context) (time.Duration, error) {
	whole := s.whole.Closed()
	set, changed := s.known.since()
	var doing sync.WaitGroup
	places := make(chan struct{}, applyAtOnce)
	s.notices.Only(&unapplied, has(set))
	now := time.Now() // the next checks share a pass
	due, coming := s.duties(set, changed, now)
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
	for _, name := range due {
		work := s.work[name]
		if work.tried && work.err == nil && s.broker.Fits(set[name].Policy) {
			work.due = now.Add(again)
			continue
		}
		places <- struct{}{}
		doing.Go(func() {
			defer func() { <-places }()
			s.tryFor(applyPatience, name, work, func() {
				s.do(ctx, name, set[name], work, now, again)
			})
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

func (s *streams) tryFor(patience time.Duration, name string, work *streamWork, do func()) {
	s.mu.Lock()
	work.busy = true
	s.mu.Unlock()
	ended := make(chan struct{})
	s.late.Go(func() {
		do()
		s.mu.Lock()
		if work.busy = false; s.trouble[name] == errSlow {
			delete(s.trouble, name)
		}
		s.mu.Unlock()
		close(ended)
	})
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		s.late.Go(func() { <-ended; wake(s.due) })
		s.mu.Lock()
		defer s.mu.Unlock()
		if work.busy {
			s.trouble[name] = errSlow
			s.failed(name, true)
		}
	}
}

func (s *streams) duties(set policy.Entries, changed []string,
	now time.Time) (names []string, coming []policy.Policy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range changed {
		entry, work := set[name], s.work[name]
		switch {
		case entry == nil:
			delete(s.trouble, name)
			delete(s.work, name)
		case !entry.HasQueue() && !entry.Draining:
			delete(s.work, name)
		case work == nil || work.revision != entry.Revision:
			s.work[name] = &streamWork{revision: entry.Revision}
			if work == nil && !entry.Draining {
				coming = append(coming, entry.Policy)
			}
		}
	}
	for name, work := range s.work {
		if !work.busy && !work.gone && !now.Before(work.due) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, coming
}

func (s *streams) do(ctx context.Context, name string, entry *policy.Entry, work *streamWork,
	now time.Time, again time.Duration) {
	limited, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	var err error
	if entry.Draining {
		again = drainAgain
		if work.gone, err = s.broker.Forget(limited, name); work.gone {
			s.log.Warn("policy drained and gone; its dead letters stay", "policy", name)
		}
	} else if work.tried = true; !s.broker.Fits(entry.Policy) {
		err = s.broker.Apply(limited, entry.Policy)
	}
	if ctx.Err() != nil {
		return
	}
	// not caused by the change
	away := errors.Is(err, queue.ErrUnavailable)
	s.failed(name, err != nil && !away)
	s.note(name, err)
	if err != nil {
		again = min(applyFirst<<min(work.failures, 10), applyLast)
		work.failures++
	} else {
		work.failures = 0
	}
	if !away {
		s.notices.Tell(&unapplied, name, notice.Error(err), "revision", entry.Revision, "draining",
			entry.Draining, "again", again, "error", err)
	} else if !errors.Is(work.err, queue.ErrUnavailable) {
		s.lines.Log("", slog.LevelWarn, unapplied.Begin, "policy", name, "error", err)
	}
	work.err = err
	work.due = now.Add(again)
}

func (s *streams) depths(ctx context.Context) (map[string]uint64, error) {
	all, err := s.broker.AllDepths(ctx)
	known := s.known.policies()
	maps.DeleteFunc(all, func(name string, _ uint64) bool {
		return !known[name].HasQueue()
	})
	return all, err
}
