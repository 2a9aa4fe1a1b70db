package jet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/policy"
)

func (b *Broker) shut(ctx context.Context, policy string,
	config jetstream.StreamConfig) (jetstream.StreamState, error) {
	if !b.names.isClosed(policy, config) {
		config.Subjects = []string{b.names.doorClosed(policy)}
		if err := b.js.UpdateStream(ctx, config); err != nil {
			return jetstream.StreamState{}, fmt.Errorf("close the door: %w", err)
		}
	}
	return b.settled(ctx, policy)
}

// reopen opens a door again after err, and returns err. It works past the lock's deadline, because
// the lock lasts longer.
func (b *Broker) reopen(ctx context.Context, open jetstream.StreamConfig, err error) error {
	if openErr := b.js.UpdateStream(context.WithoutCancel(ctx), open); openErr != nil {
		err = errors.Join(err, fmt.Errorf("open the door again: %w", openErr))
	}
	return err
}

func (n Names) isClosed(policy string, config jetstream.StreamConfig) bool {
	return slices.Equal(config.Subjects, []string{n.doorClosed(policy)})
}

const (
	settleWait           = 20 * time.Millisecond
	settleWaitReplicated = 100 * time.Millisecond
)

// settled waits until every job that came through the closed door is stored or refused, which the
// reply to a later message proves. Looking twice covers messages on their way inside the server.
func (b *Broker) settled(ctx context.Context, policy string) (jetstream.StreamState, error) {
	wait := settleWait
	if b.replicas > 1 {
		wait = settleWaitReplicated
	}
	for last, looked := uint64(0), false; ; {
		if err := b.barrier(ctx, policy); err != nil {
			return jetstream.StreamState{}, err
		}
		info, err := b.js.StreamInfo(ctx, b.names.Stream(policy), allSubjects)
		if err != nil {
			return jetstream.StreamState{}, err
		}
		if looked && info.State.LastSeq == last {
			return info.State, nil
		}
		last, looked = info.State.LastSeq, true
		if err := jsapi.Pause(ctx, wait); err != nil {
			return jetstream.StreamState{}, err
		}
	}
}

func (b *Broker) barrier(ctx context.Context, policy string) error {
	m := nats.NewMsg(b.names.doorClosed(policy))
	m.Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatInt(1<<62, 10))
	_, err := b.js.Publish(ctx, m)
	if errors.Is(err, ErrConflict) {
		return nil
	}
	if err == nil {
		err = errors.New("a message with an impossible condition was stored")
	}
	return fmt.Errorf("wait for jobs under way: %w", err)
}

// Retire closes the door of a policy's stream, whose jobs still run, and deletes it once empty.
// Call it until it returns true: the stream is gone.
func (b *Broker) Retire(ctx context.Context, name string) (gone bool, err error) {
	defer errs.Annotate(&err, "retire policy %s", name)
	b.bounds.sees(name, jetstream.StreamConfig{})
	info, err := b.js.StreamInfo(ctx, b.names.Stream(name), "")
	if err != nil {
		return errors.Is(err, ErrNoStream), unlessGone(err)
	}
	if b.names.isClosed(name, info.Config) && info.State.Msgs > 0 {
		return false, nil
	}
	err = b.bounds.locked(ctx, name, func(ctx context.Context) error {
		info, err := b.js.StreamInfo(ctx, b.names.Stream(name), "")
		if err == nil {
			err = jsapi.CheckVersion(info.Config.Metadata)
		}
		if err != nil {
			gone = errors.Is(err, ErrNoStream)
			return unlessGone(err)
		}
		state, err := b.shut(ctx, name, info.Config)
		if err != nil || state.Msgs > 0 {
			return err
		}
		err = b.js.DeleteStream(ctx, info.Config.Name)
		gone = err == nil
		return err
	})
	return gone, err
}

func unlessGone(err error) error {
	if errors.Is(err, ErrNoStream) {
		return nil
	}
	return err
}

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

// CheckCapacity returns a [*CapacityInUseError] if a bucket holds more jobs than the policy allows.
func (b *Broker) CheckCapacity(ctx context.Context, p policy.Policy) (err error) {
	defer errs.Annotate(&err, "check the capacity of policy %s", p.Name)
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
