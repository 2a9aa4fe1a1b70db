// Package manage is what operators do with policies, buckets, jobs and dead letters: look, pause,
// change, drop, replay. Policies and overrides are read from and written to JetStream, where every
// process follows them. What only the owner of a partition knows or may do is asked of its valve,
// with a deadline; a partition without an owner is reported, and holds up nothing else.
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
	"github.com/penstock-mq/penstock/admission/watch"
	"github.com/penstock-mq/penstock/internal/race"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/policy/store"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/audit"
)

const (
	// lookTimeout bounds the questions to valves that only look.
	lookTimeout = time.Second * race.Slower
	// listsAtOnce is how many lists of buckets are made at a time. Valves sort their buckets for
	// it, between starts.
	listsAtOnce = 2
	// followTimeout bounds the wait for this process to know what was written.
	followTimeout = time.Second * race.Slower
)

// Options are what a [Service] can do without. The zero value works.
type Options struct {
	// Timeout bounds every call but those for many dead letters; default 5 s.
	Timeout time.Duration
	// BulkTimeout bounds these, which say how far they came; default 20 s.
	BulkTimeout time.Duration
	// Followed returns when this process follows a policy in at least the given revision, 0 when it
	// no longer knows the policy, or when the context ends, so that a client that wrote a policy
	// here can use it here at once. Default: do not wait.
	Followed func(ctx context.Context, policy string, revision uint64)
	// Possible returns what keeps this installation from following a policy that is valid
	// elsewhere. Default: nothing does.
	Possible func(before, p policy.Policy) []policy.Problem
	// Watch tells what happens; default: a watch of the service's own.
	Watch *watch.Watch
	// Audited returns what an auditor saw of a bucket's starts. Default: nobody audits.
	Audited func(policy string, key job.Key) (audit.Standing, bool)
	// Logger gets, at Info, operators' changes; default [slog.Default].
	Logger *slog.Logger
}

// Service manages one installation. It is safe for concurrent use and starts nothing that outlives
// a call.
//
// All methods end in [*admission.RequestError], [*policy.InvalidError] or an error of one of the
// kinds of package admission: ErrUnknownPolicy, ErrNotFound, ErrConflict, ErrPrecondition,
// ErrNoDrainer, ErrUnavailable.
type Service struct {
	broker   *queue.Broker
	policies *store.Store
	producer *queue.Producer
	options  Options
	listing  chan struct{} // a place for each list of buckets that is being made
}

// New makes a service over an installation's broker. Replays go through the producer.
func New(broker *queue.Broker, producer *queue.Producer, o Options) *Service {
	o.Timeout = cmp.Or(o.Timeout, 5*time.Second*race.Slower)
	o.BulkTimeout = cmp.Or(o.BulkTimeout, 20*time.Second)
	if o.Possible == nil {
		o.Possible = func(_, _ policy.Policy) []policy.Problem { return nil }
	}
	if o.Followed == nil {
		o.Followed = func(context.Context, string, uint64) {}
	}
	if o.Audited == nil {
		o.Audited = func(string, job.Key) (s audit.Standing, known bool) { return s, false }
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Watch == nil {
		o.Watch = watch.New(broker)
	}
	return &Service{broker, store.New(broker, o.Logger), producer, o,
		make(chan struct{}, listsAtOnce)}
}

// Watch is what tells operators what happens.
func (s *Service) Watch() *watch.Watch { return s.options.Watch }

func (s *Service) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.options.Timeout)
}

// entry reads the policy that a call is about.
func (s *Service) entry(ctx context.Context, name string) (policy.Entry, error) {
	entry, err := s.policies.Policy(ctx, name)
	if errors.Is(err, queue.ErrNotFound) {
		return policy.Entry{}, admission.UnknownPolicy(name)
	}
	if err != nil {
		return policy.Entry{}, change(err)
	}
	return entry, nil
}

// queued is entry for calls that only a policy with a queue can serve.
func (s *Service) queued(ctx context.Context, name string) (policy.Entry, error) {
	entry, err := s.entry(ctx, name)
	if err == nil && !entry.Policy.HasQueue() {
		err = admission.NoQueue(name)
	}
	if err == nil { // of jobs that are dropped where no drainer does it
		s.broker.KeepHistory(name, time.Duration(entry.Policy.KeepDone), nil)
	}
	return entry, err
}

// errNobody is an ErrNoDrainer of a partition whose questions nobody hears: no drainer owns it, or
// none that is connected.
var errNobody = fmt.Errorf("%w", admission.ErrNoDrainer)

// ask asks the owner of a partition. Whatever keeps it from answering is ErrNoDrainer: there is
// none, which is errNobody, it is too slow, or it has just handed the partition over.
func (s *Service) ask(ctx context.Context, policy string, partition int, q job.Question) (
	job.Answer, error) {

	a, err := s.broker.AskValve(ctx, policy, partition, q)
	if err != nil {
		s.options.Logger.Debug("a valve does not answer", "policy", policy, "partition", partition,
			"op", q.Op, "error", err)
		kind := admission.ErrNoDrainer
		if errors.Is(err, nats.ErrNoResponders) {
			kind = errNobody
		}
		return a, fmt.Errorf("%w for partition %d of policy %q", kind, partition, policy)
	}
	return a, nil
}

// partitionOf returns the partition that holds a key's bucket.
func (s *Service) partitionOf(p policy.Policy, key job.Key) int {
	subject := s.broker.Names().Jobs(p.Name, key)
	if p.Door() {
		subject = s.broker.Names().Admitted(p.Name, key)
	}
	return job.Partition(subject, p.Partitions)
}

// clientKey is the key of a context's client.
type clientKey struct{}

// WithClient names the client, such as by its network address, for the log.
func WithClient(ctx context.Context, client string) context.Context {
	return context.WithValue(ctx, clientKey{}, client)
}

// log logs what an operator changed, and from where.
func (s *Service) log(ctx context.Context, message string, args ...any) {
	if client, ok := ctx.Value(clientKey{}).(string); ok {
		args = append(args, "from", client)
	}
	s.options.Logger.InfoContext(ctx, message, args...)
}

// translate turns an error of package queue into one of package admission.
func translate(err error) error {
	var capacity *queue.CapacityInUseError
	var fixed *queue.ImmutableError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &capacity):
		return fmt.Errorf(
			"%w: capacity %d is too low: bucket %q holds %d jobs, and none of them is thrown away",
			admission.ErrConflict, capacity.Capacity, capacity.Key.Raw(), capacity.Depth)
	case errors.As(err, &fixed):
		return fmt.Errorf("%w: %w", admission.ErrConflict, fixed)
	case errors.Is(err, store.ErrTooMany):
		return fmt.Errorf("%w: %w", admission.ErrConflict, err)
	case errors.Is(err, job.ErrVersion):
		return fmt.Errorf("%w: what is stored was written by a newer version",
			admission.ErrConflict)
	case errors.Is(err, queue.ErrTooLarge):
		return admission.UnfitMessage()
	case errors.Is(err, queue.ErrUnavailable), errors.Is(err, queue.ErrStreamFull),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %w", admission.ErrUnavailable, err)
	case errors.Is(err, queue.ErrConflict):
		return fmt.Errorf("%w: others changed the same at the same time", admission.ErrConflict)
	}
	return err
}
