// Package manage is what operators do with policies, buckets, jobs and dead letters: look, pause, change, drop, replay.
// Policies and overrides are read from and written to JetStream, where every process follows them. What only the owner
// of a partition knows or may do is asked of its valve, with a deadline; a partition without an owner is told, and
// holds up nothing else.
//
// All documents are JSON as they are; keys in them are the users', not their subject forms.
package manage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

const (
	// lookTimeout bounds the questions to valves that only look.
	lookTimeout = time.Second
	// listsAtOnce is how many lists of buckets are made at a time. Valves sort their buckets for it, between starts.
	listsAtOnce = 2
	// followTimeout bounds the wait for this process to know what was written.
	followTimeout = time.Second
)

// Options are what a [Service] can do without. The zero value works.
type Options struct {
	// Timeout bounds every call but ReplayAll; default 5 s.
	Timeout time.Duration
	// BulkTimeout bounds ReplayAll, which says how far it came; default 20 s.
	BulkTimeout time.Duration
	// Followed returns when this process knows a policy in at least the given revision, 0 when it knows it no more, or when
	// the context ends, so that whoever wrote a policy here can use it here at once. Default: do not wait.
	Followed func(ctx context.Context, policy string, revision uint64)
	// Possible says what keeps this installation from obeying a policy that is valid elsewhere. Default: nothing does.
	Possible func(p policy.Policy) []policy.Problem
	// Logger gets, at Info, what operators changed; nil: none.
	Logger *slog.Logger
}

// Service manages one installation. It is safe for concurrent use and starts nothing that outlives a call.
//
// All methods end in [*admission.RequestError], [*policy.InvalidError] or an error of one of the kinds of package
// admission: ErrUnknownPolicy, ErrNotFound, ErrConflict, ErrPrecondition, ErrNoDrainer, ErrUnavailable.
type Service struct {
	broker   *queue.Broker
	producer *queue.Producer
	options  Options
	listing  chan struct{} // a place for each list of buckets that is being made
}

// New makes a service over an installation's broker. Replays go through the producer.
func New(broker *queue.Broker, producer *queue.Producer, o Options) *Service {
	o.Timeout = cmp.Or(o.Timeout, 5*time.Second)
	o.BulkTimeout = cmp.Or(o.BulkTimeout, 20*time.Second)
	if o.Possible == nil {
		o.Possible = func(policy.Policy) []policy.Problem { return nil }
	}
	if o.Followed == nil {
		o.Followed = func(context.Context, string, uint64) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Service{broker, producer, o, make(chan struct{}, listsAtOnce)}
}

func (s *Service) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.options.Timeout)
}

// entry reads the policy that a call is about.
func (s *Service) entry(ctx context.Context, name string) (queue.PolicyEntry, error) {
	entry, err := s.broker.Policy(ctx, name)
	if errors.Is(err, queue.ErrNotFound) {
		return queue.PolicyEntry{}, unknownPolicy(name)
	}
	if err != nil {
		return queue.PolicyEntry{}, change(err)
	}
	return entry, nil
}

// queued is entry for what only a policy with a queue can do.
func (s *Service) queued(ctx context.Context, name string) (queue.PolicyEntry, error) {
	entry, err := s.entry(ctx, name)
	if err == nil && !entry.Policy.HasQueue() {
		err = fmt.Errorf("%w: policy %q has no queue: it answers checks only", admission.ErrConflict, name)
	}
	return entry, err
}

// errNobody is an ErrNoDrainer of a partition whose questions nobody hears: no drainer owns it, or none that is connected.
var errNobody = fmt.Errorf("%w", admission.ErrNoDrainer)

// ask asks the owner of a partition. Whatever keeps it from answering is ErrNoDrainer: there is none, which is errNobody, it
// is too slow, or it has just handed the partition over.
func (s *Service) ask(ctx context.Context, policy string, partition int, q queue.ValveQuestion) (
	queue.ValveAnswer, error) {

	a, err := s.broker.AskValve(ctx, policy, partition, q)
	if err != nil {
		s.options.Logger.Debug("a valve does not answer", "policy", policy, "partition", partition, "op", q.Op,
			"error", err)
		kind := admission.ErrNoDrainer
		if errors.Is(err, nats.ErrNoResponders) {
			kind = errNobody
		}
		return a, fmt.Errorf("%w for partition %d of policy %q", kind, partition, policy)
	}
	return a, nil
}

// partitionOf is the partition that holds a key's bucket.
func (s *Service) partitionOf(p policy.Policy, key queue.Key) int {
	subject := s.broker.Names().Jobs(p.Name, key)
	if p.Door() {
		subject = s.broker.Names().Admitted(p.Name, key)
	}
	return queue.Partition(subject, p.Partitions)
}

// clientKey is the key of a context's client.
type clientKey struct{}

// WithClient names who asks, such as a network address, for the log.
func WithClient(ctx context.Context, client string) context.Context {
	return context.WithValue(ctx, clientKey{}, client)
}

// log tells what an operator changed, and from where.
func (s *Service) log(ctx context.Context, message string, args ...any) {
	if client, ok := ctx.Value(clientKey{}).(string); ok {
		args = append(args, "from", client)
	}
	s.options.Logger.InfoContext(ctx, message, args...)
}

func unknownPolicy(name string) error {
	return fmt.Errorf("%w: %.64q", admission.ErrUnknownPolicy, name)
}

func jobID(policy string, seq uint64) string { return fmt.Sprintf("%s:%d", policy, seq) }

// translate makes an error of package queue one of package admission.
func translate(err error) error {
	var capacity *queue.CapacityInUseError
	var fixed *queue.ImmutableError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &capacity):
		return fmt.Errorf("%w: capacity %d is too low: bucket %q holds %d jobs, and none of them is thrown away",
			admission.ErrConflict, capacity.Capacity, capacity.Key.Raw(), capacity.Depth)
	case errors.As(err, &fixed):
		return fmt.Errorf("%w: %w", admission.ErrConflict, fixed)
	case errors.Is(err, queue.ErrTooMany):
		return fmt.Errorf("%w: %w", admission.ErrConflict, err)
	case errors.Is(err, queue.ErrVersion):
		return fmt.Errorf("%w: what is stored was written by a newer version", admission.ErrConflict)
	case errors.Is(err, queue.ErrTooLarge):
		return fmt.Errorf("%w: the body and its headers do not fit a message", admission.ErrTooLarge)
	case errors.Is(err, queue.ErrUnavailable), errors.Is(err, queue.ErrStreamFull),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %w", admission.ErrUnavailable, err)
	case errors.Is(err, queue.ErrConflict):
		return fmt.Errorf("%w: others changed the same at the same time", admission.ErrConflict)
	}
	return err
}
