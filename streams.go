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

	// applyAtOnce is how many streams are changed at the same time.
	applyAtOnce = 8
	// applyPatience is after what time a change leaves its place to others, which then count it as
	// tried: one stream that cannot be made keeps nobody waiting.
	applyPatience = time.Second
)

// streamBroker is the part of queue.Broker that is needed.
type streamBroker interface {
	Ration(ctx context.Context, coming ...policy.Policy) (queue.Storage, error)
	Apply(ctx context.Context, p policy.Policy) error
	Retire(ctx context.Context, name string) (gone bool, err error)
	Forget(ctx context.Context, name string) (gone bool, err error)
	AllDepths(ctx context.Context) (map[string]uint64, error)
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
	whole   latch // closed when known has the policies of this process's own, too
	applied latch // closed when every policy has been tried once since

	work map[string]*streamWork // of the caller of pass
	late sync.WaitGroup         // for changes that outlast their pass
	due  chan struct{}          // a pass has something to do

	mu      sync.Mutex       // also of whether work is busy
	trouble map[string]error // why the last change of a policy cannot be applied
}

// errSlow is the trouble of a policy while its change takes longer than applyPatience.
var errSlow = errors.New("it is under way, and takes its time")

// streamWork is what is known of one policy's stream.
type streamWork struct {
	revision uint64
	due      time.Time
	failures int
	gone     bool // retired, and the stream is deleted
	err      error
	busy     bool // until do has ended, the rest is its own
}

func newStreams(
	broker streamBroker, known *known, failed func(policy string, failed bool), log *slog.Logger,
) *streams {
	return &streams{broker: broker, known: known, failed: failed, log: log, lines: seldom.New(log),
		applied: make(latch), work: map[string]*streamWork{}, trouble: map[string]error{},
		whole: make(latch), due: make(chan struct{}, 1)}
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
		next, changed := s.pass(ctx)
		timer := time.NewTimer(time.Until(next))
		select {
		case <-changed:
		case <-timer.C:
		case <-s.due:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	s.late.Wait()
	return nil
}

// pass does what is due, as far as that ends in time, and returns when something will be due next.
// It also returns a channel that is closed when policies change.
func (s *streams) pass(ctx context.Context) (next time.Time, changed <-chan struct{}) {
	whole := s.whole.isClosed()
	set, changed := s.known.watch()
	var doing sync.WaitGroup
	places := make(chan struct{}, applyAtOnce)
	maps.DeleteFunc(s.work, func(name string, _ *streamWork) bool {
		_, found := set[name]
		if !found {
			s.note(name, nil)
		}
		return !found
	})
	now := time.Now() // of all that is done now, or each would have a pass of its own later
	due, coming := s.duties(set, now)
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
			work := s.work[name]
			s.tryFor(applyPatience, name, work, func() { s.do(ctx, name, set[name], work, now) })
		})
	}
	doing.Wait()
	if whole && set != nil && ctx.Err() == nil && !s.applied.isClosed() {
		close(s.applied)
	}
	next = time.Now().Add(applyAgain)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, work := range s.work {
		if !work.busy && !work.gone && work.due.Before(next) {
			next = work.due
		}
	}
	return next, changed
}

// tryFor waits for a change of a policy's stream to end, but not for longer than it may keep others
// waiting.
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
		s.again()
	})
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		s.mu.Lock()
		defer s.mu.Unlock()
		if work.busy {
			s.trouble[name] = errSlow
			s.failed(name, true)
		}
	}
}

// again has run make a pass.
func (s *streams) again() {
	select {
	case s.due <- struct{}{}:
	default:
	}
}

// duties returns what is to be looked at now, and the policies that are new or have changed.
func (s *streams) duties(set policy.Entries,
	now time.Time) (names []string, changed []policy.Policy) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
		if !work.busy && !work.gone && !now.Before(work.due) {
			names = append(names, name)
		}
	}
	return names, changed
}

// do makes one stream what its policy says, and notes when to look again.
func (s *streams) do(ctx context.Context, name string, entry policy.Entry, work *streamWork,
	now time.Time) {
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
	work.due = now.Add(again)
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
	all, err := s.broker.AllDepths(ctx)
	if err != nil {
		s.log.Debug("the depths of the queues are not known", "error", err)
	}
	known := s.known.policies()
	maps.DeleteFunc(all, func(name string, _ uint64) bool {
		return !known[name].Policy.HasQueue()
	})
	return all
}
