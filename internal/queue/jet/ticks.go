package jet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
)

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
func (ss *Schedules) Ticks(ctx context.Context,
	take func(Tick) (again time.Duration, done bool)) (err error) {
	defer func() {
		if ctx.Err() != nil {
			err = nil
		}
		errs.Annotate(&err, "hear of ticks")
	}()
	making, cancel := context.WithTimeout(ctx, ss.js.Timeout)
	defer cancel()
	consumer, err := ss.js.CreateOrUpdateConsumer(making, ss.names.schedules(),
		jetstream.ConsumerConfig{Durable: "due",
			AckPolicy: jetstream.AckExplicitPolicy, AckWait: ticksWait, MaxAckPending: MaxSchedules,
			FilterSubject: ss.names.lower + ".schedule." + scheduleDue + ".>"})
	if err != nil {
		return jsapi.Translate(err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(100))
	if err != nil {
		return jsapi.Translate(err)
	}
	defer messages.Stop()
	stop := context.AfterFunc(ctx, func() {
		if ss.js.NATS.IsConnected() {
			messages.Drain()
		} else {
			messages.Stop() // draining would wait for the server
		}
	})
	defer stop()
	if err := ss.setTimers(ctx); err != nil {
		return err
	}
	for {
		m, err := messages.Next()
		if err != nil {
			return err
		}
		ss.ticked(m, take)
	}
}

func (ss *Schedules) ticked(m jetstream.Msg, take func(Tick) (time.Duration, bool)) {
	tick, err := ss.tickOf(m)
	again, done := tickAgain, false
	switch {
	case errors.Is(err, errNoTick):
		done = true
	case err == nil:
		again, done = take(tick)
	case tick.First && !errors.Is(err, ErrNotFound):
		ss.log.Warn("a tick of a schedule has to wait", "subject", m.Subject(), "error", err)
	}
	if done && err == nil && tick.Next.IsZero() {
		done = ss.over(tick.Schedule) == nil
	}
	if done {
		err = m.Ack()
	} else {
		err = m.NakWithDelay(max(again, time.Millisecond))
	}
	if err != nil {
		ss.log.Debug("tick will be redelivered", "error", err)
	}
}

// over removes a schedule after its last tick, unless it was replaced.
func (ss *Schedules) over(s Schedule) error {
	ctx, cancel := context.WithTimeout(context.Background(), ss.js.Timeout)
	defer cancel()
	err := ss.js.DeleteMessage(ctx, ss.names.schedules(), s.seq)
	if jsapi.IsRefusal(err) {
		return nil
	}
	return err
}

// errNoTick: a message is not a tick of a schedule, or not any more.
var errNoTick = errors.New("no tick")

func (ss *Schedules) tickOf(m jetstream.Msg) (tick Tick, err error) {
	s, ok := ss.names.parseSchedule(m.Subject())
	after, err := time.Parse(time.RFC3339Nano, m.Headers().Get(headerScheduleAfter))
	if !ok || err != nil {
		ss.log.Warn("tick without a schedule dropped", "subject", m.Subject(), "error", err)
		return tick, errNoTick
	}
	if meta, err := m.Metadata(); err == nil {
		tick.First, tick.Stored = meta.NumDelivered == 1, meta.Timestamp
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*ss.js.Timeout)
	defer cancel()
	now, err := ss.time(ctx)
	if err != nil {
		return tick, err
	}
	tick.Schedule, err = ss.Read(ctx, s.Policy, s.Key, s.Name)
	switch {
	case errors.Is(err, ErrNotFound) && now.After(tick.Stored.Add(ticksWait)):
		return tick, errNoTick // the schedule was not just being stored
	case err == nil && tick.Paused:
		return tick, errNoTick
	case err == nil:
		err = ss.due(ctx, &tick, after, now)
	}
	return tick, err
}

// due completes a timer's tick and sets the next timer. The schedule's times count, not the
// timer's: the schedule may have changed, or the rules of its zone.
func (ss *Schedules) due(ctx context.Context, tick *Tick, after, now time.Time) error {
	at, err := tick.next(after)
	switch {
	case err != nil:
		return err
	case at.IsZero():
		return errNoTick
	case at.After(now):
		return cmp.Or(ss.setTimerIfNone(ctx, tick.Schedule, after), errNoTick)
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
	return ss.setTimerIfNone(ctx, tick.Schedule, from)
}

// setTimer has the server tick once, at a schedule's first time after an instant.
func (ss *Schedules) setTimer(ctx context.Context, s Schedule, after time.Time,
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
	m := nats.NewMsg(ss.names.schedule(scheduleNext, s))
	m.Header.Set(headerScheduleAfter, after.UTC().Format(time.RFC3339Nano))
	m.Header.Set(headerNATSSchedule, instant+at.UTC().Format(time.RFC3339Nano))
	m.Header.Set(headerNATSTarget, ss.names.schedule(scheduleDue, s))
	if _, err := ss.js.PublishMsg(ctx, m, o...); err != nil {
		return fmt.Errorf("set the timer of a schedule: %w", jsapi.Translate(err))
	}
	return nil
}

func (ss *Schedules) setTimerIfNone(ctx context.Context, s Schedule, after time.Time) error {
	err := ss.setTimer(ctx, s, after, jetstream.WithExpectLastSequencePerSubject(0))
	if errors.Is(err, ErrConflict) {
		return nil
	}
	return err
}

// time is the time by the clock of the server that ticks.
func (ss *Schedules) time(ctx context.Context) (time.Time, error) {
	info, err := ss.js.StreamInfo(ctx, ss.names.schedules(), "")
	if err != nil {
		return time.Time{}, fmt.Errorf("ask for the server's time: %w", err)
	}
	return info.TimeStamp, nil
}

// setTimers gives timers to schedules that have none because a process has crashed.
func (ss *Schedules) setTimers(ctx context.Context) error {
	prefix := ss.names.lower + ".schedule."
	info, err := ss.js.StreamInfo(ctx, ss.names.schedules(), prefix+"*.*.*.>")
	if err != nil {
		return fmt.Errorf("list timers of schedules: %w", err)
	}
	for subject := range info.State.Subjects {
		of, active := strings.CutPrefix(subject, prefix+scheduleOn+".")
		_, timed := info.State.Subjects[prefix+scheduleNext+"."+of]
		if _, due := info.State.Subjects[prefix+scheduleDue+"."+of]; !active || timed || due {
			continue
		}
		s, err := ss.read(ctx, subject)
		if err == nil {
			err = ss.setTimerIfNone(ctx, s, info.TimeStamp)
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return nil
}
