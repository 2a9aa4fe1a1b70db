// Package manage operates on policies, buckets, jobs and dead letters. A valve that does not answer
// within a deadline is reported, and delays no other partition. The documents are of
// package api.
package manage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/admission/watch"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/internal/server/audit"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers"
)

const listsAtOnce = 2 // valves sort them between starts

// Options of a Service.
type Options struct {
	// Timeout bounds each call; default 5 s. One about many jobs or letters may take four times as
	// long. Questions to valves, and waits for changes, take at most a fifth of it.
	Timeout time.Duration
	// Followed waits until this process follows at least this revision of the policy; 0 means its
	// deletion.
	Followed func(ctx context.Context, policy string, revision uint64)
	// why this installation cannot run a policy
	Possible func(before, p policy.Policy) []policy.Problem
	Watch    *watch.Watch // default: its own
	Audited  func(policy string, key queue.Key) (audit.Standing, bool)
	Logger   *slog.Logger
}

// Service manages one installation. It is safe for concurrent use. Errors are
// [*admission.RequestError], [*policy.InvalidError], or of a kind of package admission.
type Service struct {
	broker   *jet.Broker
	policies *store.Store
	producer *jet.Producer
	options  Options
	listing  chan struct{}
}

// New returns a service for all policies of the broker's installation.
func New(broker *jet.Broker, producer *jet.Producer, o Options) *Service {
	o.Timeout = cmp.Or(o.Timeout, 5*time.Second)
	if o.Possible == nil {
		o.Possible = func(_, _ policy.Policy) []policy.Problem { return nil }
	}
	if o.Followed == nil {
		o.Followed = func(context.Context, string, uint64) {}
	}
	if o.Audited == nil {
		o.Audited = func(string, queue.Key) (s audit.Standing, known bool) { return s, false }
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.Watch = cmp.Or(o.Watch, watch.New(broker))
	return &Service{broker, store.New(broker, o.Logger), producer, o,
		make(chan struct{}, listsAtOnce)}
}

// Watch hears what happens; see [watch.Watch].
func (s *Service) Watch() *watch.Watch { return s.options.Watch }

func (s *Service) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.options.Timeout)
}

func (s *Service) boundedBulk(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 4*s.options.Timeout)
}

func (s *Service) entry(ctx context.Context, name string) (inforce.Entry, error) {
	entry, err := s.policies.Policy(ctx, name)
	if errors.Is(err, jet.ErrNotFound) {
		return inforce.Entry{}, admit.UnknownPolicy(name)
	}
	return entry, conflict(err)
}

func (s *Service) queued(ctx context.Context, name string) (inforce.Entry, error) {
	entry, err := s.entry(ctx, name)
	if err == nil && !entry.Policy.HasQueue() {
		err = admit.NoQueue(name)
	}
	if err == nil {
		s.broker.Events().KeepHistory(name, time.Duration(entry.Policy.ResultRetention), nil)
	}
	return entry, err
}

// errNobody is the error for a partition without a connected owner.
var errNobody = fmt.Errorf("%w", admission.ErrNoDrainer)

// ask returns errNobody, or another ErrNoDrainer if the owner is slow or releases the partition.
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

func (s *Service) partitionOf(p policy.Policy, key queue.Key) int {
	subject := s.broker.Names().Jobs(p.Name, key)
	if p.Door() {
		subject = s.broker.Names().Admitted(p.Name, key)
	}
	return job.Partition(subject, p.Partitions)
}

func each[T any](n int, all []T, do func(*T) error) error {
	var running sync.WaitGroup
	slots, errs := make(chan struct{}, n), make([]error, len(all))
	for i := range all {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			errs[i] = do(&all[i])
		})
	}
	running.Wait()
	return cmp.Or(errs...)
}

type clientKey struct{}

type client struct{ name, address string }

// WithClient is for the audit list.
func WithClient(ctx context.Context, name, address string) context.Context {
	return context.WithValue(ctx, clientKey{}, client{name, address})
}

