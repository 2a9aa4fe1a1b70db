package jet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/base/cron"
	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/internal/base/zones"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/queue"
)

// Schedules are stored in one stream, under
//
//	penstock.schedule.on.<policy>.<name>.<key>    active
//	penstock.schedule.off.<policy>.<name>.<key>   paused
//	penstock.schedule.next.<policy>.<name>.<key>  its next time: a message schedule of the server
//	penstock.schedule.due.<policy>.<name>.<key>   that time has come, until its job is stored
//	penstock.schedule.file.<set>                  schedules of a set of files
//
// If a crash has left both on and off, on counts.
const (
	scheduleOn   = "on"
	scheduleOff  = "off"
	scheduleNext = "next"
	scheduleDue  = "due"
)

// Bounds of an installation's schedules, and of their bodies.
const (
	MaxSchedules     = 10_000
	MaxScheduledBody = 64 << 10
)

// Headers of a schedule.
const (
	HeaderSchedule     = "Penstock-Schedule"
	HeaderScheduleZone = "Penstock-Schedule-Zone"
	HeaderScheduleName = "Penstock-Schedule-Name" // of a request
	headerScheduleSet  = "Penstock-Schedule-Set"
	headerScheduleBy   = "Penstock-Schedule-By"
	// of a timer: its time is the schedule's first one after this instant
	headerScheduleAfter = "Penstock-Schedule-After"
)

// Headers of the server's message schedules.
const (
	headerNATSSchedule = "Nats-Schedule"
	headerNATSTarget   = "Nats-Schedule-Target"
)

// ErrSchedule: a schedule has no times.
var ErrSchedule = errors.New("no schedule")

// Schedule makes jobs of one key at certain times.
type Schedule struct {
	Policy string
	Key    queue.Key
	Name   string // within its key
	// When is a cron pattern of six fields, the first in seconds; @every and a duration; @hourly,
	// @daily, @weekly, @monthly or @yearly; or @at and a time.
	When   string
	Zone   string // of a cron pattern; empty: UTC
	Paused bool
	Set    string // of configuration files, or empty
	By     string // client; empty: a file, or unnamed

	Header map[string][]string
	Body   []byte

	seq    uint64 // 0: not read
	stored time.Time
}

// ID identifies a schedule in logs.
func (s Schedule) ID() string { return s.Policy + "." + s.Name + "." + string(s.Key) }

// Tick is one time of a schedule.
type Tick struct {
	Schedule
	// ID is the same whenever the same tick is delivered.
	ID string
	// Next is the following tick, or zero.
	Next   time.Time
	Stored time.Time
	First  bool
}

const (
	every   = "@every "
	instant = "@at "
)

// Next returns the schedule's first time after now, or a zero time: none comes, it is paused, or it
// is unknown until the next tick.
func (s Schedule) Next(now time.Time, last LastRun) (at time.Time) {
	if s.Paused {
		return at
	}
	if strings.HasPrefix(s.When, every) {
		if s.stored.IsZero() {
			s.stored = now
		}
		if at, _ = s.next(s.stored); at.Before(now) {
			at = last.next
		}
	} else {
		at, _ = s.next(now)
	}
	if at.Before(now) {
		return time.Time{}
	}
	return at.UTC()
}

// next returns the schedule's first time after an instant, or a zero time. An @every counts from
// that instant.
func (s Schedule) next(after time.Time) (at time.Time, err error) {
	if text, is := strings.CutPrefix(s.When, instant); is {
		if at, err = time.Parse(time.RFC3339, text); err == nil && !at.After(after) {
			at = time.Time{}
		}
		return at, s.unsound(err)
	}
	if text, is := strings.CutPrefix(s.When, every); is {
		if after.Before(s.stored) { // a timer of the schedule that this one replaced
			after = s.stored
		}
		pause, err := time.ParseDuration(text)
		if err == nil && pause < time.Second {
			err = fmt.Errorf("%v: want at least 1s", pause)
		}
		return after.Round(time.Second).Add(pause), s.unsound(err)
	}
	pattern, err := cron.Parse(s.When)
	if err != nil {
		return after, s.unsound(err)
	}
	zone, err := zones.Load(cmp.Or(s.Zone, "UTC"))
	if err != nil {
		return after, s.unsound(err)
	}
	return pattern.Next(after, zone), nil
}

func (s Schedule) unsound(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %q: %w", ErrSchedule, s.When, err)
}

// Schedules are an installation's, and their timers.
type Schedules struct {
	js       *jsapi.Conn
	names    Names
	replicas int
	refusal  *atomic.Pointer[error]
	log      *slog.Logger
}

// Schedules returns the schedules of the installation.
func (b *Broker) Schedules() *Schedules {
	return &Schedules{b.js, b.names, b.replicas, &b.refusal, b.log}
}

func (n Names) schedules() string { return n.upper + "_SCHEDULES" }

