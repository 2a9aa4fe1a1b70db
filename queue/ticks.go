package queue

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/queue/kv"
)

// A killed server loses the message ids of ended jobs and may repeat a schedule's last tick. So the
// admitter notes it once its job is stored, and the drainer before it acknowledges the job. The
// record also says how the schedule's last job ended.

// tickPrefix begins the Idempotency-Key of a tick's job: "schedule <name> <when> <next time>", and
// of a run by hand: "schedule <name> run <unique> <next time>".
const (
	tickPrefix = "schedule "
	byHand     = "run "
)

// RunID returns the Idempotency-Key of a run by hand, before the schedule's next time, if any.
func RunID(s Schedule, next time.Time) string {
	return tickPrefix + s.Name + " " + byHand + jsapi.NewID() + " " +
		next.UTC().Format(time.RFC3339Nano)
}

// Ran is the last run of a schedule.
type Ran struct {
	At     time.Time `json:"at,omitzero"`
	Job    uint64    `json:"job,omitempty"`    // sequence of its job
	Missed string    `json:"missed,omitempty"` // why it has no job
	End    job.End   `json:"end,omitempty"`    // of the job; empty: it has not ended, or is unknown
}

type notedTick struct {
	V    int       `json:"v"`
	Tick string    `json:"tick"`          // the last one with a job
	Next time.Time `json:"next,omitzero"` // after the last one
	Ran
}

func tickKey(policy string, k job.Key, name string) string {
	sum := sha256.Sum256([]byte(string(k) + " " + name))
	return policy + ".tick-" + hex.EncodeToString(sum[:16])
}

// NoteRun notes a tick or run by hand, with its job or why it has none, until 14 days after the
// schedule's next time.
func (b *Broker) NoteRun(ctx context.Context, policy string, k job.Key, id string,
	ran Ran) (err error) {
	defer errs.Annotate(&err, "note a run of a schedule")
	name, what, _ := strings.Cut(strings.TrimPrefix(id, tickPrefix), " ")
	kept := endedTTL + max(0, time.Until(nextOf(id))).Truncate(time.Second)
	_, err = b.tables.ended.Update(ctx, tickKey(policy, k, name), nil, kept,
		func(r kv.Record) ([]byte, error) {
			noted, err := readTick(r)
			if err != nil {
				return nil, err
			}
			noted.note(id, ran, strings.HasPrefix(what, byHand))
			return json.Marshal(noted)
		})
	return err
}

func (n *notedTick) note(id string, ran Ran, hand bool) {
	newer := !hand && follows(id, n.Tick) || hand && ran.At.After(n.At)
	switch {
	case ran.Job > 0 && ran.Job == n.Job && (hand || !newer): // noted by drainer and admitter
		n.End = cmp.Or(ran.End, n.End)
	case newer:
		n.Ran = ran
	}
	if newer && !hand {
		n.Next = nextOf(id)
		if ran.Job > 0 {
			n.Tick = id
		}
	}
}

func nextOf(id string) time.Time {
	next, err := time.Parse(time.RFC3339Nano, id[strings.LastIndex(id, " ")+1:])
	if err != nil {
		return time.Time{} // none follows
	}
	return next
}

// TickNoted reports whether a tick is the last one noted of its schedule.
func (b *Broker) TickNoted(ctx context.Context, t Tick) (bool, error) {
	record, err := b.tables.ended.Read(ctx, tickKey(t.Policy, t.Key, t.Name))
	if err != nil && !errors.Is(err, ErrNotFound) {
		return false, fmt.Errorf("read a noted tick: %w", err)
	}
	noted, err := readTick(record)
	return noted.Tick == t.ID, err
}

func readTick(r kv.Record) (noted notedTick, err error) {
	if r.Value == nil || json.Unmarshal(r.Value, &noted) != nil {
		return notedTick{V: job.FormatVersion}, nil // if damaged, two jobs rather than no job
	}
	if noted.V != job.FormatVersion {
		err = fmt.Errorf("%w: record %s", job.ErrVersion, r.Key)
	}
	return noted, err
}

// LastRun is the last run of a schedule; zero if none is known.
type LastRun struct {
	Ran
	Noted time.Time // by the server's clock, not before the job was stored
	next  time.Time
}

// LastRuns reads the last runs of schedules, by their [Schedule.ID].
func (b *Broker) LastRuns(ctx context.Context, all ...Schedule) (map[string]LastRun, error) {
	ids := map[string]string{}
	for _, s := range all {
		ids[tickKey(s.Policy, s.Key, s.Name)] = s.ID()
	}
	records, err := b.tables.ended.Records(ctx, slices.Collect(maps.Keys(ids)))
	if err != nil {
		return nil, fmt.Errorf("read last runs of schedules: %w", err)
	}
	runs := map[string]LastRun{}
	for _, r := range records {
		if noted, err := readTick(r); err == nil { // a newer format is unknown
			runs[ids[r.Key]] = LastRun{noted.Ran, r.Stored, noted.Next}
		}
	}
	return runs, nil
}

