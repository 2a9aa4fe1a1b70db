package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/policy"
)

const (
	// MaxStreamJobs is the most jobs that one policy's stream holds over all its buckets, and that its valves must be able
	// to keep in memory.
	MaxStreamJobs = 1_000_000

	// allSubjects also finds jobs that were published with wildcards for tokens, which are stored untransformed.
	allSubjects = ">"

	// headroom is what a stored job leaves below the server's largest message, so that it also fits when it comes back
	// with more headers, as a dead letter for example.
	headroom = 64 << 10
)

// streamConfig is the stream of a policy with a queue, with its door open.
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
		MaxMsgs:              MaxStreamJobs,
		MaxBytes:             -1,
		MaxConsumers:         -1,
		MaxMsgSize:           int32(min(largest, 1<<30)),
		Duplicates:           time.Duration(p.DuplicateWindow),
		Replicas:             b.replicas,
		AllowDirect:          true,
		SubjectTransform: &jetstream.SubjectTransformConfig{
			Source:      door,
			Destination: fmt.Sprintf("%s.queue.%s.{{partition(%d)}}.>", b.names.lower, p.Name, p.Partitions),
		},
		Metadata: map[string]string{
			metaVersion:      strconv.Itoa(formatVersion),
			metaPartitions:   strconv.Itoa(p.Partitions),
			metaMaxBytes:     strconv.FormatInt(int64(p.MaxBytes), 10),
			metaDeadMaxBytes: strconv.FormatInt(int64(p.Dead.MaxBytes), 10),
		},
	}
}

// Apply makes a policy's stream as the policy says: creates it, changes its capacity, opens its door. It does nothing for
// a policy without a queue and nothing when all is as it should be, so it may be called again at any time, by any number
// of processes at once.
//
// It never deletes an accepted job. Before it lowers a capacity it closes the door, waits until what was under way has
// been stored or refused, looks for the deepest bucket, and then lowers and opens in one update, or opens again and
// answers [*CapacityInUseError] when a bucket holds more. While the door is closed, usually for less than 0.2 s, a
// publisher gets "no responders", as if the policy did not exist; [Producer] and nats.go's JetStream publishers try again.
//
// Other partitions or another kind of algorithm are an [*ImmutableError]; a stream in an unknown format is [ErrVersion].
// A process that dies with the door closed leaves it closed until the next Apply: call it whenever a process begins to
// serve a policy, and from time to time.
func (b *Broker) Apply(ctx context.Context, p policy.Policy) error {
	p = p.WithDefaults()
	if !p.HasQueue() {
		return nil
	}
	if err := b.apply(ctx, p); err != nil {
		return fmt.Errorf("apply policy %s: %w", p.Name, err)
	}
	return nil
}

func (b *Broker) apply(ctx context.Context, p policy.Policy) error {
	want := b.streamConfig(p)
	for {
		info, err := b.streamInfo(ctx, want.Name, "")
		if hasCode(err, codeStreamNotFound) {
			err = b.createBounded(ctx, p.Name, want)
			if hasCode(err, codeNameInUse) {
				continue // created meanwhile, with other settings
			}
			return err
		}
		if err != nil {
			return translate(err)
		}
		if err := checkStream(p.Name, info.Config, want); err != nil {
			return err
		}
		if sameSettings(info.Config, want) {
			return nil
		}
		return b.locked(ctx, p.Name, func(ctx context.Context) error { return b.reshape(ctx, p.Name, want) })
	}
}

