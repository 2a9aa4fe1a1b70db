// Package store keeps policies and overrides in KV tables, which all processes watch, by
// compare-and-set. A policy has one master, a file or the API; operators' levers are next to what
// the master wrote.
package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/internal/errs"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/queue/kv"

	"github.com/penstock-mq/penstock/queue"
)

// ErrTooMany is returned at the limit of policies, or of overrides of a policy.
var ErrTooMany = errors.New("too many")

// Store is safe for concurrent use and has no goroutine.
type Store struct {
	broker *queue.Broker
	table  *kv.Table
	log    *slog.Logger

	policies  int
	overrides uint64
}

// New returns the store of an installation; see [queue.Broker.Setup]. log gets unreadable records.
func New(broker *queue.Broker, log *slog.Logger) *Store {
	log = cmp.Or(log, slog.Default())
	return &Store{broker: broker, table: broker.Tables().Policies, log: log,
		policies: MaxPolicies, overrides: MaxOverrides}
}

// MaxPolicies bounds policies, draining ones included.
const MaxPolicies = 10_000

type record struct {
	V int `json:"v"`
	// by its master, without levers; none: the record is unreadable
	Policy       json.RawMessage `json:"policy"`
	Source       string          `json:"source"`
	Set          string          `json:"set,omitempty"` // see policy.Entry
	TargetSource string          `json:"target_source"` // see policy.Entry
	Draining     bool            `json:"draining,omitempty"`
	Levers       policy.Levers   `json:"levers,omitempty"`
	// last change of the content
	Last *policy.LastChange `json:"last_change,omitempty"`

	revision uint64
}

func (r *record) entry(revision uint64) (policy.Entry, error) {
	if r == nil {
		return policy.Entry{}, queue.ErrNotFound
	}
	p, err := policy.Read(r.Policy)
	e := policy.Entry{Written: p, Revision: revision, Draining: r.Draining, Levers: r.Levers,
		Source: r.Source, TargetSource: cmp.Or(r.TargetSource, r.Source), Set: r.Set, Last: r.Last}
	e.InForce()
	return e, err
}

func (r *record) at() uint64 {
	if r == nil {
		return 0
	}
	return r.revision
}

// same reports whether a file's record equals the current one, except for levers and the last
// change.
func (r *record) same(current *record) bool {
	if current == nil {
		return false
	}
	before, unreadable := policy.Read(current.Policy)
	after, err := policy.Read(r.Policy)
	return unreadable == nil && err == nil && len(policy.Diff(before, after)) == 0 &&
		r.Source == current.Source && r.Set == current.Set &&
		r.TargetSource == current.TargetSource && r.Draining == current.Draining
}

// Put writes a policy for a program or the API, and returns its revision. It returns the errors of
// [policy.Policy.Validate] and [policy.CheckChange], [ErrTooMany], and [*OwnerError] for a file's
// policy; a draining policy without a stream may become anything. An unchanged policy is not
// written. An HTTP target must obey the stricter rule of httptarget.Options.
func (s *Store) Put(ctx context.Context, p policy.Policy) (revision uint64, err error) {
	entry, err := s.Change(ctx, p.Name, false, func(*policy.Entry) (policy.Policy, error) {
		return p, nil
	})
	return entry.Revision, err
}

// Change replaces a policy by compare-and-set, like [Store.Put], unless dry. change gets the
// current policy, or nil if it is new or unreadable, and is repeated after a conflict.
func (s *Store) Change(ctx context.Context, name string, dry bool,
	change func(current *policy.Entry) (policy.Policy, error)) (entry policy.Entry, err error) {

	return s.write(ctx, name, dry, func(current *record, before *policy.Entry) (*record, error) {
		return s.draft(ctx, name, current, before, change)
	})
}

// ChangeLevers replaces a policy's levers by compare-and-set, unless dry. change gets the current
// policy, and is repeated after a conflict. The levers are not validated; see
// [policy.Override.ValidateAll].
func (s *Store) ChangeLevers(ctx context.Context, name string, dry bool,
	change func(current policy.Entry) (policy.Levers, error)) (entry policy.Entry, err error) {

	return s.write(ctx, name, dry, func(current *record, before *policy.Entry) (*record, error) {
		next, err := current.next(name, levered, "")
		if err == nil && before == nil {
			err = errors.New("its record cannot be read: write the policy again")
		}
		if err == nil {
			next.Levers, err = change(*before)
		}
		return next, err
	})
}

