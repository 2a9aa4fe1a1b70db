package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/errs"
	"github.com/penstock-mq/penstock/queue/internal/jsapi"
)

// A cron pattern has one timer at a time, a message schedule of the server for one instant. The
// process that takes its tick sets the next timer before the tick has its job. A repeated tick has
// the same ID, and sets no second timer.

const (
	// ticksWait bounds the time that a process holds a tick.
	ticksWait = 30 * time.Second
	// times of a cron pattern that are later than this, after an outage, are left out
	lateTick = 10 * time.Second
	// while a tick cannot be handled
	tickAgain = time.Second
)

var tickConsumers = map[string]string{scheduleTick: "ticks", scheduleDue: "due"}

// Ticks calls take for each tick, one at a time, until ctx ends. Each tick goes to one process at a
// time, and again after the returned time unless done.
func (b *Broker) Ticks(ctx context.Context,
	take func(Tick) (again time.Duration, done bool)) (err error) {
	defer errs.Annotate(&err, "hear of ticks")
	ended := make(chan error, 2)
	var one sync.Mutex
	for _, kind := range []string{scheduleDue, scheduleTick} {
		stop, err := b.consumeTicks(ctx, kind, ended, func(m jetstream.Msg) {
			one.Lock()
			defer one.Unlock()
			b.ticked(m, take)
		})
		if err != nil {
			return err
		}
		defer stop()
	}
	if err := b.setTimers(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

func (b *Broker) consumeTicks(ctx context.Context, kind string, ended chan<- error,
	take func(jetstream.Msg)) (stop func(), err error) {
	making, cancel := context.WithTimeout(ctx, b.js.Timeout)
	defer cancel()
	consumer, err := b.js.CreateOrUpdateConsumer(making, b.names.schedules(),
		jetstream.ConsumerConfig{Durable: tickConsumers[kind],
			AckPolicy: jetstream.AckExplicitPolicy, AckWait: ticksWait, MaxAckPending: MaxSchedules,
			FilterSubject: b.names.lower + ".schedule." + kind + ".>"})
	if err != nil {
		return nil, jsapi.Translate(err)
	}
	consuming, err := consumer.Consume(take, jetstream.PullMaxMessages(100),
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
		return nil, jsapi.Translate(err)
	}
	return func() {
		if b.nc.IsConnected() {
			consuming.Drain()
		} else {
			consuming.Stop() // draining would wait for the server
		}
		<-consuming.Closed()
	}, nil
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
	if done {
		err = m.Ack()
	} else {
		err = m.NakWithDelay(max(again, time.Millisecond))
	}
	if err != nil {
		b.log.Debug("tick will be redelivered", "error", err)
	}
}

// errNoTick: a message is not a tick of a schedule, or not any more.
var errNoTick = errors.New("no tick")

func (b *Broker) tickOf(m jetstream.Msg) (tick Tick, err error) {
	if tick.Schedule, err = b.scheduleOf(m.Subject(), m.Headers(), m.Data()); err != nil {
		b.log.Warn("tick without a schedule dropped", "error", err)
		return tick, errNoTick
	}
	if meta, err := m.Metadata(); err == nil {
		tick.First, tick.Stored = meta.NumDelivered == 1, meta.Timestamp
	}
	next := m.Headers().Get("Nats-Schedule-Next") // the server's id of a tick
	if strings.HasPrefix(m.Subject(), b.names.lower+".schedule."+scheduleDue+".") {
		if next, err = b.due(&tick, m.Headers().Get(headerScheduleAfter)); err != nil {
			return tick, err
		}
	}
	tick.ID = tickPrefix + tick.Name + " " + tick.When
	if next != noneFollows {
		tick.ID += " " + next
		if at, err := time.Parse(time.RFC3339Nano, next); err == nil {
			tick.Next = at
		}
	}
	return tick, nil
}

// noneFollows is the server's word for a last tick.
const noneFollows = "purge"

// due reads the schedule of a timer's tick and sets its next timer. It returns the following time
// in the server's notation. The schedule's times count, not the timer's: the schedule may have
// changed, or the rules of its zone.
func (b *Broker) due(tick *Tick, since string) (next string, err error) {
	after, err := time.Parse(time.RFC3339Nano, since)
	if err != nil {
		b.log.Warn("tick without a schedule's time dropped", "error", err)
		return "", errNoTick
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*b.js.Timeout)
	defer cancel()
	now, err := b.schedulesTime(ctx)
	if err != nil {
		return "", err
	}
	s, err := b.Schedule(ctx, tick.Policy, tick.Key, tick.Name)
	switch {
	case errors.Is(err, ErrNotFound) && now.After(tick.Stored.Add(ticksWait)):
		return "", errNoTick // the schedule was not just being stored
	case err != nil:
		return "", err
	case s.Paused, s.byServer():
		return "", errNoTick
	case s.timed: // an earlier version has stored it meanwhile
		return "", cmp.Or(b.takeOver(ctx, s, now), errNoTick)
	}
	tick.Schedule = s
	at, err := s.next(after)
	if err != nil {
		return "", err
	}
	if at.After(now) {
		return "", cmp.Or(b.setTimerIfNone(ctx, s, after), errNoTick)
	}
	from := at
	if recent := now.Add(-lateTick); from.Before(recent) {
		from = recent
	}
	if err := b.setTimerIfNone(ctx, s, from); err != nil {
		return "", err
	}
	following, err := s.next(at)
	if following.IsZero() {
		return noneFollows, err
	}
	return following.Format(time.RFC3339Nano), err
}

// setTimer has the server tick once, at a schedule's first time after an instant.
func (b *Broker) setTimer(ctx context.Context, s Schedule, after time.Time,
	o ...jetstream.PublishOpt) error {
	at, err := s.next(after)
	if err != nil {
		return err
	}
	if at.IsZero() {
		return fmt.Errorf("%w: %q: no such time comes", ErrSchedule, s.When)
	}
	m := nats.NewMsg(b.names.schedule(scheduleNext, s))
	m.Header.Set(headerScheduleAfter, after.UTC().Format(time.RFC3339Nano))
	m.Header.Set(headerNATSSchedule, "@at "+at.UTC().Format(time.RFC3339))
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

// setTimers gives timers to cron patterns that have none: because the server ticks by patterns of
// earlier versions, or because a process has crashed.
func (b *Broker) setTimers(ctx context.Context) error {
	prefix := b.names.lower + ".schedule."
	info, err := b.js.StreamInfo(ctx, b.names.schedules(), prefix+"*.*.*.>")
	if err != nil {
		return fmt.Errorf("list timers of schedules: %w", err)
	}
	var former []Schedule
	for subject := range info.State.Subjects {
		of, active := strings.CutPrefix(subject, prefix+scheduleOn+".")
		_, timed := info.State.Subjects[prefix+scheduleNext+"."+of]
		if _, due := info.State.Subjects[prefix+scheduleDue+"."+of]; !active || timed || due {
			continue
		}
		s, err := b.readSchedule(ctx, subject)
		switch {
		case err == nil && s.byServer():
		case err == nil && s.timed:
			former = append(former, s)
		case err == nil:
			err = b.setTimerIfNone(ctx, s, info.TimeStamp)
		}
		if err := b.unset(s, err); err != nil {
			return err
		}
	}
	if len(former) == 0 {
		return nil
	}
	// A server that was just started makes up for a time that it missed.
	if err := jsapi.Pause(ctx, formerTick); err != nil {
		return err
	}
	now, err := b.schedulesTime(ctx)
	if err != nil {
		return err
	}
	for _, s := range former {
		if err := b.unset(s, b.takeOver(ctx, s, now)); err != nil {
			return err
		}
	}
	return nil
}

// formerTick is how late the server's tick of an earlier version may come.
const formerTick = 2 * time.Second

// takeOver ends the server's ticks by a pattern. A time of which the server may just have made a
// tick counts again: the ticks have the same ID.
func (b *Broker) takeOver(ctx context.Context, s Schedule, now time.Time) error {
	err := b.storeSchedule(ctx, s, now.Add(-formerTick),
		jetstream.WithExpectLastSequencePerSubject(s.seq))
	if errors.Is(err, ErrConflict) {
		return nil
	}
	return err
}

func (b *Broker) unset(s Schedule, err error) error {
	switch {
	case errors.Is(err, ErrSchedule):
		b.log.Warn("the times of a schedule stay the server's, which errs where clocks change at "+
			"midnight: store it again", "policy", s.Policy, "key", s.Key.Raw(), "schedule",
			s.Name, "error", err)
		return nil
	case errors.Is(err, ErrNotFound):
		return nil
	}
	return err
}
