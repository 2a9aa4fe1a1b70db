package penstock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

const (
	// checkAgain is how often a write to the embedded server is tried.
	checkAgain = time.Second
	// rationAgain is how often the store is measured and shared out again.
	rationAgain = 5 * time.Second
	// rationShare bounds what that costs where there are many streams: a part of the time.
	rationShare = 200

	tooSmall = "the limits of JetStream's account are below what the policies may need"
)

// storage watches what JetStream stores: it shares the room among the policies, says what becomes
// full, and notices when the embedded server cannot write.
type storage struct {
	broker   *queue.Broker
	known    *known
	check    func() error // of the embedded server; nil for one elsewhere
	setUp    func(context.Context) error
	observer Observer
	log      *slog.Logger

	mu    sync.Mutex
	fault error    // why the embedded server cannot write
	high  []string // what is nearly full
	short []string // what lacks copies
	lacks string   // which limits of the account are too low
	lost  []string // streams to set up again

	made    map[string]time.Time // when each known stream was made; used by run only
	logged  bool                 // that the size is not known, or that it is
	problem string
}

// run is a part of Run. It ends with an error when the embedded server needs a new start.
func (s *storage) run(ctx context.Context) error {
	check, ration := time.NewTicker(checkAgain), time.NewTimer(0)
	defer check.Stop()
	defer ration.Stop()
	var reconnects uint64
	for {
		select {
		case <-check.C:
			// NATS may have come back with another store.
			if n := s.broker.Conn().Stats().Reconnects; n != reconnects {
				reconnects = n
				ration.Reset(0)
			}
			if s.check == nil {
				continue
			}
			if err := s.checked(s.check()); err != nil {
				return err
			}
		case <-ration.C:
			began := time.Now()
			s.ration(ctx)
			ration.Reset(max(rationAgain, rationShare*time.Since(began)))
		case <-ctx.Done():
			return nil
		}
	}
}

// checked takes what a check of the embedded server found. A server whose files are broken stays
// so, even when there is room again: the process ends, to be started again.
func (s *storage) checked(err error) error {
	if errors.Is(err, embedded.ErrBroken) {
		s.broker.Refuse(err)
		s.log.Error(
			"the embedded NATS server could not write, and must be started again: the process ends",
			"error", err)
		return err
	}
	s.mu.Lock()
	before := s.fault
	s.fault = err
	s.mu.Unlock()
	s.observer.Writable(err == nil)
	s.broker.Refuse(err)
	switch {
	case err != nil && before == nil:
		s.log.Error(
			"the disk of the embedded NATS server cannot be written: jobs are refused until it can",
			"error", err)
	case err == nil && before != nil:
		s.log.Info("the disk of the embedded NATS server can be written again")
	}
	return nil
}

// ration shares the store and says what is remarkable about it.
func (s *storage) ration(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	var policies []policy.Policy // also those whose streams cannot be made
	for _, entry := range s.known.policies() {
		if entry.Policy.HasQueue() && !entry.Retired {
			policies = append(policies, entry.Policy)
		}
	}
	found, err := s.broker.Ration(ctx, policies...)
	if ctx.Err() != nil {
		return
	}
	if found.Made != nil {
		s.findLost(ctx, found.Made, policies)
	}
	text := ""
	if err != nil && !errors.Is(err, queue.ErrUnavailable) {
		text = err.Error()
	}
	if text != "" && text != s.problem {
		s.log.Warn("the store cannot be shared among the policies as it should be: trying again",
			"error", err)
	}
	s.problem = text
	if err != nil {
		return
	}
	if !s.logged && found.Max == 0 {
		s.log.Warn(
			"it is not known how much JetStream may store here: policies without max_bytes have " +
				"no bound, and one that fills the store stops all; give them one, or the " +
				"account a storage limit")
	}
	s.logged = true
	s.mu.Lock()
	lacked := s.lacks
	s.lacks = found.Lacks
	s.mu.Unlock()
	if found.Lacks != "" && found.Lacks != lacked {
		s.log.Warn(tooSmall, "limits", found.Lacks)
	}
	s.observer.Stored(found)
	s.warn(found)
}

