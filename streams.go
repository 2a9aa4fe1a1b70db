package penstock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/internal/seldom"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/policy/store"
	"github.com/penstock-mq/penstock/queue"
)

const (
	// applyTimeout bounds one change of one stream.
	applyTimeout = 10 * time.Second
	// applyAgain is how often a stream that is as it should be is looked at again: a process that
	// died in the middle of a change leaves its door closed.
	applyAgain = 30 * time.Second
	// retireAgain is how often the stream of a retired policy is looked at until it is empty.
	retireAgain = 5 * time.Second

	applyFirst = time.Second // wait after the first failure, doubled for each further one
	applyLast  = 30 * time.Second

	// applyAtOnce is how many streams are changed at the same time: one that takes its time holds
	// up few others.
	applyAtOnce = 8
)

// streamBroker is the part of queue.Broker that is needed.
type streamBroker interface {
	Ration(ctx context.Context, coming ...policy.Policy) (queue.Storage, error)
	Apply(ctx context.Context, p policy.Policy) error
	Retire(ctx context.Context, name string) (gone bool, err error)
	Forget(ctx context.Context, name string) (gone bool, err error)
	Depth(ctx context.Context, policy string) (uint64, error)
}

// recorded applies a policy as its record has it at that moment, and none that has retired or is
// gone: a process that does not know yet, after an outage for example, would create the stream
// again, with an open door and nobody behind it.
type recorded struct {
	*queue.Broker
	*store.Store
}

// Apply implements streamBroker.
func (r recorded) Apply(ctx context.Context, p policy.Policy) error {
	if r.Fits(p) {
		return nil
	}
	entry, err := r.Policy(ctx, p.Name)
	if errors.Is(err, queue.ErrNotFound) || err == nil && entry.Retired {
		return nil
	}
	if err != nil {
		return err
	}
	return r.Broker.Apply(ctx, entry.Policy)
}

// streams keeps every policy's stream as the policy says. A change that cannot be applied (a
// capacity that is in use) leaves the stream as it was and is tried again. All admitters do this at
// once; the broker makes that safe.
type streams struct {
	broker  streamBroker
	log     *slog.Logger
	lines   *seldom.Log                      // about policies, and "" about JetStream being away
	failed  func(policy string, failed bool) // whether a change cannot be applied
	known   *known
	applied latch // closed when every policy of the first set has been tried once

	work map[string]*streamWork // of the caller of pass

	mu      sync.Mutex
	trouble map[string]error // why the last change of a policy cannot be applied
}

// streamWork is what is known of one policy's stream.
type streamWork struct {
	revision uint64
	due      time.Time
	failures int
	gone     bool // retired, and the stream is deleted
	err      error
}

func newStreams(
	broker streamBroker, known *known, failed func(policy string, failed bool), log *slog.Logger,
) *streams {
	return &streams{broker: broker, known: known, failed: failed, log: log, lines: seldom.New(log),
		applied: make(latch), work: map[string]*streamWork{}, trouble: map[string]error{}}
}

// note keeps why a policy's change cannot be applied; nil: it is.
func (s *streams) note(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trouble[name] = err; err == nil {
		delete(s.trouble, name)
	}
}

// troubles returns the policies whose last change cannot be applied, and why.
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