// write writes the next record, unless dry, and returns it.
func (s *Store) write(ctx context.Context, name string, dry bool,
	next func(current *record, before *policy.Entry) (*record, error)) (entry policy.Entry,
	err error) {

	defer errs.Annotate(&err, "put policy %s", name)
	if !policy.IsName(name) {
		return entry, fmt.Errorf("policy %.64q: %w", name, queue.ErrNotFound)
	}
	var written *record
	change := func(current *record) (*record, error) {
		var before *policy.Entry
		if entry, err := current.entry(current.at()); err == nil {
			before = &entry
		}
		written, err = next(current, before)
		return written, err
	}
	var revision uint64
	if dry {
		current, err := s.stored(ctx, name)
		if err == nil {
			_, err = change(current)
		}
		if revision = current.at(); err != nil {
			return entry, err
		}
	} else if revision, err = s.change(ctx, name, change); err != nil {
		return entry, err
	}
	return written.entry(revision)
}

// draft returns the record of a change by a program or the API.
func (s *Store) draft(ctx context.Context, name string, current *record, before *policy.Entry,
	change func(current *policy.Entry) (policy.Policy, error)) (*record, error) {

	next, err := current.next(name, written, "")
	if err == nil && current == nil {
		err = s.room(ctx, 1)
	}
	if err != nil {
		return nil, err
	}
	p, err := change(before)
	if err != nil {
		return nil, err
	}
	if p.Name != name {
		return nil, fmt.Errorf("the policy's name is %.64q", p.Name)
	}
	if err := s.agrees(ctx, p); err != nil {
		return nil, err
	}
	if before == nil || before.Draining || !p.SameTarget(before.Written) {
		next.TargetSource = policy.SourceAPI
	}
	return next, s.fill(ctx, next, current, p)
}

func (s *Store) agrees(ctx context.Context, p policy.Policy) error {
	if len(p.SharedLimits()) == 0 {
		return nil
	}
	set, err := s.Policies(ctx)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if other := set[name]; err == nil && !other.Draining {
			err = p.CheckShared(other.Written)
		}
	}
	return err
}

func (s *Store) room(ctx context.Context, added int) error {
	names, err := s.table.Count(ctx, "*")
	if err != nil || int(names)+added <= s.policies {
		return err
	}
	records, err := s.table.List(ctx, "*") // without deleted ones
	if err == nil && len(records)+added > s.policies {
		err = fmt.Errorf("%w: there are %d policies, which is the maximum", ErrTooMany,
			len(records))
	}
	return err
}

// fill checks a policy and puts it into the next record, with defaults, because a later version may
// have others.
func (s *Store) fill(ctx context.Context, next, current *record, p policy.Policy) error {
	var before policy.Policy
	var unreadable error
	if current != nil {
		before, unreadable = policy.Read(current.Policy)
	}
	p = p.Keeping(before).WithDefaults()
	if err := policy.Invalid(p.Validate()); err != nil {
		return err
	}
	if current != nil {
		err := policy.CheckChange(before, p)
		if unreadable != nil { // only the stream has the old partitions
			err = s.broker.CheckStream(ctx, p)
		}
		if err != nil && !s.isGone(ctx, current, p.Name) {
			return err
		}
	}
	content, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	next.V, next.Policy = job.FormatVersion, content
	if current != nil && unreadable == nil {
		next.Last = current.Last.Next(before, p, time.Now())
	}
	return nil
}

// isGone reports whether a draining policy's stream is gone, which frees the name.
func (s *Store) isGone(ctx context.Context, r *record, name string) bool {
	if !r.Draining {
		return false
	}
	_, err := s.broker.Depth(ctx, name)
	return errors.Is(err, queue.ErrNoStream)
}

// change replaces a record by compare-and-set, and repeats after conflicts. change gets nil for a
// new policy, and a record without a policy if it is unreadable; it returns the same record, or
// nil, for no change. A newer format is [job.ErrVersion].
func (s *Store) change(
	ctx context.Context, name string, change func(*record) (*record, error),
) (uint64, error) {
	return s.replace(ctx, name, nil, change)
}

// replace is change of a record that was read, if not nil.
func (s *Store) replace(ctx context.Context, name string, read *kv.Record,
	change func(*record) (*record, error)) (uint64, error) {
	return s.table.Update(ctx, name, read, 0, func(stored kv.Record) ([]byte, error) {
		current, err := currentRecord(stored)
		var next *record
		if err == nil {
			next, err = change(current)
		}
		if next == nil || next == current || err != nil {
			return stored.Value, err
		}
		return json.Marshal(next)
	})
}