// follows reports whether a tick is later than the one noted.
func follows(id, noted string) bool {
	i, j := strings.LastIndex(id, " "), strings.LastIndex(noted, " ")
	if j < 0 || id[:i] != noted[:j] {
		return true // the first, or of a changed schedule
	}
	a, err := time.Parse(time.RFC3339Nano, id[i+1:])
	b, other := time.Parse(time.RFC3339Nano, noted[j+1:])
	return err != nil || other != nil || a.After(b)
}

type ticked struct {
	mu   sync.Mutex
	jobs map[uint64]tickedJob
}

type tickedJob struct {
	key    job.Key
	id     string
	stored time.Time
}

func (t *ticked) learn(a job.Arrived) {
	id := a.Header[job.HeaderIdempotencyKey]
	if len(id) != 1 || !strings.HasPrefix(id[0], tickPrefix) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.jobs == nil {
		t.jobs = map[uint64]tickedJob{}
	}
	t.jobs[a.Seq] = tickedJob{a.Key, id[0], a.Stored}
}

func (t *ticked) forget(seq uint64) (j tickedJob, found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	j, found = t.jobs[seq]
	delete(t.jobs, seq)
	return j, found
}

// noteEnd notes how a schedule's job ended, unless the backlog is closed.
func (l *Backlog) noteEnd(seq uint64, j tickedJob) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), l.b.js.Timeout)
		err := l.b.noteEnd(ctx, l.o.Policy, seq, j)
		cancel()
		if err == nil {
			return
		}
		select {
		case <-time.After(ackRepeat):
		case <-l.stop:
			return
		}
	}
}

// noteEnd relies on the record of any other end than done, which comes before it.
func (b *Broker) noteEnd(ctx context.Context, policy string, seq uint64, j tickedJob) error {
	ran := Ran{At: j.stored, Job: seq, End: job.EndDone}
	end, err := readEnded(ctx, b.tables.ended, policy, seq)
	switch {
	case err == nil && end.Accepted.Equal(j.stored):
		ran.End = end.How
	case errors.Is(err, job.ErrVersion):
		ran.End = ""
	case err != nil && !errors.Is(err, ErrNotFound):
		return err
	}
	return b.NoteRun(ctx, policy, j.key, j.id, ran)
}

// A schedule has one timer at a time, a message schedule of the server for one instant: where
// clocks change at midnight, the server's cron patterns skip times and invent others (nats-server
// 2.15.3). The process that takes its tick sets the next timer before the tick has its job. A
// repeated tick has the same ID, and sets no second timer.

const (
	// ticksWait bounds the time that a process holds a tick.
	ticksWait = 30 * time.Second
	// times that are later than this, after an outage, are left out
	lateTick = 10 * time.Second
	// while a tick cannot be handled
	tickAgain = time.Second
)

// Ticks calls take for each tick, one at a time, until ctx ends. Each tick goes to one process at a
// time, and again after the returned time unless done.
func (b *Broker) Ticks(ctx context.Context,
	take func(Tick) (again time.Duration, done bool)) (err error) {
	defer func() {
		if ctx.Err() != nil {
			err = nil
		}
		errs.Annotate(&err, "hear of ticks")
	}()
	making, cancel := context.WithTimeout(ctx, b.js.Timeout)
	defer cancel()
	consumer, err := b.js.CreateOrUpdateConsumer(making, b.names.schedules(),
		jetstream.ConsumerConfig{Durable: "due",
			AckPolicy: jetstream.AckExplicitPolicy, AckWait: ticksWait, MaxAckPending: MaxSchedules,
			FilterSubject: b.names.lower + ".schedule." + scheduleDue + ".>"})
	if err != nil {
		return jsapi.Translate(err)
	}
	ended := make(chan error, 1)
	consuming, err := consumer.Consume(func(m jetstream.Msg) { b.ticked(m, take) },
		jetstream.PullMaxMessages(100),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
			if errors.Is(err, jetstream.ErrConsumerDeleted) ||
				errors.Is(err, jetstream.ErrConsumerNotFound) ||
				errors.Is(err, jetstream.ErrNoHeartbeat) {
				select {
				case ended <- err:
				default:
				}
			}
		}))
	if err != nil {
		return jsapi.Translate(err)
	}
	defer func() {
		if b.nc.IsConnected() {
			consuming.Drain()
		} else {
			consuming.Stop() // draining would wait for the server
		}
		<-consuming.Closed()
	}()
	if err := b.setTimers(ctx); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

func (b *Broker) ticked(m jetstream.Msg, take func(Tick) (time.Duration, bool)) {
	tick, err := b.tickOf(m)
	again, done := tickAgain, false
	switch {
	case errors.Is(err, errNoTick):
		done = true
	case err == nil:
		again, done = take(tick)
	case tick.First && !errors.Is(err, ErrNotFound):
		b.log.Warn("a tick of a schedule has to wait", "subject", m.Subject(), "error", err)
	}
	if done && err == nil && tick.Next.IsZero() {
		done = b.over(tick.Schedule) == nil
	}
	if done {
		err = m.Ack()
	} else {
		err = m.NakWithDelay(max(again, time.Millisecond))
	}
	if err != nil {
		b.log.Debug("tick will be redelivered", "error", err)
	}
}