// run is a part of Run.
func (s *streams) run(ctx context.Context) error {
	for ctx.Err() == nil {
		set, changed := s.known.watch()
		timer := time.NewTimer(time.Until(s.pass(ctx, set)))
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// pass does what is due and returns when something will be due next.
func (s *streams) pass(ctx context.Context, set policy.Entries) (next time.Time) {
	var doing sync.WaitGroup
	places := make(chan struct{}, applyAtOnce)
	maps.DeleteFunc(s.work, func(name string, _ *streamWork) bool {
		_, found := set[name]
		if !found {
			s.note(name, nil)
		}
		return !found
	})
	due, coming := s.due(set)
	if len(coming) > 1 {
		// One look at all streams in place of one at each, and bounds that have room for all. If it
		// cannot be had, each is looked at.
		if _, err := s.broker.Ration(ctx, coming...); err != nil {
			s.log.Debug("the store is not shared out for new policies yet", "error", err)
		}
	}
	for _, name := range due {
		places <- struct{}{}
		doing.Go(func() {
			defer func() { <-places }()
			s.do(ctx, name, set[name], s.work[name])
		})
	}
	doing.Wait()
	if set != nil && ctx.Err() == nil && !s.applied.isClosed() {
		close(s.applied)
	}
	next = time.Now().Add(applyAgain)
	for _, work := range s.work {
		if !work.gone && work.due.Before(next) {
			next = work.due
		}
	}
	return next
}

// due returns what is to be looked at now, and the policies among it that are new or have changed.
func (s *streams) due(set policy.Entries) (names []string, changed []policy.Policy) {
	now := time.Now()
	for _, name := range slices.Sorted(maps.Keys(set)) {
		entry := set[name]
		if !entry.Policy.HasQueue() && !entry.Deleting {
			continue
		}
		work := s.work[name]
		if work == nil || work.revision != entry.Revision {
			work = &streamWork{revision: entry.Revision}
			s.work[name] = work
			if !entry.Retired {
				changed = append(changed, entry.Policy)
			}
		}
		if !work.gone && !now.Before(work.due) {
			names = append(names, name)
		}
	}
	return names, changed
}

// do makes one stream what its policy says, and notes when to look again.
func (s *streams) do(ctx context.Context, name string, entry policy.Entry, work *streamWork) {
	limited, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	again, err := applyAgain, error(nil)
	if entry.Retired {
		again = retireAgain
		work.gone, err = s.end(limited, name, entry)
	} else {
		err = s.broker.Apply(limited, entry.Policy)
	}
	if ctx.Err() != nil {
		return
	}
	// Of all streams alike, or of one without a leader; it has nothing to do with the change.
	away := errors.Is(err, queue.ErrUnavailable)
	s.failed(name, err != nil && !away)
	s.note(name, err)
	if err != nil {
		again = min(applyFirst<<min(work.failures, 10), applyLast)
		s.logFailure(name, entry, work, err, again)
		work.failures++
	} else if work.failures > 0 {
		level := slog.LevelInfo
		if errors.Is(work.err, queue.ErrUnavailable) {
			level = slog.LevelDebug
		}
		s.log.Log(ctx, level, "the policy's change is applied", "policy", name, "revision",
			entry.Revision)
		work.failures = 0
	}
	work.err = err
	work.due = time.Now().Add(again)
}

// end closes the stream of a retired policy, and deletes it when it is empty.
func (s *streams) end(ctx context.Context, name string, entry policy.Entry) (gone bool, err error) {
	end := s.broker.Retire
	if entry.Deleting {
		end = s.broker.Forget
	}
	gone, err = end(ctx, name)
	if gone {
		s.log.Warn("the retired policy's stream is gone; its dead letters stay", "policy", name)
	}
	return gone, err
}

// logFailure warns of an error that the policy did not have before. What is of all streams alike
// counts as one, whatever the policy.
func (s *streams) logFailure(name string, entry policy.Entry, work *streamWork, err error,
	again time.Duration) {
	level := slog.LevelDebug
	if work.err == nil || work.err.Error() != err.Error() {
		level = slog.LevelWarn
	}
	about := name
	if errors.Is(err, queue.ErrUnavailable) {
		about = ""
	}
	s.lines.Log(about, level,
		"the stream stays as it is, for now: the policy's change cannot be applied",
		"policy", name, "revision", entry.Revision, "retired", entry.Retired, "again", again,
		"error", err)
}

// depths counts the jobs of every policy with a queue, for one scrape of the metrics.
func (s *streams) depths(ctx context.Context) map[string]uint64 {
	depths := map[string]uint64{}
	for name, entry := range s.known.policies() {
		if !entry.Policy.HasQueue() {
			continue
		}
		depth, err := s.broker.Depth(ctx, name)
		switch {
		case err == nil:
			depths[name] = depth
		case errors.Is(err, queue.ErrNoStream):
			// Not made yet, or retired and gone.
		default:
			s.log.Debug("the depth of a queue is not known", "policy", name, "error", err)
			if ctx.Err() != nil {
				return depths
			}
		}
	}
	return depths
}