func (n Names) schedule(kind string, s Schedule) string {
	return n.lower + ".schedule." + kind + "." + s.Policy + "." + s.Name + "." + string(s.Key)
}

func (n Names) parseSchedule(subject string) (s Schedule, ok bool) {
	words := strings.SplitN(strings.TrimPrefix(subject, n.lower+".schedule."), ".", 4)
	if len(words) != 4 {
		return s, false
	}
	return Schedule{Policy: words[1], Name: words[2], Key: queue.Key(words[3]),
		Paused: words[0] == scheduleOff}, true
}

// SetUp creates the stream of schedules. It is idempotent.
func (ss *Schedules) SetUp(ctx context.Context) (err error) {
	defer errs.Annotate(&err, "set up schedules")
	return ss.js.Ensure(ctx, jetstream.StreamConfig{
		Name: ss.names.schedules(), Description: "Penstock: schedules of jobs",
		Subjects:  []string{ss.names.lower + ".schedule.>"},
		Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
		Discard: jetstream.DiscardOld, MaxMsgs: -1, MaxBytes: -1, Replicas: ss.replicas,
		AllowMsgSchedules: true, AllowRollup: true, AllowDirect: true,
	})
}

// Put stores or replaces a schedule. It returns [ErrSchedule], and [ErrStreamFull] beyond
// [MaxSchedules].
func (ss *Schedules) Put(ctx context.Context, s Schedule) error {
	ctx, cancel := context.WithTimeout(ctx, 2*ss.js.Timeout)
	defer cancel()
	if err := ss.SetUp(ctx); err != nil {
		return err
	}
	others, err := ss.subjects(ctx, "*")
	if err != nil {
		return err
	}
	on, off := ss.names.schedule(scheduleOn, s), ss.names.schedule(scheduleOff, s)
	if len(others) >= MaxSchedules && !slices.Contains(others, on) &&
		!slices.Contains(others, off) {
		return fmt.Errorf("%w: there are %d schedules", ErrStreamFull, len(others))
	}
	now, err := ss.time(ctx)
	if err != nil {
		return err
	}
	return ss.store(ctx, s, now)
}

// store sets the timer to the schedule's first time after an instant.
func (ss *Schedules) store(ctx context.Context, s Schedule, after time.Time,
	o ...jetstream.PublishOpt) error {
	if reason := ss.refusal.Load(); reason != nil {
		return *reason
	}
	m := nats.NewMsg(ss.names.schedule(scheduleOn, s))
	maps.Copy(m.Header, s.Header)
	for name, value := range map[string]string{HeaderSchedule: s.When, HeaderScheduleZone: s.Zone,
		headerScheduleSet: s.Set, headerScheduleBy: s.By} {
		if value != "" {
			m.Header.Set(name, value)
		}
	}
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	m.Data = s.Body
	stale := []string{ss.names.schedule(scheduleOff, s)}
	if s.Paused {
		stale = []string{m.Subject, ss.names.schedule(scheduleNext, s)}
		m.Subject = ss.names.schedule(scheduleOff, s)
	} else if err := ss.setTimer(ctx, s, after); err != nil {
		return err // the timer comes first: without its schedule it does nothing
	}
	if _, err := ss.js.PublishMsg(ctx, m, o...); err != nil {
		return fmt.Errorf("store a schedule: %w", jsapi.Translate(err))
	}
	return ss.purge(ctx, stale...)
}

// Read returns a schedule, or ErrNotFound.
func (ss *Schedules) Read(ctx context.Context, policy string, key queue.Key,
	name string) (Schedule, error) {
	s := Schedule{Policy: policy, Key: key, Name: name}
	for _, kind := range []string{scheduleOn, scheduleOff} {
		found, err := ss.read(ctx, ss.names.schedule(kind, s))
		if err == nil || !errors.Is(err, ErrNotFound) {
			return found, err
		}
	}
	return s, fmt.Errorf("schedule %s: %w", name, ErrNotFound)
}

func (ss *Schedules) read(ctx context.Context, subject string) (s Schedule, err error) {
	m, err := ss.last(ctx, subject)
	if err != nil {
		return s, err
	}
	s, err = ss.parse(subject, m.Header, m.Data)
	s.seq, s.stored = m.Seq, m.Time
	return s, err
}

func (ss *Schedules) last(ctx context.Context, subject string) (jsapi.Message, error) {
	m, err := ss.js.Message(ctx, ss.names.schedules(), map[string]any{"last_by_subj": subject})
	if errors.Is(err, ErrNoStream) {
		err = ErrNotFound
	}
	return m, err
}

func (ss *Schedules) parse(subject string, h nats.Header, body []byte) (Schedule, error) {
	s, ok := ss.names.parseSchedule(subject)
	if !ok {
		return s, fmt.Errorf("%w: subject %s", ErrSchedule, subject)
	}
	s.When, s.Zone, s.Body = h.Get(HeaderSchedule), h.Get(HeaderScheduleZone), body
	s.Set, s.By = h.Get(headerScheduleSet), h.Get(headerScheduleBy)
	s.Header = map[string][]string{}
	for name, values := range h {
		if !strings.HasPrefix(name, "Nats-") && !strings.HasPrefix(name, HeaderSchedule) {
			s.Header[name] = values
		}
	}
	return s, nil
}

