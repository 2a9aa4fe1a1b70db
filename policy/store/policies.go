// Package store keeps policies and overrides in KV tables, which all processes watch, by
// compare-and-set. A record names its writer, a file or the API, because a file must not undo later
// changes.
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

// MaxPolicies bounds policies, retired ones included.
const MaxPolicies = 10_000

type record struct {
	V      int             `json:"v"`
	Policy json.RawMessage `json:"policy"`
	Source string          `json:"source"`
	// of the target; empty: Source
	TargetSource string `json:"target_source,omitempty"`
	// SHA-256 of the text in that file
	File    string `json:"file,omitempty"`
	Set     string `json:"set,omitempty"`  // of that file; empty: policy.DefaultSet
	Left    bool   `json:"left,omitempty"` // absent from the set's file
	Retired bool   `json:"retired,omitempty"`
	Paused  bool   `json:"paused,omitempty"`
	// Deleting: retired, and removed with its stream. Deleted: kept as a mark for its file, which
	// brings it back only when its text changes.
	Deleting bool `json:"deleting,omitempty"`
	Deleted  bool `json:"deleted,omitempty"`
	// last change of the content
	Last *policy.LastChange `json:"last_change,omitempty"`

	revision uint64
}

func (r *record) entry(revision uint64) (policy.Entry, error) {
	p, err := policy.Read(r.Policy)
	return policy.Entry{Policy: p, Revision: revision, Retired: r.Retired, Deleting: r.Deleting,
		Paused: r.Paused, Source: r.Source, TargetSource: cmp.Or(r.TargetSource, r.Source),
		Set: r.set(), Last: r.Last}, err
}

func (r *record) set() string {
	if r.File == "" {
		return ""
	}
	return cmp.Or(r.Set, policy.DefaultSet)
}

// Put writes a policy for a program or the API, and returns its revision. It returns the errors of
// [policy.Policy.Validate] and [policy.CheckChange], and [ErrTooMany]; a retired policy without a
// stream may become anything. A policy that left its file or retired no longer belongs to the file.
// An unchanged policy is not written. An HTTP target must obey the stricter rule of
// httptarget.Options.
func (s *Store) Put(ctx context.Context, p policy.Policy) (revision uint64, err error) {
	entry, err := s.Change(ctx, p.Name, func(*policy.Entry) (policy.Policy, error) {
		return p, nil
	})
	return entry.Revision, err
}

// Change replaces a policy by compare-and-set, like [Store.Put]. change gets the current policy, or
// nil if it is new or unreadable, and is repeated after a conflict.
func (s *Store) Change(
	ctx context.Context, name string, change func(current *policy.Entry) (policy.Policy, error),
) (entry policy.Entry, err error) {
	defer errs.Annotate(&err, "put policy %s", name)
	var written *record
	revision, err := s.change(ctx, name, func(current *record) (next *record, err error) {
		written, err = s.draft(ctx, name, current, change)
		return written, err
	})
	if err == nil {
		entry, err = written.entry(revision)
	}
	return entry, err
}

// Try is [Store.Change] without writing.
func (s *Store) Try(
	ctx context.Context, name string, change func(current *policy.Entry) (policy.Policy, error),
) (entry policy.Entry, err error) {
	defer errs.Annotate(&err, "try policy %s", name)
	current, err := s.stored(ctx, name)
	if err == nil {
		var next *record
		if next, err = s.draft(ctx, name, current, change); err == nil {
			entry, err = next.entry(current.at())
		}
	}
	return entry, err
}

// draft returns the record of a change by a program or the API.
func (s *Store) draft(ctx context.Context, name string, current *record,
	change func(current *policy.Entry) (policy.Policy, error)) (*record, error) {

	next := record{Source: policy.SourceAPI}
	if current != nil && !current.Left &&
		(!current.Retired || current.Deleting || current.Deleted) {
		next.File, next.Set = current.File, current.Set
	}
	var before *policy.Entry
	if current = current.present(); current != nil {
		if entry, err := current.entry(current.revision); err == nil {
			before = &entry
		}
	} else if err := s.room(ctx, 1); err != nil {
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
	if before != nil && !before.Retired && before.TargetSource != next.Source &&
		p.SameTarget(before.Policy) {
		next.TargetSource = before.TargetSource
	}
	return &next, s.fill(ctx, &next, current, p)
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
		if other := set[name]; err == nil && !other.Retired {
			err = p.CheckShared(other.Policy)
		}
	}
	return err
}

func (r *record) present() *record {
	if r == nil || r.Deleted {
		return nil
	}
	return r
}

func (r *record) at() uint64 {
	if r = r.present(); r != nil {
		return r.revision
	}
	return 0
}

func (s *Store) room(ctx context.Context, added int) error {
	names, err := s.table.Count(ctx, "*")
	if err != nil || int(names)+added <= s.policies {
		return err
	}
	set, err := s.Policies(ctx)
	if err == nil && len(set)+added > s.policies {
		err = fmt.Errorf("%w: there are %d policies, which is the maximum", ErrTooMany,
			len(set))
	}
	return err
}

// fill checks a policy and puts it into the next record, with defaults, because a later version may
// have others.
func (s *Store) fill(ctx context.Context, next, current *record, p policy.Policy) error {
	var before policy.Policy
	var unreadable error
	if current != nil {
		next.Paused = current.Paused // a pause survives changes of the content
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

// isGone reports whether a retired policy's stream is gone, which frees the name.
func (s *Store) isGone(ctx context.Context, r *record, name string) bool {
	if !r.Retired {
		return false
	}
	_, err := s.broker.Depth(ctx, name)
	return errors.Is(err, queue.ErrNoStream)
}

// change replaces a record by compare-and-set, and repeats after conflicts. change gets nil for a
// new policy, a record without a policy if it is unreadable, and the records of deleted policies;
// it returns nil to keep the record. A newer format is [job.ErrVersion].
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
		if next == nil || err != nil {
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
	return &r, nil
}

// Policy reads a policy, perhaps a retired one, or returns [queue.ErrNotFound].
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

// SetPaused pauses or resumes a policy's jobs, apart from its content, or returns
// [queue.ErrNotFound].
func (s *Store) SetPaused(ctx context.Context, name string,
	paused bool) (revision uint64, err error) {
	if !policy.IsName(name) {
		return 0, fmt.Errorf("pause policy %.64q: %w", name, queue.ErrNotFound)
	}
	defer errs.Annotate(&err, "pause policy %s", name)
	return s.change(ctx, name, func(current *record) (*record, error) {
		switch {
		case current.present() == nil:
			return nil, queue.ErrNotFound
		case len(current.Policy) == 0:
			return nil, errors.New("its record cannot be read: write the policy again")
		case current.Paused == paused:
			return nil, nil
		}
		current.Paused = paused
		return current, nil
	})
}

func readPolicy(r kv.Record) (policy.Entry, error) {
	found, err := parseRecord(r.Value)
	if err != nil {
		return policy.Entry{}, err
	}
	if found.Deleted {
		return policy.Entry{}, fmt.Errorf("%w: deleted", queue.ErrNotFound)
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
	if errors.Is(err, queue.ErrNotFound) {
		delete(set, r.Key)
		return known
	}
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