func (s *Store) stored(ctx context.Context, name string) (*record, error) {
	stored, err := s.table.Read(ctx, name)
	if err != nil && !errors.Is(err, queue.ErrNotFound) {
		return nil, err
	}
	return currentRecord(stored)
}

// currentRecord parses a record to replace: nil if it is missing, and without a policy if it is
// unreadable, except for a newer format.
func currentRecord(stored kv.Record) (*record, error) {
	if stored.Value == nil {
		return nil, nil
	}
	r, err := parseRecord(stored.Value)
	switch {
	case errors.Is(err, job.ErrVersion):
		return nil, err
	case err != nil:
		r = &record{}
	}
	r.revision = stored.Revision
	return r, nil
}

func parseRecord(value []byte) (*record, error) {
	var r record
	if err := json.Unmarshal(value, &r); err != nil {
		return nil, fmt.Errorf("read record: %w", err)
	}
	if r.V != job.FormatVersion {
		return nil, fmt.Errorf("read record: %w: format %d", job.ErrVersion, r.V)
	}
	if r.Source == policy.SourceFile {
		r.Set = cmp.Or(r.Set, policy.DefaultSet)
	}
	return &r, nil
}

// Policy reads a policy, perhaps a draining one, or returns [queue.ErrNotFound].
func (s *Store) Policy(ctx context.Context, name string) (entry policy.Entry, err error) {
	if !policy.IsName(name) {
		return entry, fmt.Errorf("policy %.64q: %w", name, queue.ErrNotFound)
	}
	defer errs.Annotate(&err, "policy %s", name)
	r, err := s.table.Read(ctx, name)
	if err == nil {
		entry, err = readPolicy(r)
	}
	return entry, err
}

// Policies reads all policies. Unreadable ones are logged.
func (s *Store) Policies(ctx context.Context) (policy.Entries, error) {
	records, err := s.table.List(ctx, "*")
	if err != nil {
		return nil, fmt.Errorf("read the policies: %w", err)
	}
	set := policy.Entries{}
	for _, r := range records {
		s.enter(set, r)
	}
	return set, nil
}

func readPolicy(r kv.Record) (policy.Entry, error) {
	found, err := parseRecord(r.Value)
	if err != nil {
		return policy.Entry{}, err
	}
	entry, err := found.entry(r.Revision)
	entry.Stored = r.Stored
	return entry, err
}

// Watch calls changed with all policies, and again after changes with the sorted names of policies
// that changed since the last call (nil at first), until the context ends; it returns nil. Changes
// during a call are combined. changed may keep its arguments. Unreadable records are logged: this
// process lacks the policy.
func (s *Store) Watch(ctx context.Context,
	changed func(set policy.Entries, names []string)) error {
	var mu sync.Mutex
	set, synced := policy.Entries{}, false
	var names []string
	news := make(chan struct{}, 1)
	tell := func() {
		select {
		case news <- struct{}{}:
		default:
		}
	}
	ctx, end := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() {
		for first := true; ; first = false {
			select {
			case <-news:
			case <-ctx.Done():
				return
			}
			began := time.Now()
			mu.Lock()
			now, since := maps.Clone(set), names
			names = nil
			mu.Unlock()
			if slices.Sort(since); first {
				since = nil
			}
			changed(now, slices.Compact(since))
			select {
			case <-time.After(pauseAfter(time.Since(began))):
			case <-ctx.Done():
			}
		}
	})
	defer telling.Wait()
	defer end()
	return s.table.Watch(ctx, "*", func(r kv.Record) {
		mu.Lock()
		defer mu.Unlock()
		if s.enter(set, r) && synced {
			names = append(names, r.Key)
			tell()
		}
	}, func() {
		mu.Lock()
		defer mu.Unlock()
		synced = true
		tell()
	})
}

// pauseAfter returns the pause after a call with all policies, whose time is linear in their
// number: calls take at most a third of the time, and no change waits for more than a second.
func pauseAfter(call time.Duration) time.Duration { return min(2*call, time.Second) }

// enter reports whether the set changed.
func (s *Store) enter(set policy.Entries, r kv.Record) bool {
	_, known := set[r.Key]
	if r.Deleted {
		delete(set, r.Key)
		return known
	}
	entry, err := readPolicy(r)
	if err != nil {
		level := slog.LevelError
		if errors.Is(err, job.ErrVersion) {
			level = slog.LevelWarn
		}
		s.log.Log(context.Background(), level, "policy left out: its record cannot be read",
			"policy", r.Key,
			"revision", r.Revision, "error", err)
		delete(set, r.Key)
		return known
	}
	set[r.Key] = &entry
	return true
}
