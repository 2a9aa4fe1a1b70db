package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

const (
	// allSubjects also matches jobs published with wildcards as tokens.
	allSubjects = ">"

	// headroom is left below the server's largest message for a dead letter's headers.
	headroom = 64 << 10
)

func (b *Broker) streamConfig(p policy.Policy) jetstream.StreamConfig {
	door := b.names.doorAdmitted(p.Name)
	if p.Paced() {
		door = b.names.doorJobs(p.Name)
	}
	largest := b.nc.MaxPayload() - headroom
	if largest < headroom {
		largest = b.nc.MaxPayload() / 2
	}
	return jetstream.StreamConfig{
		Name:                 b.names.Stream(p.Name),
		Description:          "Penstock: jobs of policy " + p.Name,
		Subjects:             []string{door},
		Retention:            jetstream.WorkQueuePolicy,
		Storage:              jetstream.FileStorage,
		Discard:              jetstream.DiscardNew,
		DiscardNewPerSubject: true,
		MaxMsgsPerSubject:    p.QueueCapacity(),
		MaxMsgs:              p.QueueJobs(),
		MaxBytes:             -1,
		MaxConsumers:         -1,
		MaxMsgSize:           int32(min(largest, 1<<30)),
		Duplicates:           time.Duration(p.DuplicateWindow),
		Replicas:             b.replicas,
		AllowDirect:          true,
		SubjectTransform: &jetstream.SubjectTransformConfig{
			Source: door,
			Destination: fmt.Sprintf("%s.queue.%s.{{partition(%d)}}.>", b.names.lower, p.Name,
				p.Partitions),
		},
		Metadata: map[string]string{
			jsapi.MetaVersion: jsapi.Layout,
			metaPartitions:    strconv.Itoa(p.Partitions),
			metaMaxBytes:      strconv.FormatInt(int64(p.MaxBytes), 10),
			metaDeadMaxBytes:  strconv.FormatInt(int64(p.Dead.MaxBytes), 10),
		},
	}
}

// Apply creates the stream of a policy with a queue, changes its capacity or opens its door, at any
// time and from any number of processes. It keeps all accepted jobs: to lower a capacity it closes
// the door, waits until pending publishes are stored or refused, and then lowers and opens in one
// update; if a bucket holds more, it opens the door and returns [*CapacityInUseError]. Meanwhile,
// usually for less than 0.2 s, publishers get "no responders"; [Producer] and nats.go's publishers
// try again. Other partitions or another kind of algorithm return an [*ImmutableError], an unknown
// format [job.ErrVersion]. A crash may leave the door closed: call Apply when a process begins to
// serve a policy, and periodically.
func (b *Broker) Apply(ctx context.Context, p policy.Policy) (err error) {
	defer errs.Annotate(&err, "apply policy %s", p.Name)
	p = p.WithDefaults()
	if !p.HasQueue() {
		return nil
	}
	want := b.streamConfig(p)
	for {
		info, err := b.js.StreamInfo(ctx, want.Name, "")
		if errors.Is(err, ErrNoStream) {
			err = b.createBounded(ctx, p.Name, want)
			if jsapi.HasCode(err, jsapi.CodeNameInUse) {
				continue // another process created it with other settings
			}
			return err
		}
		if err != nil {
			return err
		}
		if err := checkStream(p.Name, info.Config, want); err != nil {
			return err
		}
		if sameSettings(info.Config, want) {
			b.sees(p.Name, info.Config)
			return nil
		}
		b.sees(p.Name, jetstream.StreamConfig{})
		return b.locked(ctx, p.Name, func(ctx context.Context) error {
			return b.reshape(ctx, p.Name, want)
		})
	}
}

// createBounded creates a policy's stream with the bound of the last [Broker.Ration]. Without one,
// or without room, it divides the store now. Streams that no Ration counted are created one at a
// time, on a single server by all processes: it checks a stream's bytes before it counts them, and
// streams that together exceed the store cannot even be given lower bounds.
func (b *Broker) createBounded(ctx context.Context, policy string,
	config jetstream.StreamConfig) error {
	if found := b.surveyed.Load(); found != nil && found.said[policy] != nil &&
		config.Metadata[metaPartitions] != "" {
		return b.create(ctx, policy, config)
	}
	before := b.saw(policy, config)
	b.creating.Lock()
	defer b.creating.Unlock()
	if !before && b.saw(policy, config) {
		return nil // created meanwhile, such as by a writer of the policy and the pass over all
	}
	if b.replicas > 1 {
		return b.create(ctx, policy, config)
	}
	return b.locked(ctx, creationLock, func(ctx context.Context) error {
		return b.create(ctx, policy, config)
	})
}

