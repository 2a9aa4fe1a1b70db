// Package node keeps a process in step with its installation: policies, streams, the store.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/internal/admission/schedules"
	"github.com/penstock-mq/penstock/internal/base/notice"
	"github.com/penstock-mq/penstock/internal/base/seldom"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/kv"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/internal/server/health"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
	"github.com/penstock-mq/penstock/internal/server/natsconn"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// Wanted is written for all processes; nil policies are not written.
type Wanted struct {
	store.Set
	Schedules []schedules.Entry
}

// Check needs no NATS. possible returns why this installation cannot have a policy.
func (w Wanted) Check(prefix string, possible func(policy.Policy) []policy.Problem) error {
	var problems []error
	add := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("options: "+format, args...))
	}
	first := map[string]int{}
	for i, p := range w.Policies {
		found := append(p.Validate(), p.CheckPrefix(prefix)...)
		if len(found) == 0 {
			found = possible(p)
		}
		if before, twice := first[p.Name]; twice && p.Name != "" {
			found = append(found, policy.Problem{Field: "name",
				Reason: fmt.Sprintf("is already used by Policies[%d]", before)})
		} else {
			first[p.Name] = i
		}
		for _, problem := range found {
			add("Policies[%d].%s", i, problem)
		}
	}
	if err := policy.CheckSet(w.Name); err != nil {
		add("Set: %w", err)
	}
	for _, problem := range schedules.Check(w.Schedules, w.Policies,
		func(string) bool { return true }) {

		add("Schedules%s", problem)
	}
	return errors.Join(problems...)
}

type Options struct {
	Broker    *jet.Broker
	Store     *store.Store
	Schedules *schedules.Service
	Roster    *kv.Roster // of the processes that may write policies
	Wanted    Wanted
	Follow    func(set inforce.Entries, changed []string)
	// nil: a server elsewhere
	Check func() error
	// Offline makes the node follow the policies in Cache (empty: without a cache), or the wanted
	// ones, until NATS is reachable.
	Cache   string
	Offline bool
	Sink    queue.Sink
	Log     *slog.Logger

	// Parts of the health; may be nil.

	Drainer interface {
		Health() error
		Notes() []string
		Refuse(reason error)
	}
	Limits interface{ Health() error }
	Files  func() health.Part
}

// Node is safe for concurrent use.
type Node struct {
	Options
	// LaidOut: JetStream has what policies share. Prepared: the wanted policies are written.
	// Applied: each was tried on its stream.
	LaidOut, Prepared, Applied lifecycle.Latch

	notices *notice.Log
	patient patient
	known   *known
	streams *streams
	storage *storage
	writer  *writer
	cache   cache
	kept    chan struct{} // the cache is outdated
}

func New(o Options) *Node {
	n := &Node{Options: o, LaidOut: make(lifecycle.Latch), Prepared: make(lifecycle.Latch),
		notices: notice.New(o.Log), patient: patient{seldom.New(o.Log)},
		known: &known{follow: o.Follow},
		cache: cache{file: o.Cache, log: o.Log}, kept: make(chan struct{}, 1)}
	n.streams = newStreams(recorded{o.Broker, o.Store}, n.known, n.notices, o.Sink, o.Log)
	n.streams.own = slices.DeleteFunc(slices.Clone(o.Wanted.Policies),
		func(p policy.Policy) bool { return !p.HasQueue() })
	n.Applied = n.streams.applied
	n.writer = &writer{broker: o.Broker, store: o.Store, schedules: o.Schedules, roster: o.Roster,
		known: n.known, notices: n.notices, sink: o.Sink, log: o.Log, patient: n.patient,
		prepared: n.Prepared, retakeAfter: retakeAfter, retaking: make(chan struct{}, 1),
		expiring: make(chan struct{}, 1)}
	n.storage = &storage{broker: o.Broker, known: n.known, writer: n.writer, streams: n.streams,
		notices: n.notices, sink: o.Sink, log: o.Log, check: o.Check, drainer: o.Drainer,
		back: make(chan struct{}, 1)}
	return n
}

func (n *Node) Prepare(ctx context.Context) error {
	err := n.layOut(ctx)
	if err == nil {
		err = n.writeFirst(ctx)
	}
	if err != nil {
		return err
	}
	set, err := n.Store.Policies(ctx)
	if err != nil {
		return err
	}
	n.known.take(set)
	close(n.streams.whole)
	_, err = n.streams.pass(ctx)
	return cmp.Or(err, ctx.Err())
}

func (n *Node) Parts() []func(context.Context) error {
	owners := &owners{n.Broker, n.known, n.notices, n.Sink, map[string]*asked{}}
	repeat := func(wake <-chan struct{},
		do func(context.Context) (time.Duration, error)) func(context.Context) error {
		return lifecycle.After(n.Prepared, lifecycle.Repeat(wake, do))
	}
	parts := []func(context.Context) error{n.watch, n.streams.run,
		repeat(nil, n.storage.look), repeat(n.storage.back, n.storage.share),
		repeat(n.writer.retaking, n.writer.retake),
		repeat(n.writer.expiring, n.writer.expire), repeat(nil, n.writer.look),
		repeat(nil, owners.look)}
	if n.Cache != "" {
		parts = append(parts, lifecycle.Repeat(n.kept, n.keep))
	}
	if n.Offline {
		parts = append(parts, n.meanwhile)
	}
	return parts
}