// createBounded creates a policy's stream of jobs or letters with the bound in bytes that [Broker.Ration] gives it. Streams
// that are created at the same time do not know of each other when they are given theirs: one finds no room and tries
// again, and who comes last corrects the bounds of all.
func (b *Broker) createBounded(ctx context.Context, policy string, config jetstream.StreamConfig) error {
	name := strings.TrimPrefix(config.Name, b.names.upper+"_")
	for again := 3; ; again-- {
		storage, unbound := b.ration(ctx, name, config.Metadata)
		if storage.Jobs == nil {
			return unbound
		}
		fill := storage.Jobs[policy]
		if name != policy {
			fill = storage.Letters[policy]
		}
		config.MaxBytes = cmp.Or(fill.Max, -1)
		err := translate(b.createStream(ctx, config))
		if err == nil && storage.Max > 0 {
			_, unbound = b.ration(ctx, "", nil)
		}
		if again > 0 && (errors.Is(err, ErrStorage) || err == nil && errors.Is(unbound, ErrStorage)) {
			continue
		}
		if err == nil && unbound != nil { // of other streams, which are no reason to do without this one
			b.log.Warn("streams keep other bounds than their share of the store", "error", unbound)
		}
		return err
	}
}

func (b *Broker) createStream(ctx context.Context, config jetstream.StreamConfig) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := b.js.CreateStream(ctx, config)
	return err
}

func (b *Broker) updateStream(ctx context.Context, config jetstream.StreamConfig) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := b.js.UpdateStream(ctx, config)
	return translate(err)
}

// checkStream refuses a stream that is not ours, or that stores its subjects in another way than wanted. JetStream itself
// would accept another number of partitions without a word and split keys.
func checkStream(policy string, have, want jetstream.StreamConfig) error {
	if err := checkVersion(have.Metadata); err != nil {
		return fmt.Errorf("stream %s: %w", have.Name, err)
	}
	if was, is := have.Metadata[metaPartitions], want.Metadata[metaPartitions]; was != is {
		return &ImmutableError{Policy: policy, Field: "partitions", Have: was, Want: is}
	}
	if have.SubjectTransform == nil {
		return fmt.Errorf("stream %s: %w: it has no subject transform", have.Name, ErrVersion)
	}
	if was, is := have.SubjectTransform.Source, want.SubjectTransform.Source; was != is {
		return &ImmutableError{Policy: policy, Field: "algorithm", Have: "fed by " + was, Want: "fed by " + is}
	}
	if was, is := have.SubjectTransform.Destination, want.SubjectTransform.Destination; was != is {
		return &ImmutableError{Policy: policy, Field: "partitions", Have: was, Want: is}
	}
	return nil
}

// sameSettings compares what may change.
func sameSettings(have, want jetstream.StreamConfig) bool {
	return slices.Equal(have.Subjects, want.Subjects) && have.MaxMsgsPerSubject == want.MaxMsgsPerSubject &&
		have.MaxMsgs == want.MaxMsgs && have.MaxMsgSize == want.MaxMsgSize && have.Replicas == want.Replicas &&
		have.Duplicates == want.Duplicates && sameBounds(have.Metadata, want.Metadata)
}

// sameBounds compares what a policy says of bounds in bytes. The bounds themselves are [Broker.Ration]'s.
func sameBounds(have, want map[string]string) bool {
	return metaBytes(have, metaMaxBytes) == metaBytes(want, metaMaxBytes) &&
		metaBytes(have, metaDeadMaxBytes) == metaBytes(want, metaDeadMaxBytes)
}

// withSettings is have with what may change taken from want, and the rest as the server has it.
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

// reshape changes an existing stream, under the policy's lock.
func (b *Broker) reshape(ctx context.Context, policy string, want jetstream.StreamConfig) error {
	info, err := b.streamInfo(ctx, want.Name, "")
	if err != nil {
		return translate(err)
	}
	have := info.Config
	if err := checkStream(policy, have, want); err != nil {
		return err
	}
	if want.MaxMsgsPerSubject >= have.MaxMsgsPerSubject && have.MaxMsgsPerSubject > 0 {
		return b.updateStream(ctx, withSettings(have, want))
	}
	return b.lower(ctx, policy, have, want)
}

