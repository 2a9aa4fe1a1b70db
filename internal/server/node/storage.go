package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/internal/base/files"
	"github.com/penstock-mq/penstock/internal/base/notice"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

const (
	checkAgain  = time.Second
	rationAgain = 5 * time.Second
	// Measuring takes at most 1/rationShare of the time; the pause is at most rationLatest.
	rationShare  = 500
	rationLatest = 30 * time.Second
	// roundOfEach times the number of policies is the least interval of rounds over all of them.
	roundOfEach = 20 * time.Millisecond

	tooSmall = "JetStream account limits are below the policies' possible needs"
)

var (
	readOnly = notice.Kind{Level: slog.LevelError,
		Begin: "the disk of the embedded NATS server cannot be written: jobs are refused, and " +
			"none start here, until it can",
		End: "the disk of the embedded NATS server is writable again"}
	fileless = notice.Kind{Level: slog.LevelError,
		Begin: "the process has no free file descriptor: jobs are refused until it has; " +
			files.Advice,
		End: "the process has free file descriptors again"}
	unshared = notice.Kind{Level: slog.LevelWarn, Begin: "the store cannot be divided among the " +
		"policies: retrying"}
	lacking = notice.Kind{Level: slog.LevelWarn, Of: "limits", Begin: tooSmall,
		Note: tooSmall + ": %[1]s"}
	lost = notice.Kind{Level: slog.LevelWarn,
		Begin: "NATS has lost data: recreating what is missing, without the data",
		End:   "what NATS has lost is set up again, without the data"}
	uncopied = notice.Kind{Level: slog.LevelWarn, Of: "streams", Begin: "streams lack copies",
		End: "streams have all copies again", Note: "%[1]s: streams that lack copies: %[2]s"}
	full = notice.Kind{Level: slog.LevelWarn, Of: "of",
		Begin: "80 % of the space for jobs is used: jobs are refused once it is full",
		End:   "space for jobs is available again", Note: "nearly full: %[1]s"}
	boundless = notice.Kind{Level: slog.LevelWarn, Begin: "JetStream's storage limit is unknown: " +
		"policies without max_bytes are unbounded, and one that fills the " +
		"store stops all; set max_bytes, or a storage limit for the account"}
)

type storage struct {
	broker  *jet.Broker
	known   *known
	writer  *writer
	streams *streams
	notices *notice.Log
	sink    queue.Sink
	log     *slog.Logger
	check   func() error // of the server; nil: it is elsewhere
	drainer interface{ Refuse(reason error) }

	lost       []string             // streams to set up
	made       map[string]time.Time // creation of known streams
	reconnects uint64
	back       chan struct{} // NATS may be back with another store
}

// look fails when the embedded server needs a restart.
func (s *storage) look(context.Context) (time.Duration, error) {
	if n := s.broker.Conn().Stats().Reconnects; n != s.reconnects {
		s.reconnects = n
		wake(s.back)
	}
	if s.check == nil {
		return checkAgain, nil
	}
	return checkAgain, s.checked(s.check())
}

func (s *storage) share(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	s.ration(ctx)
	return restAfter(time.Since(began), len(s.known.policies())), nil
}

func restAfter(took time.Duration, policies int) time.Duration {
	return min(max(rationAgain, rationShare*took), roundAgain(rationLatest, policies))
}

func roundAgain(least time.Duration, policies int) time.Duration {
	return max(least, time.Duration(policies)*roundOfEach)
}

// Broken files stay broken: the process ends, to be restarted.
func (s *storage) checked(err error) error {
	refuse := err
	short := files.Short(err) // jobs wait for descriptors by themselves
	if short {
		refuse = fmt.Errorf("%w: %w: %w", jet.ErrUnavailable, jet.ErrNotSent, err)
	}
	s.broker.Refuse(refuse)
	if s.drainer != nil && !short {
		s.drainer.Refuse(err)
	}
	if errors.Is(err, embedded.ErrBroken) {
		s.log.Error(
			"the embedded NATS server could not write and must restart: the process ends",
			"error", err)
		return err
	}
	s.sink.Take(queue.Event{Type: jet.EventWritable, Value: jet.Whether(err == nil)})
	s.notices.Tell(&fileless, "", notice.If(short), "limit", files.Limit(), "error", err)
	s.notices.Tell(&readOnly, "", notice.If(err != nil && !short), "error", err)
	return nil
}