func (n *Node) Policies() inforce.Entries { return n.known.policies() }

// Followed waits until this process follows at least this revision of a policy, or its deletion
// (0).
func (n *Node) Followed(ctx context.Context, policy string, revision uint64) {
	n.known.wait(ctx, policy, revision)
}

// CatchUp waits until this process follows what it wrote.
func (n *Node) CatchUp(ctx context.Context) { n.writer.followed(ctx) }

// Depths counts the jobs of policies with a queue. With an error, some are missing.
func (n *Node) Depths(ctx context.Context) (map[string]uint64, error) {
	return n.streams.depths(ctx)
}

// Health returns the parts in the order of dependence: the first error causes later ones. stopping
// and starting are why jobs are not taken.
func (n *Node) Health(stopping, starting error) []health.Part {
	nats := health.Part{Name: "nats", Status: "connected"}
	if !n.Broker.Conn().IsConnected() {
		nats.Err = errors.New("not connected to NATS: checks are answered, jobs are refused")
	} else if n.Broker.Refused() == nil {
		nats.Err = n.Broker.Unstorable()
	}
	parts := []health.Part{{Name: "process", Status: "running", Err: stopping}, nats,
		{Name: "policies", Err: starting,
			Status: fmt.Sprintf("%d are followed, with their streams", len(n.Policies())),
			Notes:  slices.Concat(n.notices.Notes(&unapplied), n.writer.notes())},
		{Name: "storage", Err: n.storage.fit(), Status: "can be written",
			Notes: n.storage.notes()}}
	if n.Drainer != nil {
		parts = append(parts, health.Part{Name: "drainer", Err: n.Drainer.Health(),
			Status: "holds its lease", Notes: n.Drainer.Notes()})
	}
	if n.Limits != nil {
		// Policies define how to decide without the store.
		limits := health.Part{Name: "limits", Status: "the shared store is asked"}
		if err := n.Limits.Health(); err != nil {
			limits.Status = err.Error()
		}
		parts = append(parts, limits)
	}
	if n.Files != nil {
		parts = append(parts, n.Files())
	}
	return parts
}

// Existing policies take effect meanwhile.
func (n *Node) watch(ctx context.Context) error {
	if n.Prepared.Closed() {
		return n.follow(ctx)
	}
	if err := n.layOut(ctx); err != nil {
		return ended(ctx, err)
	}
	return lifecycle.Run(ctx, n.follow, func(ctx context.Context) error {
		if err := n.writeFirst(ctx); err != nil {
			return ended(ctx, err)
		}
		n.writer.followed(ctx)
		close(n.streams.whole)
		wake(n.streams.due)
		<-ctx.Done()
		return nil
	})
}

func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (n *Node) follow(ctx context.Context) error {
	return n.Store.Watch(ctx, func(set inforce.Entries, _ []string) {
		n.known.take(set)
		wake(n.streams.due)
		wake(n.writer.expiring)
		wake(n.kept)
	})
}

// keep writes the cache, whose size grows with the number of policies, once for the changes of a
// second: writers of policies do not wait for it.
func (n *Node) keep(ctx context.Context) (time.Duration, error) {
	select {
	case <-time.After(keepAfter):
	case <-ctx.Done():
	}
	if set := n.known.policies(); set != nil {
		n.cache.keep(set)
	}
	return never, nil
}

func (n *Node) meanwhile(ctx context.Context) error {
	select {
	case <-time.After(knownAfter):
		n.known.followInstead(
			func() inforce.Entries { return n.cache.lastKnown(n.Wanted.Policies) })
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}

func (n *Node) layOut(ctx context.Context) error {
	nc := n.Broker.Conn()
	if !natsconn.Connected(ctx, nc) {
		return fmt.Errorf("connect to NATS: %w", ctx.Err())
	}
	err := n.patient.persist(ctx, "set up JetStream", func(ctx context.Context) error {
		err := n.Broker.Setup(ctx)
		if errors.Is(err, job.ErrVersion) && nc.ConnectedServerVersion() == "" {
			return fmt.Errorf("%w: the connection was lost", jet.ErrUnavailable)
		}
		return err
	})
	if err == nil {
		close(n.LaidOut)
	}
	return err
}

func (n *Node) writeFirst(ctx context.Context) error {
	err := n.Write(ctx, n.Wanted)
	if err == nil {
		close(n.Prepared)
	}
	return err
}

// Write makes the wanted policies and schedules those of their set, unless other processes have a
// newer text of it.
func (n *Node) Write(ctx context.Context, w Wanted) error { return n.writer.write(ctx, w) }

const (
	persistFirst = 100 * time.Millisecond
	persistLast  = 2 * time.Second
)

// patient repeats what fails while JetStream is away.
type patient struct{ lines *seldom.Log }

func (p patient) persist(ctx context.Context, what string, do func(context.Context) error) error {
	for pause := persistFirst; ; pause = min(2*pause, persistLast) {
		err := do(ctx)
		if err == nil || !errors.Is(err, jet.ErrUnavailable) {
			return err
		}
		p.lines.Log(what, slog.LevelWarn, "NATS is not available: retrying",
			"doing", what, "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

func wake(part chan struct{}) {
	select {
	case part <- struct{}{}:
	default:
	}
}