// creationLock is no name of a policy.
const creationLock = "CREATION"

func (b *Broker) create(ctx context.Context, policy string, config jetstream.StreamConfig) error {
	for again := 3; ; again-- {
		found := b.surveyed.Load()
		if found == nil || again < 3 || found.reserved {
			_, unbound := b.ration(ctx, []jetstream.StreamConfig{config})
			if found = b.surveyed.Load(); found == nil {
				return unbound
			}
			if unbound != nil && !errors.Is(unbound, ErrStorage) {
				b.log.Warn("streams keep other bounds than their share of the store",
					"error", unbound)
			}
		}
		bounded := config
		bounded.MaxBytes = cmp.Or(found.bound(policy, config), -1)
		err := b.js.CreateStream(ctx, bounded)
		if err == nil && config.Metadata[metaPartitions] != "" {
			b.sees(policy, config)
		}
		if again == 0 || !errors.Is(err, ErrStorage) {
			return err
		}
	}
}

// sees caches the configuration of a policy's stream, empty while it changes.
func (b *Broker) sees(policy string, config jetstream.StreamConfig) {
	if found := b.surveyed.Load(); found != nil {
		found.streams.Store(policy, config)
	}
}

// Fits reports whether the policy's stream, as last seen, matches the policy.
func (b *Broker) Fits(p policy.Policy) bool {
	p = p.WithDefaults()
	return b.saw(p.Name, b.streamConfig(p))
}

func (b *Broker) saw(policy string, want jetstream.StreamConfig) bool {
	found := b.surveyed.Load()
	if found == nil {
		return false
	}
	seen, _ := found.streams.Load(policy)
	have, _ := seen.(jetstream.StreamConfig)
	return have.Name == want.Name && checkStream(policy, have, want) == nil &&
		sameSettings(have, want)
}

// checkStream refuses a stream of another kind. JetStream itself would accept another number of
// partitions, which splits keys.
func checkStream(policy string, have, want jetstream.StreamConfig) error {
	if err := jsapi.CheckVersion(have.Metadata); err != nil {
		return fmt.Errorf("stream %s: %w", have.Name, err)
	}
	if was, is := have.Metadata[metaPartitions], want.Metadata[metaPartitions]; was != is {
		return &ImmutableError{Policy: policy, Field: "partitions", Have: was, Want: is}
	}
	if have.SubjectTransform == nil {
		return fmt.Errorf("stream %s: %w: it has no subject transform", have.Name, job.ErrVersion)
	}
	if was, is := have.SubjectTransform.Source, want.SubjectTransform.Source; was != is {
		return &ImmutableError{Policy: policy, Field: "algorithm", Have: "fed by " + was,
			Want: "fed by " + is}
	}
	if was, is := have.SubjectTransform.Destination, want.SubjectTransform.Destination; was != is {
		return &ImmutableError{Policy: policy, Field: "partitions", Have: was, Want: is}
	}
	return nil
}

func sameSettings(have, want jetstream.StreamConfig) bool {
	return reflect.DeepEqual(have, withSettings(have, want))
}

func withSettings(have, want jetstream.StreamConfig) jetstream.StreamConfig {
	have.Subjects = want.Subjects
	have.MaxMsgsPerSubject = want.MaxMsgsPerSubject
	have.MaxMsgs = want.MaxMsgs
	have.MaxMsgSize = want.MaxMsgSize
	have.Replicas = want.Replicas
	have.Duplicates = want.Duplicates
	have.Metadata = maps.Clone(have.Metadata)
	for _, key := range []string{metaMaxBytes, metaDeadMaxBytes} {
		have.Metadata[key] = want.Metadata[key]
	}
	return have
}

// locked runs change while no other process changes the policy's streams: an update replaces the
// whole configuration without compare-and-set.
func (b *Broker) locked(ctx context.Context, policy string,
	change func(context.Context) error) error {
	return b.tables.locks.WithLock(ctx, policy, change)
}

// CheckStream returns why a policy cannot have the stream that exists.
func (b *Broker) CheckStream(ctx context.Context, p policy.Policy) error {
	info, err := b.js.StreamInfo(ctx, b.names.Stream(p.Name), "")
	switch {
	case err != nil:
		return unlessGone(err)
	case !p.HasQueue():
		return policy.Invalid([]policy.Problem{{Field: "queue", Reason: "cannot be removed " +
			"because its stream exists: give the policy a new name"}})
	}
	return checkStream(p.Name, info.Config, b.streamConfig(p))
}
