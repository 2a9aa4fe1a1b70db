package jet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/base/errs"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/policy"
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
			err = b.bounds.create(ctx, p.Name, want)
			if jsapi.HasCode(err, jetstream.JSErrCodeStreamNameInUse) {
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
			b.bounds.sees(p.Name, info.Config)
			return nil
		}
		b.bounds.sees(p.Name, jetstream.StreamConfig{})
		return b.bounds.locked(ctx, p.Name, func(ctx context.Context) error {
			return b.reshape(ctx, p.Name, want)
		})
	}
}

// Fits reports whether the policy's stream, as last seen, matches the policy.
func (b *Broker) Fits(p policy.Policy) bool {
	p = p.WithDefaults()
	return b.bounds.saw(p.Name, b.streamConfig(p))
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