// lower reduces the capacity with the door closed.
func (b *Broker) lower(ctx context.Context, policy string, have, want jetstream.StreamConfig) (err error) {
	open := have
	open.Subjects = want.Subjects
	defer func() {
		if err != nil {
			// An update of unknown result may have been applied; with the old capacity the door can be opened in any case.
			// There is time for it even when the lock's is up: the lock itself lasts longer.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
			defer cancel()
			if openErr := b.updateStream(ctx, open); openErr != nil {
				err = errors.Join(err, fmt.Errorf("open the door again: %w", openErr))
			}
		}
	}()
	// One that is in use is most likely still so when the door is closed, so it is not closed for nothing, time and again.
	if err := b.checkCapacity(ctx, policy, want.MaxMsgsPerSubject); err != nil {
		return err
	}
	if err := b.closeDoor(ctx, policy, have); err != nil {
		return err
	}
	state, err := b.settled(ctx, policy)
	if err != nil {
		return err
	}
	if err := b.fits(policy, state, want.MaxMsgsPerSubject); err != nil {
		return err
	}
	return b.updateStream(ctx, withSettings(have, want))
}

// CheckCapacity answers [*CapacityInUseError] when a bucket of the policy holds more jobs than its capacity is to be. It
// only looks; a policy without a stream has nothing in its buckets.
func (b *Broker) CheckCapacity(ctx context.Context, p policy.Policy) error {
	if err := b.checkCapacity(ctx, p.Name, p.QueueCapacity()); err != nil {
		return fmt.Errorf("check the capacity of policy %s: %w", p.Name, err)
	}
	return nil
}

func (b *Broker) checkCapacity(ctx context.Context, policy string, capacity int64) error {
	info, err := b.streamInfo(ctx, b.names.Stream(policy), allSubjects)
	if hasCode(err, codeStreamNotFound) {
		return nil
	}
	if err != nil {
		return translate(err)
	}
	return b.fits(policy, info.State, capacity)
}

// fits refuses a capacity below what the deepest bucket holds.
func (b *Broker) fits(policy string, state jetstream.StreamState, capacity int64) error {
	var deepest string
	for subject, n := range state.Subjects {
		if deepest == "" || n > state.Subjects[deepest] || n == state.Subjects[deepest] && subject < deepest {
			deepest = subject
		}
	}
	if depth := state.Subjects[deepest]; depth > uint64(capacity) {
		_, key, _ := b.names.ParseQueue(deepest)
		return &CapacityInUseError{Policy: policy, Key: key, Depth: depth, Capacity: capacity}
	}
	return nil
}

func (b *Broker) closeDoor(ctx context.Context, policy string, config jetstream.StreamConfig) error {
	config.Subjects = []string{b.names.doorClosed(policy)}
	if err := b.updateStream(ctx, config); err != nil {
		return fmt.Errorf("close the door: %w", err)
	}
	return nil
}

const (
	settleWait           = 20 * time.Millisecond
	settleWaitReplicated = 100 * time.Millisecond
)

// settled waits, with the door closed, until every job that had come through it is stored or refused, and returns the
// stream's state with the jobs per subject. The stream handles what it gets in order, so the answer to a message sent
// after the door was closed says that what came before has been handled; looking twice covers what was on its way inside
// the server, or, with replicas, not yet agreed on.
func (b *Broker) settled(ctx context.Context, policy string) (jetstream.StreamState, error) {
	wait := settleWait
	if b.replicas > 1 {
		wait = settleWaitReplicated
	}
	for last, looked := uint64(0), false; ; {
		if err := b.barrier(ctx, policy); err != nil {
			return jetstream.StreamState{}, err
		}
		info, err := b.streamInfo(ctx, b.names.Stream(policy), allSubjects)
		if err != nil {
			return jetstream.StreamState{}, translate(err)
		}
		if looked && info.State.LastSeq == last {
			return info.State, nil
		}
		last, looked = info.State.LastSeq, true
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return jetstream.StreamState{}, translate(ctx.Err())
		}
	}
}