func (s *storage) ration(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	policies := s.known.queues()
	found, err := s.broker.Ration(ctx, policies...)
	if ctx.Err() != nil {
		return
	}
	if found.Made != nil {
		s.findLost(ctx, found.Made, policies)
	}
	if err == nil || errors.Is(err, jet.ErrStorage) || !errors.Is(err, jet.ErrUnavailable) {
		s.notices.Tell(&unshared, "", notice.Error(err), "error", err)
	}
	if err != nil {
		return
	}
	s.notices.Tell(&boundless, "", notice.If(found.Max == 0))
	if found.Lacks != "" {
		s.notices.Tell(&lacking, found.Lacks, found.Lacks)
	}
	s.notices.Only(&lacking, func(limits string) bool { return limits == found.Lacks })
	s.sink.Take(queue.Event{Type: jet.EventStored, Data: found})
	s.warn(found)
}

// findLost finds streams that were deleted, or lost by NATS, and sets everything up again, even if
// another process did, whose file has other policies. Streams of deleted or unknown policies are
// not missed.
func (s *storage) findLost(ctx context.Context, made map[string]time.Time,
	policies []policy.Policy) {

	jobs := map[string]bool{}
	for _, p := range policies {
		jobs[p.Name] = true
	}
	for name, was := range s.made {
		p, ours := strings.CutPrefix(name, s.broker.Names().Stream(""))
		switch now := made[name]; {
		case now.Equal(was):
		case ours && policy.IsName(p) && !jobs[p]:
			delete(s.made, name)
		case s.broker.Replaced(ctx, name, was):
			delete(s.made, name)
			s.lost = append(s.lost, name)
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
	slices.Sort(s.lost)
	if len(s.lost) == 0 {
		return
	}
	s.notices.Tell(&lost, "", strings.Join(s.lost, ", "), "streams", s.lost)
	if err := s.setUpAgain(ctx); err != nil {
		s.log.Warn("what NATS lost cannot be recreated yet: retrying", "error", err)
		return
	}
	s.lost = nil
	s.notices.Tell(&lost, "", "")
}

// setUpAgain sets up what JetStream has lost, except policies written through the API.
func (s *storage) setUpAgain(ctx context.Context) error {
	err := s.broker.Setup(ctx)
	if err == nil {
		err = s.writer.putAgain(ctx)
	}
	if err != nil {
		return err
	}
	for _, p := range s.known.queues() {
		_ = s.streams.broker.Apply(ctx, p) // streams repeats failures
	}
	return nil
}

func (s *storage) warn(found jet.Storage) {
	fills := map[string]jet.Fill{"the store": found.Fill}
	for name, fill := range found.Jobs {
		fills["policy "+name] = fill
	}
	for name, fill := range fills {
		s.notices.Tell(&full, name, notice.If(fill.High()), "used", policy.Size(fill.Used), "max",
			policy.Size(fill.Max))
	}
	s.notices.Only(&full, has(fills))
	for group, c := range found.Copies {
		state := ""
		if c.Lacking > 0 {
			state = fmt.Sprintf("%d, with %d of %d", c.Lacking, c.Current, c.Wanted)
		}
		s.notices.Tell(&uncopied, group, state)
	}
	s.notices.Only(&uncopied, has(found.Copies))
}

func (s *storage) fit() error {
	if len(s.notices.Open(&fileless)) > 0 {
		return fmt.Errorf("%w: the process has no free file descriptor", jet.ErrUnavailable)
	}
	if len(s.notices.Open(&readOnly)) > 0 {
		return fmt.Errorf("%w: the disk cannot be written", jet.ErrStorage)
	}
	if names := s.notices.Open(&lost)[""]; names != "" {
		return fmt.Errorf("%w: NATS has lost %s, not set up again yet", jet.ErrUnavailable, names)
	}
	return nil
}

func (s *storage) notes() []string { return s.notices.Notes(&lacking, &full, &uncopied) }
