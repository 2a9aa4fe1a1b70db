package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
)

// ReplaceSchedule stores a schedule if the stored one is still before (zero: none), or returns
// [ErrConflict]. [ErrSchedule] is as for [Broker.PutSchedule]; [MaxSchedules] is not enforced.
func (b *Broker) ReplaceSchedule(ctx context.Context, before, s Schedule) error {
	ctx, cancel := context.WithTimeout(ctx, 2*b.js.Timeout)
	defer cancel()
	last := before.seq
	if before.Paused != s.Paused {
		last = 0 // of the other subject
	}
	return b.storeSchedule(ctx, s, jetstream.WithExpectLastSequencePerSubject(last))
}

// AppliedFile lists the schedules written by a set of files, in the files' notation.
type AppliedFile struct {
	Texts []string
	seq   uint64
}

func (b *Broker) filed(set string) string { return b.names.lower + ".schedule.file." + set }

// AppliedFile reads the list of a set, which may be empty.
func (b *Broker) AppliedFile(ctx context.Context, set string) (f AppliedFile, err error) {
	m, err := b.lastSchedule(ctx, b.filed(set))
	if errors.Is(err, ErrNotFound) {
		return f, nil
	}
	if err == nil {
		f.seq, err = m.Seq, json.Unmarshal(m.Data, &f.Texts)
	}
	if err != nil {
		return f, fmt.Errorf("read what a file has written: %w", err)
	}
	return f, nil
}

// SetAppliedFile replaces the list of a set, or returns [ErrConflict] if it is no longer before.
func (b *Broker) SetAppliedFile(ctx context.Context, set string, before AppliedFile,
	texts []string) error {
	ctx, cancel := context.WithTimeout(ctx, b.js.Timeout)
	defer cancel()
	m := nats.NewMsg(b.filed(set))
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	var err error
	if m.Data, err = json.Marshal(texts); err == nil {
		_, err = b.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(before.seq))
	}
	if err != nil {
		return fmt.Errorf("note what a file has written: %w", jsapi.Translate(err))
	}
	return nil
}
