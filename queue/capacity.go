package queue

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/policy"
)

func (b *Broker) reshape(ctx context.Context, policy string, want jetstream.StreamConfig) error {
	info, err := b.js.StreamInfo(ctx, want.Name, "")
	if err != nil {
		return err
	}
	have := info.Config
	if err := checkStream(policy, have, want); err != nil {
		return err
	}
	if want.MaxMsgsPerSubject >= have.MaxMsgsPerSubject && have.MaxMsgsPerSubject > 0 {
		return b.js.UpdateStream(ctx, withSettings(have, want))
	}
	return b.lower(ctx, policy, have, want)
}

func (b *Broker) lower(ctx context.Context, policy string, have,
	want jetstream.StreamConfig) (err error) {
	open := have
	open.Subjects = want.Subjects
	defer func() {
		if err != nil {
			// The update may have been applied: the door may be open only with the old capacity.
			err = b.reopen(ctx, open, err)
		}
	}()
	if err := b.checkCapacity(ctx, policy, want.MaxMsgsPerSubject); err != nil {
		return err
	}
	state, err := b.shut(ctx, policy, have)
	if err != nil {
		return err
	}
	if err := b.fits(policy, state, want.MaxMsgsPerSubject); err != nil {
		return err
	}
	return b.js.UpdateStream(ctx, withSettings(have, want))
}

// CheckCapacity returns [*CapacityInUseError] if a bucket holds more jobs than p's capacity.
func (b *Broker) CheckCapacity(ctx context.Context, p policy.Policy) (err error) {
	defer annotate(&err, "check the capacity of policy %s", p.Name)
	return b.checkCapacity(ctx, p.Name, p.QueueCapacity())
}

func (b *Broker) checkCapacity(ctx context.Context, policy string, capacity int64) error {
	info, err := b.js.StreamInfo(ctx, b.names.Stream(policy), allSubjects)
	if err != nil {
		return unlessGone(err)
	}
	return b.fits(policy, info.State, capacity)
}

func (b *Broker) fits(policy string, state jetstream.StreamState, capacity int64) error {
	var deepest string
	for subject, n := range state.Subjects {
		if most := state.Subjects[deepest]; n > most || n == most && subject < deepest {
			deepest = subject
		}
	}
	if depth := state.Subjects[deepest]; depth > uint64(capacity) {
		_, key, _ := b.names.ParseQueue(deepest)
		return &CapacityInUseError{Policy: policy, Key: key, Depth: depth, Capacity: capacity}
	}
	return nil
}