// barrier sends the stream a message that it must refuse, and waits for the refusal.
func (b *Broker) barrier(ctx context.Context, policy string) error {
	m := nats.NewMsg(b.names.doorClosed(policy))
	m.Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatInt(1<<62, 10))
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := b.nc.RequestMsgWithContext(ctx, m)
	if err == nil {
		_, err = parsePubAck(answer.Data)
	}
	if hasCode(err, codeWrongLastSequence, codeWrongLastSequenceR3) {
		return nil
	}
	if err == nil {
		err = errors.New("a message with an impossible condition was stored")
	}
	return fmt.Errorf("wait for jobs under way: %w", translate(err))
}

// Retire ends a policy's stream: the door closes at once, jobs that wait still run, and the first call that finds the
// stream empty deletes it and answers true, as does one that finds no stream. Call it from time to time until then.
func (b *Broker) Retire(ctx context.Context, name string) (gone bool, err error) {
	if gone, err = b.retire(ctx, name); err != nil {
		return false, fmt.Errorf("retire policy %s: %w", name, err)
	}
	return gone, nil
}

func (b *Broker) retire(ctx context.Context, name string) (gone bool, err error) {
	info, err := b.streamInfo(ctx, b.names.Stream(name), "")
	if hasCode(err, codeStreamNotFound) {
		return true, nil
	}
	if err != nil {
		return false, translate(err)
	}
	if b.isClosed(name, info.Config) && info.State.Msgs > 0 {
		return false, nil
	}
	err = b.locked(ctx, name, func(ctx context.Context) error {
		info, err := b.streamInfo(ctx, b.names.Stream(name), "")
		if hasCode(err, codeStreamNotFound) {
			gone = true
			return nil
		}
		if err != nil {
			return translate(err)
		}
		if err := checkVersion(info.Config.Metadata); err != nil {
			return err
		}
		if !b.isClosed(name, info.Config) {
			if err := b.closeDoor(ctx, name, info.Config); err != nil {
				return err
			}
		}
		state, err := b.settled(ctx, name)
		if err != nil || state.Msgs > 0 {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		if err := b.js.DeleteStream(ctx, info.Config.Name); err != nil && !hasCode(err, codeStreamNotFound) {
			return translate(err)
		}
		gone = true
		return nil
	})
	return gone, err
}

func (b *Broker) isClosed(policy string, config jetstream.StreamConfig) bool {
	return slices.Equal(config.Subjects, []string{b.names.doorClosed(policy)})
}

// Depth is how many jobs a policy's stream holds over all its buckets: waiting, backing off and running. A policy without
// a stream is [ErrNoStream].
func (b *Broker) Depth(ctx context.Context, policy string) (uint64, error) {
	info, err := b.streamInfo(ctx, b.names.Stream(policy), "")
	if err != nil {
		return 0, fmt.Errorf("depth of policy %s: %w", policy, translate(err))
	}
	return info.State.Msgs, nil
}

// Depths is how many jobs each bucket of a policy holds; empty buckets are left out. It reads one name per bucket, so it
// is for people and tests rather than for loops.
func (b *Broker) Depths(ctx context.Context, policy string) (map[Key]uint64, error) {
	info, err := b.streamInfo(ctx, b.names.Stream(policy), allSubjects)
	if err != nil {
		return nil, fmt.Errorf("depths of policy %s: %w", policy, translate(err))
	}
	depths := make(map[Key]uint64, len(info.State.Subjects))
	for subject, n := range info.State.Subjects {
		_, key, _ := b.names.ParseQueue(subject)
		depths[key] += n
	}
	return depths, nil
}

// BucketDepth is how many jobs one bucket of a policy holds: waiting, backing off and running. A policy without a stream
// is [ErrNoStream].
func (b *Broker) BucketDepth(ctx context.Context, policy string, partition int, k Key) (uint64, error) {
	if _, err := ParseKey(string(k)); err != nil {
		return 0, fmt.Errorf("depth of bucket %s.%s: %w", policy, k, err)
	}
	subject := b.names.Queue(policy, partition, k)
	info, err := b.streamInfo(ctx, b.names.Stream(policy), subject)
	if err != nil {
		return 0, fmt.Errorf("depth of bucket %s.%s: %w", policy, k, translate(err))
	}
	return info.State.Subjects[subject], nil
}