// findLost finds streams that were lost since the last look, because NATS came back with an empty
// store or they were deleted, and sets everything up again as at the start: also when another
// process was faster, whose file has other policies. Streams of policies that are deleted, or are
// no longer known, are not missed.
func (s *storage) findLost(ctx context.Context, made map[string]time.Time,
	policies []policy.Policy) {

	jobs := map[string]bool{}
	for _, p := range policies {
		jobs[p.Name] = true
	}
	var lost []string
	for name, was := range s.made {
		p, ours := strings.CutPrefix(name, s.broker.Names().Stream(""))
		switch now := made[name]; {
		case now.Equal(was):
		case ours && policy.IsName(p) && !jobs[p]:
			delete(s.made, name)
		case s.broker.Replaced(ctx, name, was):
			delete(s.made, name)
			lost = append(lost, name)
		}
	}
	if s.made == nil {
		s.made = map[string]time.Time{}
	}
	for name, now := range made {
		if _, known := s.made[name]; !known {
			s.made[name] = now
		}
	}
	if len(lost) > 0 {
		slices.Sort(lost)
		s.log.Warn("NATS has lost data: what is missing is set up again, without it",
			"streams", lost)
	}
	s.mu.Lock()
	s.lost = append(s.lost, lost...)
	lost = s.lost
	s.mu.Unlock()
	if len(lost) == 0 {
		return
	}
	if err := s.setUp(ctx); err != nil {
		s.log.Warn("what NATS has lost cannot be set up yet: trying again", "error", err)
		return
	}
	s.mu.Lock()
	s.lost = nil
	s.mu.Unlock()
}

// warn notes what lacks copies, and what is four fifths full. Changes of the latter are logged.
func (s *storage) warn(found queue.Storage) {
	fills := map[string]queue.Fill{"the store": found.Fill}
	for name, fill := range found.Jobs {
		fills["policy "+name] = fill
	}
	var high []string
	for _, name := range slices.Sorted(maps.Keys(fills)) {
		if fills[name].High() {
			high = append(high, name)
		}
	}
	var short []string
	for _, group := range slices.Sorted(maps.Keys(found.Copies)) {
		if c := found.Copies[group]; c.Lacking > 0 {
			short = append(short, fmt.Sprintf("%s: streams that lack copies: %d, with %d of %d",
				group, c.Lacking, c.Current, c.Wanted))
		}
	}
	s.mu.Lock()
	before := s.high
	s.high, s.short = high, short
	s.mu.Unlock()
	for _, name := range high {
		if fill := fills[name]; !slices.Contains(before, name) {
			s.log.Warn("four fifths of the room for jobs are taken: what does not fit is refused",
				"of", name, "used", policy.Size(fill.Used), "max", policy.Size(fill.Max))
		}
	}
	for _, name := range before {
		if !slices.Contains(high, name) {
			s.log.Info("there is room for jobs again", "of", name)
		}
	}
}

// fit returns why jobs cannot be stored; nil when they can.
func (s *storage) fit() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != nil {
		return fmt.Errorf("%w: the disk cannot be written", queue.ErrStorage)
	}
	if len(s.lost) > 0 {
		return fmt.Errorf("%w: NATS has lost %s, not set up again yet", queue.ErrUnavailable,
			strings.Join(s.lost, ", "))
	}
	return nil
}

// notes returns what /readyz adds for a process that is ready.
func (s *storage) notes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var notes []string
	if s.lacks != "" {
		notes = append(notes, tooSmall+": "+s.lacks)
	}
	for _, name := range s.high {
		notes = append(notes, "nearly full: "+name)
	}
	return append(notes, s.short...)
}