// over removes a schedule after its last tick, unless it was replaced.
func (b *Broker) over(s Schedule) error {
	ctx, cancel := context.WithTimeout(context.Background(), b.js.Timeout)
	defer cancel()
	err := b.deleteMessage(ctx, b.names.schedules(), s.seq)
	if jsapi.IsRefusal(err) {
		return nil
	}
	return err
}

// errNoTick: a message is not a tick of a schedule, or not any more.
var errNoTick = errors.New("no tick")

func (b *Broker) tickOf(m jetstream.Msg) (tick Tick, err error) {
	s, ok := b.names.parseSchedule(m.Subject())
	after, err := time.Parse(time.RFC3339Nano, m.Headers().Get(headerScheduleAfter))
	if !ok || err != nil {
		b.log.Warn("tick without a schedule dropped", "subject", m.Subject(), "error", err)
		return tick, errNoTick
	}
	if meta, err := m.Metadata(); err == nil {
		tick.First, tick.Stored = meta.NumDelivered == 1, meta.Timestamp
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*b.js.Timeout)
	defer cancel()
	now, err := b.schedulesTime(ctx)
	if err != nil {
		return tick, err
	}
	tick.Schedule, err = b.Schedule(ctx, s.Policy, s.Key, s.Name)
	switch {
	case errors.Is(err, ErrNotFound) && now.After(tick.Stored.Add(ticksWait)):
		return tick, errNoTick // the schedule was not just being stored
	case err == nil && tick.Paused:
		return tick, errNoTick
	case err == nil:
		err = b.due(ctx, &tick, after, now)
	}
	return tick, err
}

// due completes a timer's tick and sets the next timer. The schedule's times count, not the
// timer's: the schedule may have changed, or the rules of its zone.
func (b *Broker) due(ctx context.Context, tick *Tick, after, now time.Time) error {
	at, err := tick.next(after)
	switch {
	case err != nil:
		return err
	case at.IsZero():
		return errNoTick
	case at.After(now):
		return cmp.Or(b.setTimerIfNone(ctx, tick.Schedule, after), errNoTick)
	}
	if tick.Next, err = tick.next(at); err != nil {
		return err
	}
	tick.ID = tickPrefix + tick.Name + " " + tick.When
	if tick.Next.IsZero() {
		return nil
	}
	tick.ID += " " + tick.Next.Format(time.RFC3339Nano)
	from := at
	if recent := now.Add(-lateTick); from.Before(recent) {
		from = recent
	}
	return b.setTimerIfNone(ctx, tick.Schedule, from)
}

// setTimer has the server tick once, at a schedule's first time after an instant.
func (b *Broker) setTimer(ctx context.Context, s Schedule, after time.Time,
	o ...jetstream.PublishOpt) error {
	if strings.HasPrefix(s.When, instant) {
		after = time.Time{} // it may have passed
	}
	at, err := s.next(after)
	if err != nil {
		return err
	}
	if at.IsZero() {
		return fmt.Errorf("%w: %q: no such time comes", ErrSchedule, s.When)
	}
	m := nats.NewMsg(b.names.schedule(scheduleNext, s))
	m.Header.Set(headerScheduleAfter, after.UTC().Format(time.RFC3339Nano))
	m.Header.Set(headerNATSSchedule, instant+at.UTC().Format(time.RFC3339Nano))
	m.Header.Set(headerNATSTarget, b.names.schedule(scheduleDue, s))
	if _, err := b.js.PublishMsg(ctx, m, o...); err != nil {
		return fmt.Errorf("set the timer of a schedule: %w", jsapi.Translate(err))
	}
	return nil
}

func (b *Broker) setTimerIfNone(ctx context.Context, s Schedule, after time.Time) error {
	err := b.setTimer(ctx, s, after, jetstream.WithExpectLastSequencePerSubject(0))
	if errors.Is(err, ErrConflict) {
		return nil
	}
	return err
}

// schedulesTime is the time by the clock of the server that ticks.
func (b *Broker) schedulesTime(ctx context.Context) (time.Time, error) {
	info, err := b.js.StreamInfo(ctx, b.names.schedules(), "")
	if err != nil {
		return time.Time{}, fmt.Errorf("ask for the server's time: %w", err)
	}
	return info.TimeStamp, nil
}

// setTimers gives timers to schedules that have none because a process has crashed.
func (b *Broker) setTimers(ctx context.Context) error {
	prefix := b.names.lower + ".schedule."
	info, err := b.js.StreamInfo(ctx, b.names.schedules(), prefix+"*.*.*.>")
	if err != nil {
		return fmt.Errorf("list timers of schedules: %w", err)
	}
	for subject := range info.State.Subjects {
		of, active := strings.CutPrefix(subject, prefix+scheduleOn+".")
		_, timed := info.State.Subjects[prefix+scheduleNext+"."+of]
		if _, due := info.State.Subjects[prefix+scheduleDue+"."+of]; !active || timed || due {
			continue
		}
		s, err := b.readSchedule(ctx, subject)
		if err == nil {
			err = b.setTimerIfNone(ctx, s, info.TimeStamp)
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return nil
}