// List lists the schedules of a policy, "*" for all.
func (ss *Schedules) List(ctx context.Context, policy string) ([]Schedule, error) {
	all, err := ss.Names(ctx, policy)
	if err != nil {
		return nil, err
	}
	return ss.ReadAll(ctx, all)
}

// Names is [Schedules.List] with only the names, keys and policies.
func (ss *Schedules) Names(ctx context.Context, policy string) (all []Schedule, err error) {
	subjects, err := ss.subjects(ctx, policy)
	known := map[string]bool{}
	for _, subject := range subjects {
		if s, ok := ss.names.parseSchedule(subject); ok && !known[s.ID()] {
			known[s.ID()] = true
			all = append(all, s)
		}
	}
	return all, err
}

// ReadAll reads the schedules of a list. It leaves out those that have just been removed.
func (ss *Schedules) ReadAll(ctx context.Context, names []Schedule) (all []Schedule, err error) {
	for _, name := range names {
		s, err := ss.Read(ctx, name.Policy, name.Key, name.Name)
		switch {
		case err == nil:
			all = append(all, s)
		case !errors.Is(err, ErrNotFound):
			return nil, err
		}
	}
	return all, nil
}

func (ss *Schedules) subjects(ctx context.Context, policy string) (all []string, err error) {
	for _, kind := range []string{scheduleOn, scheduleOff} {
		filter := ss.names.lower + ".schedule." + kind + "." + policy + ".>"
		info, err := ss.js.StreamInfo(ctx, ss.names.schedules(), filter)
		if errors.Is(err, ErrNoStream) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list schedules: %w", err)
		}
		all = append(all, slices.Sorted(maps.Keys(info.State.Subjects))...)
	}
	return all, nil
}

// Remove removes a schedule, and its waiting tick.
func (ss *Schedules) Remove(ctx context.Context, policy string, key queue.Key,
	name string) error {
	if _, err := ss.Read(ctx, policy, key, name); err != nil {
		return err
	}
	s := Schedule{Policy: policy, Key: key, Name: name}
	var subjects []string
	for _, kind := range []string{scheduleOn, scheduleOff, scheduleNext, scheduleDue} {
		subjects = append(subjects, ss.names.schedule(kind, s))
	}
	return ss.purge(ctx, subjects...)
}

func (ss *Schedules) purge(ctx context.Context, subjects ...string) error {
	for _, subject := range subjects {
		if _, err := ss.js.Purge(ctx, ss.names.schedules(), subject, 0); err != nil {
			return fmt.Errorf("remove a schedule: %w", err)
		}
	}
	return nil
}

// Replace stores a schedule if the stored one is still before (zero: missing), or returns
// [ErrConflict]. It returns [ErrSchedule] like [Schedules.Put], and does not enforce
// [MaxSchedules].
func (ss *Schedules) Replace(ctx context.Context, before, s Schedule) error {
	ctx, cancel := context.WithTimeout(ctx, 2*ss.js.Timeout)
	defer cancel()
	last := before.seq
	if before.Paused != s.Paused {
		last = 0 // of the other subject
	}
	now, err := ss.time(ctx)
	if err != nil {
		return err
	}
	return ss.store(ctx, s, now, jetstream.WithExpectLastSequencePerSubject(last))
}

// AppliedFile lists the schedules written by a set of files, in the files' notation.
type AppliedFile struct {
	Texts []string
	seq   uint64
}

func (ss *Schedules) filed(set string) string { return ss.names.lower + ".schedule.file." + set }

// AppliedFile returns what a file's set of schedules was when it was last applied; zero: never.
func (ss *Schedules) AppliedFile(ctx context.Context, set string) (f AppliedFile, err error) {
	defer errs.Annotate(&err, "read what a file has written")
	m, err := ss.last(ctx, ss.filed(set))
	if errors.Is(err, ErrNotFound) {
		return f, nil
	}
	if err == nil {
		f.seq, err = m.Seq, json.Unmarshal(m.Data, &f.Texts)
	}
	return f, err
}

// SetAppliedFile replaces the list of a set, or returns [ErrConflict] if it is no longer before.
func (ss *Schedules) SetAppliedFile(ctx context.Context, set string, before AppliedFile,
	texts []string) error {
	ctx, cancel := context.WithTimeout(ctx, ss.js.Timeout)
	defer cancel()
	m := nats.NewMsg(ss.filed(set))
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	var err error
	if m.Data, err = json.Marshal(texts); err == nil {
		_, err = ss.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(before.seq))
	}
	if err != nil {
		return fmt.Errorf("note what a file has written: %w", jsapi.Translate(err))
	}
	return nil
}