// Note logs a change, and adds it to the audit list. args are names and values; policy, key, job
// and changed ([inforce.Changes]) become fields.
func (s *Service) Note(ctx context.Context, what string, args ...any) {
	by, _ := ctx.Value(clientKey{}).(client)
	c := api.AuditEntry{By: by.name, From: by.address, What: what}
	for i := 0; i < len(args); i += 2 {
		switch name, value := args[i].(string), args[i+1]; name {
		case "policy":
			c.Policy = value.(string)
		case "key":
			key := value.(string)
			c.Key = &key
		case "job":
			c.Job = value.(string)
		case "changed":
			c.Changed = value.(inforce.Changes)
		case "revision": // for the log alone
		default:
			switch value {
			case nil, false:
			case true:
				c.Details = append(c.Details, name)
			default:
				c.Details = append(c.Details, fmt.Sprint(name, " ", value))
			}
		}
	}
	if by.address != "" {
		from := by.address
		if by.name != "" {
			from = by.name + " at " + from
		}
		args = append(args, "from", from)
	}
	s.options.Logger.InfoContext(ctx, what, args...)
	ctx, cancel := s.bounded(context.WithoutCancel(ctx))
	defer cancel()
	if err := s.broker.Audit(ctx, c); err != nil {
		s.options.Logger.Error("change missing from the audit list", "change", what, "policy",
			c.Policy, "error", err)
	}
}

// NoteTried notes a change unless err refuses it. Without an answer it may have been made.
func (s *Service) NoteTried(ctx context.Context, err error, what string, args ...any) {
	if err != nil {
		args = append(args, "error", err)
	}
	if err == nil || errors.Is(err, admission.ErrNoDrainer) ||
		errors.Is(err, admission.ErrUnavailable) {
		s.Note(ctx, what, args...)
	}
}

// Audit lists changes before an id (0: the last ones), newest first.
func (s *Service) Audit(ctx context.Context, name string, before uint64, limit int) (api.AuditList,
	error) {

	ctx, cancel := s.bounded(ctx)
	defer cancel()
	page := api.AuditList{Changes: []api.AuditEntry{}}
	found, next, err := s.broker.Changes(ctx, name, before, limit)
	page.Changes = append(page.Changes, found...)
	if next > 0 {
		page.Next = &next
	}
	return page, translate(err)
}

func translate(err error) error {
	var capacity *jet.CapacityInUseError
	var fixed *jet.ImmutableError
	var owner *store.OwnerError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &capacity):
		return fmt.Errorf(
			"%w: capacity %d is too low: bucket %q holds %d jobs",
			admission.ErrConflict, capacity.Capacity, capacity.Key.Raw(), capacity.Depth)
	case errors.As(err, &fixed):
		return fmt.Errorf("%w: %w", admission.ErrConflict, fixed)
	case errors.As(err, &owner):
		return fmt.Errorf("%w: %w", admission.ErrConflict, owner)
	case errors.Is(err, store.ErrTooMany):
		return fmt.Errorf("%w: %w", admission.ErrConflict, err)
	case errors.Is(err, job.ErrVersion):
		return fmt.Errorf("%w: the stored record was written by a newer version",
			admission.ErrConflict)
	case errors.Is(err, jet.ErrTooLarge):
		return admit.UnfitMessage()
	case errors.Is(err, jet.ErrUnavailable), errors.Is(err, jet.ErrStreamFull),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %w", admission.ErrUnavailable, err)
	case errors.Is(err, jet.ErrConflict), errors.Is(err, jet.ErrNoStream):
		return fmt.Errorf("%w: concurrent changes; try again", admission.ErrConflict)
	}
	return err
}

// Drainers lists the live drainers with what they own.
func (s *Service) Drainers(ctx context.Context) (api.Drainers, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	set, err := s.policies.Policies(ctx)
	if err != nil {
		return api.Drainers{}, conflict(err)
	}
	policies := make([]policy.Policy, 0, len(set))
	for _, entry := range set {
		policies = append(policies, entry.Policy)
	}
	drainers, err := workers.Drainers(ctx, s.broker, policies)
	return api.Drainers{Drainers: drainers}, translate(err)
}
